"""The bare relay that stands as the floor: node -> edge -> N SSE clients, framing, protobuf, chunk formatting and flushing only.
  relay.py max "((1,60000),(100,60000),(1000,60000))"   saturation, CPU us/event of the edge by strategy / writer / parser / frame content
  relay.py lat                                          latency at fixed rates
Needs twisted, protobuf, orjson. The row read/direct/hand/epoll/ev/1 is the floor for single events, .../batchf/32 for batches of one run."""

import os
import signal
import statistics as st
import subprocess
import sys

D = os.path.dirname(os.path.abspath(__file__)) + "/"


def run(strategy, writer, parser, reactor, N, rate, total, per, mode, cmode, pin=True):
    pre = lambda c: ["taskset", "-c", c] if pin else []
    e = subprocess.Popen(
        pre("0") + [sys.executable, D + "edge.py", strategy, writer, parser, reactor], stdout=subprocess.PIPE, text=True
    )
    np, hp = e.stdout.readline().split()
    c = subprocess.Popen(
        pre("1") + [sys.executable, D + "client.py", hp, str(N), cmode],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    )
    c.stdout.readline()
    n = subprocess.Popen(
        pre("1") + [sys.executable, D + "node.py", np, str(N), str(rate), str(total), str(per), mode],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    )
    n.stdout.readline()

    def rep():
        e.send_signal(signal.SIGUSR1)
        return list(map(int, e.stdout.readline().split()))

    a = rep()
    c.stdin.write(f"{total - total // 2000 - 1 if cmode == 'count' else total}\n")
    c.stdin.flush()
    n.stdin.write("\n")
    n.stdin.flush()
    out = c.stdout.readline().split()
    b = rep()
    for p in (e, c, n):
        p.kill()
    for p in (e, c, n):
        p.wait()
    ev = b[1] - a[1]
    return dict(
        cpu_us=(b[0] - a[0]) / ev / 1000,
        ev=ev,
        flushes=b[2] - a[2],
        got=int(out[0]),
        wall=float(out[1]),
        reads=int(out[2]),
        p50=float(out[3]),
        p90=float(out[4]),
        p99=float(out[5]),
        lost=b[3],
    )


if __name__ == "__main__":
    what = sys.argv[1]
    if 1:
        if what == "max":
            cases = [
                ("each", "req", "int32", "epoll", "ev", 1),
                ("turn", "req", "int32", "epoll", "ev", 1),
                ("read", "req", "int32", "epoll", "ev", 1),
                ("timer2", "req", "int32", "epoll", "ev", 1),
                ("lead2", "req", "int32", "epoll", "ev", 1),
                ("each", "direct", "hand", "epoll", "ev", 1),
                ("read", "direct", "hand", "epoll", "ev", 1),
                ("lead2", "direct", "hand", "epoll", "ev", 1),
                ("read", "trans", "hand", "epoll", "ev", 1),
                ("read", "direct", "hand", "uvloop", "ev", 1),
                ("read", "direct", "hand", "epoll", "raw", 32),
                ("read", "direct", "hand", "epoll", "batchf", 32),
                ("read", "req", "int32", "epoll", "batchf", 32),
            ]
            for N, tot in eval(sys.argv[2]) if len(sys.argv) > 2 else ((1, 60000), (100, 60000), (1000, 60000)):
                R = {c: [] for c in cases}
                for r in range(3):
                    for c in cases:
                        R[c].append(run(*c[:4], N, 0, tot, c[5], c[4], "count"))
                base = st.median(x["cpu_us"] for x in R[cases[0]])
                print(f"== saturation N={N} streams, {tot} events; edge CPU us/event")
                for c, v in R.items():
                    a = [x["cpu_us"] for x in v]
                    m = st.median(a)
                    print(
                        f"{'/'.join(map(str, c)):38s} {m:7.2f} us [{min(a):.2f}..{max(a):.2f}] {1e6 / m:9,.0f} ev/s/core x{base / m:.2f}  ev/flush {st.median(x['ev'] / max(1, x['flushes']) for x in v):.1f} wall ev/s {st.median(x['ev'] / x['wall'] for x in v):,.0f} miss {max(x['ev'] - x['got'] for x in v)}",
                        flush=True,
                    )
        else:
            cases = [
                ("each", "req", "int32", "epoll"),
                ("turn", "req", "int32", "epoll"),
                ("read", "req", "int32", "epoll"),
                ("timer2", "req", "int32", "epoll"),
                ("read", "direct", "hand", "epoll"),
                ("lead2", "direct", "hand", "epoll"),
            ]
            for N in (1, 100, 1000):
                for rate, tot in ((1000, 1500), (5000, 6000), (20000, 20000)):
                    R = {c: [] for c in cases}
                    for r in range(3):
                        for c in cases:
                            R[c].append(run(*c, N, rate, tot, 1, "ev", "lat"))
                    print(f"== latency N={N} rate={rate}/s")
                    for c, v in R.items():
                        f = lambda k: st.median(x[k] for x in v)
                        print(
                            f"{'/'.join(c):26s} p50 {f('p50'):7.3f} ms  p90 {f('p90'):7.3f}  p99 {f('p99'):7.2f} [p50 {min(x['p50'] for x in v):.3f}..{max(x['p50'] for x in v):.3f}; p99 min {min(x['p99'] for x in v):.2f}]  edge cpu {f('cpu_us'):6.1f} us/ev  ev/flush {st.median(x['ev'] / max(1, x['flushes']) for x in v):.2f} got {f('got'):.0f}/{tot}",
                            flush=True,
                        )
