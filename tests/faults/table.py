"""What a campaign came to, as JSON and as a table of 80 columns. Pure."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import Any

from tests.faults.campaign import BUSY, Result
from tests.faults.checker import LIVENESS

SAFETY = ("lost", "duplicated", "reordered", "phantom", "two endings", "executed twice", "wrong totals")


def as_json(seed: int, results: list[Result], seconds: float) -> dict[str, Any]:
    faults = [done for result in results for done in result.faults]
    counts: Counter[str] = Counter()
    found: Counter[str] = Counter()
    for result in results:
        counts += result.report.counts
        found += Counter(finding.kind for finding in result.report.findings)
    busy = sum(done.producing >= BUSY for done in faults)
    return {
        "seed": seed, "seconds": round(seconds, 1), "worlds": len(results), "faults": len(faults),
        "busy_percent": round(100 * busy / len(faults), 1) if faults else 0.0,
        "by_kind": dict(sorted(Counter(done.kind for done in faults).items())),
        "missed": [text for result in results for text in result.missed],
        "starts": dict(sum((result.starts for result in results), Counter[str]())),
        "counts": dict(counts),
        "found": {kind: found[kind] for kind in (*SAFETY, *LIVENESS)},
        "findings": [vars(finding) | {"world": result.plan.seed} for result in results for finding in result.report.findings]}


def table(told: dict[str, Any]) -> str:
    counts, found = told["counts"], told["found"]
    lines = [f"{told['faults']} faults in {told['seconds']:.0f} s in {told['worlds']} worlds, seed {told['seed']}; "
             f"{told['busy_percent']} % under load", ""]
    kinds = [f"{name:<27}{count:>5}" for name, count in told["by_kind"].items()]
    half = (len(kinds) + 1) // 2
    for number in range(half):
        right = kinds[number + half] if number + half < len(kinds) else ""
        lines.append(f"  {kinds[number]}      {right}".rstrip())
    starts = ", ".join(f"{name} {count}" for name, count in sorted(told["starts"].items()))
    lines += ["", f"  started: {starts}; faults that found nothing to harm: {len(told['missed'])}", ""]
    ended = [f"{count} {name[7:]}" for name, count in sorted(counts.items()) if name.startswith("ended: ")]
    lines += [*textwrap.wrap("endings: " + ", ".join(ended), 78, initial_indent="  ", subsequent_indent="  "), ""]
    for name, word in (("runs", "runs"), ("events", "events in history"), ("spooled", "events in nodes' ledgers"),
                       ("shown", "events shown to readers"), ("late", "events kept apart"), ("bytes", "bytes of output"),
                       ("declared", "events declared lost by a roll-back"),
                       ("runs declared lost", "runs forgotten by a roll-back")):
        lines.append(f"  {word:<44}{counts.get(name, 0):>14,}")
    lines.append("")
    for kind in (*SAFETY, *LIVENESS):
        lines.append(f"  {kind:<44}{found[kind]:>14,}")
    return "\n".join(lines)
