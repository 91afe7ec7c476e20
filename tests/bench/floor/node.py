"""argv: port nstreams rate(0=max) total per_frame mode(ev|batchf|raw) . Sends events; raw blocking socket."""

import os
import socket
import struct
import sys
import time

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]
import ev_pb2 as E

port, N, rate, total, per, mode = (
    int(sys.argv[1]),
    int(sys.argv[2]),
    float(sys.argv[3]),
    int(sys.argv[4]),
    int(sys.argv[5]),
    sys.argv[6],
)
s = socket.create_connection(("127.0.0.1", port))
s.setsockopt(6, 1, 1)
P = struct.Struct(">I").pack
RID = [P(i) + b"\0" * 12 for i in range(N)]
PAD = " the quick brown fox jumps over"
now = time.monotonic_ns


def ev(i, seq):
    return E.Event(run_id=RID[i], seq=seq, ts_us=1, delta=E.Delta(text="%d%s" % (now(), PAD)))


def fr(b):
    return P(len(b)) + b


print("ready", flush=True)
sys.stdin.readline()
sent = 0
k = 0
if rate == 0:
    # pre-encode one cycle of frames so the node is never the bottleneck
    cyc = []
    if mode == "ev":
        for i in range(N):
            cyc.append(fr(E.Envelope(id=1, event=ev(i, i)).SerializeToString()))
        per_f = 1
    elif mode == "batchf":  # per-run batches
        for i in range(N):
            m = E.Envelope(id=1)
            b = m.batchf
            b.run_id = RID[i]
            for j in range(per):
                b.events.add(dt_us=j, text="%d%s" % (now(), PAD))
            cyc.append(fr(m.SerializeToString()))
        per_f = per
    else:
        for c in range(0, max(N, per), per):
            cyc.append(
                fr(
                    E.Envelope(
                        id=1, raw=E.RawBatch(events=[ev((c + j) % N, j).SerializeToString() for j in range(per)])
                    ).SerializeToString()
                )
            )
        per_f = per
    g = max(1, 512 // per_f)
    n = len(cyc)
    groups = []
    while sent < total:
        out = []
        for _ in range(g):
            out.append(cyc[k])
            k = (k + 1) % n
        s.sendall(b"".join(out))
        sent += g * per_f
else:
    t0 = time.perf_counter()
    step = 1 / rate
    while sent < total:
        due = min(total, int((time.perf_counter() - t0) * rate) + 1)
        if due <= sent:
            time.sleep(max(0, t0 + sent * step - time.perf_counter()))
            continue
        if mode == "ev":
            s.sendall(
                b"".join(
                    fr(E.Envelope(id=1, event=ev((sent + j) % N, sent + j)).SerializeToString()) for j in range(due - sent)
                )
            )
        else:
            s.sendall(
                fr(
                    E.Envelope(
                        id=1,
                        raw=E.RawBatch(events=[ev((sent + j) % N, sent + j).SerializeToString() for j in range(due - sent)]),
                    ).SerializeToString()
                )
            )
        sent = due
print("sent", sent, flush=True)
sys.stdin.readline()
