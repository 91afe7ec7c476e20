#!/usr/bin/env python3
"""Start the fake upstream and one or more gateways on free loopback ports, run the load generator against them in turn (interleaved
rounds), print medians. Everything it starts it also ends, by pid.
  gateways.py [--only direct,nginx,vllm-router,litellm,iop] [--rounds 3] [--n 2000] [--ns 60] [-c 16] [--gap-ms 0] [--modes n1,n,s,p]
Needs: this Python with uvloop, httptools, orjson; LITELLM=/path/to/litellm, VLLM_ROUTER=/path/to/vllm-router, IOP=/path/to/iop, nginx on PATH, for those that are named in --only.
A new gateway: add a function that returns (port, [pids]) or (port, [pids], api_key) to GW below. Gateways share core 0, generator and upstream core 1."""

import argparse
import json
import os
import shutil
import signal
import socket
import statistics as st
import subprocess
import sys
import tempfile
import time

D = os.path.dirname(os.path.abspath(__file__))
W = tempfile.mkdtemp(prefix="bench")
PY = sys.executable
ap = argparse.ArgumentParser()
ap.add_argument("--only", default="direct,nginx,litellm,iop")
ap.add_argument("--rounds", type=int, default=3)
ap.add_argument("--n", type=int, default=2000)
ap.add_argument("--ns", type=int, default=60)
ap.add_argument("-c", type=int, default=16)
ap.add_argument("--cs", type=int, default=8)
ap.add_argument("--gap-ms", type=float, default=0)
ap.add_argument("--chunks", type=int, default=200)
ap.add_argument("--pin", default="0")
ap.add_argument("--modes", default="n1,n,s,p")
ap.add_argument("--json", default="")
A = ap.parse_args()
procs = []


def free():
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    p = s.getsockname()[1]
    s.close()
    return p


def spawn(argv, pin, **kw):
    kw.setdefault("stdout", open(f"{W}/log.{os.path.basename(argv[0])}.{len(procs)}", "w"))
    kw.setdefault("stderr", subprocess.STDOUT)
    p = subprocess.Popen(["taskset", "-c", pin] + argv, **kw)
    procs.append(p)
    return p


def wait_port(port, path="/", t=180, body=False):
    end = time.time() + t
    while time.time() < end:
        try:
            s = socket.create_connection(("127.0.0.1", port), 1)
            s.close()
            return
        except OSError:
            time.sleep(0.2)
    raise SystemExit(f"port {port} not up")


def upstream(*extra):
    p = spawn([PY, D + "/fake_upstream.py", *extra], "1", stdout=subprocess.PIPE, text=True)
    return p, int(p.stdout.readline().split()[1])


UPP, UP = upstream("--gap-ms", str(A.gap_ms))


def nginx():
    port = free()
    d = f"{W}/nginx.{port}"
    os.makedirs(d, exist_ok=True)
    open(d + "/n.conf", "w").write(f"""daemon off; worker_processes 1; pid {d}/pid; error_log {d}/err; user root;
events {{ worker_connections 4096; }} http {{ access_log off; client_body_temp_path {d}/b; proxy_temp_path {d}/p; fastcgi_temp_path {d}/f; uwsgi_temp_path {d}/u; scgi_temp_path {d}/s;
upstream u {{ server 127.0.0.1:{UP}; keepalive 256; }} keepalive_requests 1000000;
server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://u; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; }} }} }}""")
    p = spawn([shutil.which("nginx") or "/usr/sbin/nginx", "-c", d + "/n.conf", "-p", d], A.pin)
    wait_port(port)
    return port, [p.pid]


def vllm_router():
    port = free()
    p = spawn(
        [
            os.environ["VLLM_ROUTER"],
            "--worker-urls",
            f"http://127.0.0.1:{UP}",
            "--policy",
            "round_robin",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
        ],
        A.pin,
    )
    wait_port(port)
    return port, [p.pid]


def litellm():
    port = free()
    f = f"{W}/litellm.{port}.yaml"
    open(f, "w").write(f"""model_list:
  - model_name: gpt-4o-mini
    litellm_params: {{model: openai/gpt-4o-mini, api_base: "http://127.0.0.1:{UP}/v1", api_key: sk-x}}
litellm_settings: {{telemetry: false, num_retries: 0, request_timeout: 60}}
general_settings: {{master_key: sk-test}}
""")
    p = spawn(
        [
            os.environ["LITELLM"],
            "--config",
            f,
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--num_workers",
            "1",
            "--telemetry",
            "False",
        ],
        A.pin,
        env=dict(
            os.environ,
            LITELLM_LOG="ERROR",
            LITELLM_LOCAL_MODEL_COST_MAP="True",
            PYTHONWARNINGS="ignore",
            PATH=os.path.dirname(os.environ["LITELLM"]) + ":" + os.environ["PATH"],
        ),
    )
    wait_port(port, t=300)
    return port, [p.pid]


