"""The chat path, edge and node together on core 0, against LiteLLM and nginx; history and spool on."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

from edges import HERE
from rows import Rows

PYTHON = os.environ.get("BENCH_PYTHON", sys.executable)
Results = dict[str, list[dict]]


def gateways(names: list[str], *options: str) -> Results:
    """Run gateways.py; its raw results by "mode/gateway"."""
    environment = os.environ | {"IOP": os.path.join(os.path.dirname(sys.executable), "iop")}
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        done = subprocess.run([PYTHON, f"{HERE}/gateways.py", "--only", ",".join(names), "--json", out.name, *options],
                              check=False, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise SystemExit(done.stdout[-500:])
        return json.load(out)


def median(results: Results, mode: str, name: str, figure: str) -> float:
    return statistics.median(row[figure] for row in results[f"{mode}/{name}"] if row.get(figure) is not None)


def _against(rows: Rows, results: Results, mode: str, figure: str, what: str, unit: str, name: str, goal: float | None,
             inverse: bool = False) -> None:
    """A ratio; `inverse` where the goal is told as 1/N."""
    if f"{mode}/{name}" not in results:
        rows.missing(f"{what} / {name}", f"{name} is not installed here, or did not start")
        return
    ours, theirs = (median(results, mode, one, figure) for one in ("iop", name))
    note = f"{ours:.2f} and {theirs:.2f} {unit}"
    if inverse:
        rows.add(f"{what} / {name}", theirs / ours, "1/", f"<= 1/{goal:g}", theirs / ours >= goal, note, iop=ours,
                 other=theirs)
    elif goal is None:
        rows.add(f"{what} / {name}", ours / theirs, "x", note=note, iop=ours, other=theirs)
    else:
        rows.at_most(f"{what} / {name}", ours / theirs, "x", goal, note, iop=ours, other=theirs)


def measure(rows: Rows, rounds: int = 3) -> None:
    here = {"direct": True, "nginx": shutil.which("nginx"), "iop": True, "litellm": os.environ.get("LITELLM")}
    names = [name for name, found in here.items() if found]
    flat_out = gateways(names, "--modes", "n1,n,s", "--rounds", str(rounds), "--gap-ms", "0")
    for name, goal in (("litellm", 30.0), ("nginx", None)):
        _against(rows, flat_out, "n", "server_cpu_ms_per_req", "CPU a plain request", "ms", name, goal, goal is not None)
    for name, goal in (("litellm", 60.0), ("nginx", 2.5)):
        _against(rows, flat_out, "s", "server_cpu_us_per_chunk", "CPU a streamed chunk", "us", name, goal, name == "litellm")
    paced = gateways([name for name in names if name != "litellm"], "--modes", "s,p", "--rounds", str(rounds),
                     "--gap-ms", "20", "--cs", "40", "--ns", "80", "--chunks", "50")
    added = {name: median(paced, "p", name, "ttft_ms_p50") - median(paced, "p", "direct", "ttft_ms_p50")
             for name in names if f"p/{name}" in paced}
    rows.at_most("added time to first token, paced, p50", added["iop"], "ms", 5,
                 f"nginx adds {added['nginx']:.2f} ms" if "nginx" in added else "")
    _against(rows, paced, "s", "added_ms_p99", "chunk lag p99, 40 streams x 50/s", "ms", "nginx", 2.5)


if __name__ == "__main__":
    measure(Rows(), int(sys.argv[1]) if len(sys.argv) > 1 else 3)
