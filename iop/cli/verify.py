"""`iop verify`: whether history has a run whole."""

from __future__ import annotations

import sys

import click

from iop.cli.base import examples, json_option, with_edge
from iop.cli.client import Client
from iop.cli.output import fitted, print_json
from iop.cli.paths import run_path
from iop.exits import verified
from iop.rendering import findings_text

ANSWER_S = 900.0         # a run of many gigabytes is read from disk and decoded


@click.command("verify", short_help="Recompute whether the history has a run whole.", epilog=examples(
    "iop verify RUN", "iop verify RUN --json"))
@click.argument("run_id", metavar="RUN")
@json_option
@with_edge
def verify_command(edge: Client, *, run_id: str, as_json: bool) -> None:
    """Recompute from the history whether it has all of RUN: every event once, in order, and the output as its node told it.

    The exit code is 0 when the run is whole, 1 when it is not, and 5 while it has not ended.
    """
    found = edge.call("GET", f"{run_path(run_id)}/verify", answer_s=ANSWER_S)
    if as_json:
        print_json(found)
    else:
        click.echo(fitted(findings_text(found), sys.stdout), nl=False)
    sys.exit(verified(found))