def iop():
    ready = f"{W}/iop.ready"
    p = spawn(
        [
            os.environ["IOP"],
            "up",
            "--state",
            f"{W}/iop",
            "--http-port",
            "0",
            "--link-port",
            "0",
            "--console-port",
            "0",
            "--ready-file",
            ready,
            "--openai",
            f"gpt-4o-mini=http://127.0.0.1:{UP}/v1",
        ],
        A.pin,
    )
    end = time.time() + 60
    while not os.path.exists(ready):
        if time.time() > end or p.poll() is not None:
            raise SystemExit("iop up is not ready")
        time.sleep(0.1)
    i = json.load(open(ready))
    return int(i["http"].rsplit(":", 1)[1]), [i["edge_pid"], *i["node_pids"]], i["api_key"]


GW = {"direct": lambda: (UP, [UPP.pid]), "nginx": nginx, "vllm-router": vllm_router, "litellm": litellm, "iop": iop}


def load(name, up, *args):
    port, pids = up[:2]
    extra = ["--key", up[2]] if len(up) > 2 else []
    o = subprocess.run(
        [
            "taskset",
            "-c",
            "1",
            PY,
            D + "/loadgen.py",
            "--port",
            str(port),
            "--pids",
            ",".join(map(str, pids)),
            "--label",
            name,
            "--model",
            "gpt-4o-mini",
            *extra,
            *args,
        ],
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    return json.loads(o.strip().splitlines()[-1])


try:
    names = A.only.split(",")
    up = {}
    for n in names:
        try:
            up[n] = GW[n]()
            print("# up", n, up[n], flush=True)
        except (SystemExit, Exception) as e:
            print("# FAILED", n, e, flush=True)
    slow = lambda n, k: max(1, k // (8 if n == "litellm" else 1))
    modes = {
        "n1": lambda n: ["-c", "1", "-n", str(slow(n, A.n // 2)), "--warmup", "40", "-d", "20"],
        "n": lambda n: ["-c", str(A.c), "-n", str(slow(n, A.n)), "--warmup", "40", "-d", "20"],
        "s": lambda n: [
            "-c",
            str(A.cs),
            "-n",
            str(slow(n, A.ns)),
            "--warmup",
            "8",
            "--stream",
            "--chunks",
            str(A.chunks),
            "-d",
            "30",
        ],
        "p": lambda n: ["-c", "1", "-n", str(slow(n, 40) * 2), "--warmup", "2", "--stream", "--chunks", "50", "-d", "20"],
    }
    R = {}
    for r in range(A.rounds):
        for m in A.modes.split(","):
            for n in up:
                x = load(n, up[n], *modes[m](n))
                R.setdefault((m, n), []).append(x)
                if x["errors"]:
                    print("# errors", m, n, x["errors"], x.get("error_sample", "")[:200], flush=True)
    for m in A.modes.split(","):
        print(
            "==",
            {
                "n1": "non-stream, 1 connection (latency)",
                "n": f"non-stream, {A.c} connections",
                "s": f"stream, {A.cs} connections x {A.chunks} chunks",
                "p": "stream, 1 connection x 50 chunks",
            }[m],
        )
        b = st.median(x["lat_ms_p50"] for x in R[(m, "direct")]) if (m, "direct") in R else 0
        for n in up:
            v = R[(m, n)]
            f = lambda k: st.median([x[k] for x in v if x.get(k) is not None] or [float("nan")])
            s = f"{n:18s} rps {f('rps'):8.1f} [{min(x['rps'] for x in v):.0f}..{max(x['rps'] for x in v):.0f}] p50 {f('lat_ms_p50'):8.2f} (added {f('lat_ms_p50') - b:+.2f}) p99 {f('lat_ms_p99'):8.2f} ms  cpu {f('server_cpu_ms_per_req'):7.3f} ms/req rss {f('server_rss_mb'):6.0f} MB"
            if m in "sp":
                s += f"  ttft p50 {f('ttft_ms_p50'):7.2f} p99 {f('ttft_ms_p99'):7.2f}  gap p99 {f('gap_ms_p99'):7.2f}  chunk added p50 {f('added_ms_p50'):.2f} p99 {f('added_ms_p99'):.2f}  {f('chunks_per_s'):8.0f} chunks/s  {f('server_cpu_us_per_chunk'):7.1f} us cpu/chunk ok={all(x['chunks_ok'] for x in v)}"
            print(s + f"  err {sum(sum(x['errors'].values()) for x in v)}", flush=True)
    if A.json:
        json.dump({f"{m}/{n}": v for (m, n), v in R.items()}, open(A.json, "w"), indent=1)
finally:
    for p in reversed(procs):
        p.send_signal(signal.SIGTERM)
    for p in procs:
        try:
            p.wait(5)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()
