"""`iop verify`: whether history has a run whole."""

from __future__ import annotations

import sys
from typing import Any

import click

from iop.cli.base import examples, json_option, with_edge
from iop.cli.client import Client
from iop.cli.output import print_json
from iop.cli.run import run_path
from iop.errors import FAILED
from iop.rendering import safe_line
from iop.runs import ENDINGS

ANSWER_S = 900.0         # a run of many gigabytes is read from disk and decoded


@click.command("verify", short_help="Recompute whether the history has a run whole.", epilog=examples(
    "iop verify RUN", "iop verify RUN --json"))
@click.argument("run_id", metavar="RUN")
@json_option
@with_edge
def verify_command(edge: Client, *, run_id: str, as_json: bool) -> None:
    """Recompute from the history whether it has all of RUN: every event once, in order, and the output as its node told it.

    The exit code is 0 when the run is whole, and 1 when it is not or has not ended.
    """
    found = edge.call("GET", f"/api/v1/runs/{run_path(run_id)}/verify", answer_s=ANSWER_S)
    if as_json:
        print_json(found)
    else:
        for line in told(found):
            click.echo(safe_line(line))
    sys.exit(0 if found["whole"] else FAILED)


def told(found: dict[str, Any]) -> list[str]:
    """What people read of it, a sentence a line."""
    lines = [f"{found['run_id']} is {'whole' if found['whole'] else 'NOT whole'}: {found['events']} events, "
             f"{found['bytes']} bytes of output, digest {found['digest'][:16]}…"]
    lines += [f"The events {gap['first']} to {gap['last']} ({gap['missing']}) are lost." for gap in found["gaps"]]
    lines += found["faults"]
    if found["checked"] == "numbers" and found["state"] in ENDINGS:
        lines.append("Its ending was made by the edge, without its node's totals: only the numbering was checked.")
    if found["late"]:
        lines.append(f"{found['late']} events came after its ending; they are kept apart.")
    return lines
