"""`make bench`: every figure as a ratio within this run, beside its goal. See docs/performance.md.

Sections: relay, latency, chat. LiteLLM and nginx are measured where they are installed (LITELLM, PATH).
"""

from __future__ import annotations

import json
import os
import runpy
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.environ.get("BENCH_PYTHON", sys.executable)


def gateways(*options: str) -> dict[str, list[dict]]:
    """Run gateways.py; its raw results by "mode/gateway"."""
    names = "direct,nginx,iop" + (",litellm" if os.environ.get("LITELLM") else "")
    environment = os.environ | {"IOP": os.path.join(os.path.dirname(sys.executable), "iop")}
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        subprocess.run([PYTHON, f"{HERE}/gateways.py", "--only", names, "--json", out.name, *options], check=True,
                       env=environment)
        return json.load(out)


def median(results: dict[str, list[dict]], mode: str, name: str, figure: str) -> float:
    values = [row[figure] for row in results.get(f"{mode}/{name}", []) if row.get(figure) is not None]
    return statistics.median(values) if values else float("nan")


def row(name: str, ours: float, theirs: float, unit: str, goal: str) -> None:
    print(f"{name:<52} iop {ours:>9.3f} {unit}, other {theirs:>9.3f}: {ours / theirs:7.4f} (goal {goal})", flush=True)


def chat() -> None:
    """The chat path against LiteLLM and nginx; edge and node together on core 0, history on."""
    results = gateways("--modes", "n1,n,s,p", "--rounds", "3", "--gap-ms", "0")
    for name, goal in (("litellm", "<= 1/30 = 0.0333"), ("nginx", "told only")):
        row(f"CPU a plain request, against {name}", median(results, "n", "iop", "server_cpu_ms_per_req"),
            median(results, "n", name, "server_cpu_ms_per_req"), "ms", goal)
    for name, goal in (("litellm", "<= 1/60 = 0.0167"), ("nginx", "<= 2.5")):
        row(f"CPU a streamed chunk, against {name}", median(results, "s", "iop", "server_cpu_us_per_chunk"),
            median(results, "s", name, "server_cpu_us_per_chunk"), "us", goal)
    paced = gateways("--modes", "s,p", "--rounds", "3", "--gap-ms", "20", "--cs", "40", "--ns", "80", "--chunks", "50")
    added = median(paced, "p", "iop", "ttft_ms_p50") - median(paced, "p", "direct", "ttft_ms_p50")
    print(f"added time to first token, paced, p50: {added:.2f} ms (goal <= 5 ms)")
    row("chunk lag p99, 40 streams x 50/s, against nginx", median(paced, "s", "iop", "added_ms_p99"),
        median(paced, "s", "nginx", "added_ms_p99"), "ms", "<= 2.5")


def main(sections: list[str]) -> None:
    for section in sections or ["relay", "latency", "chat"]:
        print(f"== {section}", flush=True)
        if section == "chat":
            chat()
        else:
            runpy.run_path(f"{HERE}/{section}.py")["measure"]()


if __name__ == "__main__":
    main(sys.argv[1:])
