"""llama.cpp's own HTTP server, from the wheel `xllamacpp`, as a process in the foreground; SIGTERM or SIGINT ends it.

    python tools/llama_server.py --model hello.gguf --port 8080 [--alias hello] [--ctx 4096] [--parallel 2]

Prints one line of JSON once it listens: {"listening": "http://127.0.0.1:8080", "pid": 1234}. While the model loads it
answers 503; port 0 takes any free one. Its log goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket

try:
    import xllamacpp
except ImportError as error:
    raise SystemExit(f"llama.cpp's server cannot be loaded: {error}. `make demo` installs xllamacpp; where libgomp is "
                     "missing, on Debian and Ubuntu: apt-get install libgomp1") from None


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run llama.cpp's server.")
    parser.add_argument("--model", required=True, help="a GGUF file")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--alias", default="", help="the model's name at the API; default: the file's name")
    parser.add_argument("--ctx", type=int, default=4096, help="tokens of context, shared by the slots")
    parser.add_argument("--parallel", type=int, default=2, help="slots")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    return parser.parse_args()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _parameters(arguments: argparse.Namespace) -> xllamacpp.CommonParams:
    parameters = xllamacpp.CommonParams()
    parameters.model.path = arguments.model
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = arguments.port or _free_port()
    name = arguments.alias or os.path.basename(arguments.model).removesuffix(".gguf")
    parameters.model_alias = {name}              # a set: a plain string would be taken for a set of letters
    parameters.n_ctx = arguments.ctx
    parameters.n_parallel = arguments.parallel
    parameters.cpuparams.n_threads = arguments.threads
    parameters.use_jinja = True
    parameters.endpoint_metrics = True
    parameters.endpoint_slots = True
    parameters.warmup = False
    return parameters


def main() -> None:
    signals = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)     # before the server's threads: they inherit it
    server = xllamacpp.Server(_parameters(_arguments()))
    print(json.dumps({"listening": server.listening_address, "pid": os.getpid()}), flush=True)
    signal.sigwait(signals)
    os._exit(0)                                           # the server has no call that stops it


if __name__ == "__main__":
    main()
