"""`iop usage`: runs and tokens, by key, model and node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from iop.cli.base import examples, json_option, with_edge
from iop.cli.client import Client
from iop.cli.output import print_json, print_table
from iop.rendering import Column


@click.command("usage", epilog=examples("iop usage", "iop usage --by model,node --since 2026-12-01T00:00:00Z",
                                        "iop usage --by total --json"))
@click.option("--by", metavar="WHAT", default="key", show_default=True,
              help="Some of key, model and node, with commas between them, or total.")
@click.option("--since", metavar="TIME", default="", help="Only runs created since, e.g. 2026-12-01T00:00:00Z.")
@click.option("--until", metavar="TIME", default="", help="Only runs created before.")
@json_option
@with_edge
def usage_command(edge: Client, *, by: str, since: str, until: str, as_json: bool) -> None:
    """Show what was used: runs, tokens and cost, the most first."""
    answer = edge.get("/api/v1/usage", by=by, since=since, until=until)
    rows = answer["usage"] if isinstance(answer, dict) else []
    if as_json:
        for row in rows:
            print_json(row)
        return
    names = [name for name in ("key", "model", "node") if rows and name in rows[0]]
    columns: list[Column] = [*names, "runs", ("PROMPT", "prompt_tokens"), ("ANSWER", "completion_tokens"),
                             ("CACHED", "cached_tokens"), ("TOTAL", "total_tokens")]
    if any(row["cost_usd"] for row in rows):
        columns.append(("COST", _cost))
    print_table(rows, columns)


def _cost(row: Mapping[str, Any]) -> str:
    return f"${row['cost_usd']:.2f}"
