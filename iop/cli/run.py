"""`iop run`, `iop tail`, `iop cancel`: one run, watched as it goes."""

from __future__ import annotations

import signal
import sys
from typing import Any

import click

from iop.cli.base import examples, json_option, with_edge
from iop.cli.client import Client
from iop.cli.errors import EdgeGone
from iop.cli.output import RunPrinter, print_json
from iop.cli.paths import run_path
from iop.errors import InvalidRequest
from iop.exits import CANCELLED, FAILED, exit_code
from iop.runs import ENDINGS, EventId


def _one_prompt(context: click.Context, parameter: click.Parameter, words: tuple[str, ...]) -> str:
    if len(words) != 1:
        what = f"{len(words)} words stand where one prompt belongs" if words else "The prompt is missing"
        raise click.UsageError(f"{what}: put it in quotes, or give - for standard input.")
    return words[0]


@click.command("run", short_help="Run a prompt, and show its output as it arrives.", epilog=examples(
    "iop run -a cli -t hello \"hi there\"", "git diff | iop run -a openai -t smollm2 -", "iop run -a cli -t job --detach go"))
@click.option("-a", "--adapter", metavar="ADAPTER", default="", help="cli, openai, ollama, vllm, mock or another plugin; "
              "default: any that has the target.")
@click.option("-t", "--target", metavar="TARGET", required=True, help="A program's profile, a model, or a name that several "
              "targets carry.")
@click.option("--detach", is_flag=True, help="Print the run's id and return at once.")
@click.option("--session", metavar="S", help="Continue the session S; the run goes to the node that holds it.")
@click.option("--timeout", type=click.FloatRange(min=0), metavar="S", help="End the run S seconds after its start; the wait "
              "for a node does not count.")
@click.argument("prompt", nargs=-1, metavar="PROMPT", callback=_one_prompt)
@json_option
@with_edge
def run_command(edge: Client, *, adapter: str, target: str, detach: bool, session: str | None, timeout: float | None,
                prompt: str, as_json: bool) -> None:
    """Run PROMPT (- reads standard input) and show its output as it arrives.

    Text and standard output come on standard output; reasoning, standard error and notes on standard error. Ctrl-C cancels
    the run.
    """
    named = {"adapter": adapter} if adapter else {}
    body: dict[str, Any] = {**named, "target": target, "input": {"prompt": _prompt(prompt)}}
    if session:
        body["session_id"] = session
    if timeout:
        body["limits"] = {"run_s": timeout}
    submitted = edge.post("/api/v1/runs", body)
    run_id = submitted["run_id"]
    if submitted["state"] == "queued" and not as_json:
        click.echo("[it waits until a node that offers it is ready and free; see `iop nodes`]", err=True)
    if detach:
        print_json({"run_id": run_id}) if as_json else click.echo(run_id)
        return
    sys.exit(follow(edge, run_id, "", as_json=as_json, cancels=True))


@click.command("tail", short_help="Follow a run from its start until it ends.", epilog=examples(
    "iop tail RUN", "iop tail RUN --after 1.20 --json"))
@click.argument("run_id", metavar="RUN")
@click.option("--after", metavar="ID", default="", help="Begin behind this event, e.g. 1.20.")
@json_option
@with_edge
def tail_command(edge: Client, *, run_id: str, after: str, as_json: bool) -> None:
    """Show a run's events from its start, then as they arrive, until it ends.

    Any number can tail one run. Ctrl-C ends the tail, not the run. The exit code is the run's.
    """
    EventId.parse(after)
    sys.exit(follow(edge, run_id, after, as_json=as_json, cancels=False))


@click.command("cancel", epilog=examples("iop cancel RUN"))
@click.argument("run_id", metavar="RUN")
@json_option
@with_edge
def cancel_command(edge: Client, *, run_id: str, as_json: bool) -> None:
    """End a run, and every program that it started. To cancel twice does no harm."""
    answer = edge.post(f"{run_path(run_id)}/cancel")
    if as_json:
        print_json(answer)
    elif answer["state"] in ENDINGS:
        click.echo(f"{run_id} had ended already: {answer['state']}.")
    else:
        click.echo(f"{run_id} is asked to end; it is {answer['state']}.")


def follow(edge: Client, run_id: str, after: str, *, as_json: bool, cancels: bool) -> int:
    """Print a run until it ends; the exit code it calls for. With `cancels`, Ctrl-C and SIGTERM cancel the run first."""
    printer, path = RunPrinter(as_json=as_json), run_path(run_id)

    def is_over(seen: str) -> bool:
        return bool(edge.get(path + "/events", after=seen, limit=1)["ended"])

    def stop(signum: int, frame: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        edge.post(path + "/cancel")

    if cancels:
        signal.signal(signal.SIGINT, stop)
        signal.signal(signal.SIGTERM, stop)
    for event in edge.events(path + "/events", after, is_last=lambda data: data["type"] in ENDINGS, is_over=is_over):
        printer.show(event.data)
    return _exit_code(printer.outcome or _outcome(edge.get(path)))


def _outcome(run: dict[str, Any]) -> dict[str, Any]:
    """The ending of a run whose last event was seen before."""
    if run["state"] not in ENDINGS:
        raise EdgeGone("The stream ended before the run did.")
    return {"type": run["state"], "code": (run["outcome"] or {}).get("code", "")}


def _exit_code(outcome: dict[str, Any]) -> int:
    if outcome["type"] == "completed":
        return 0
    if outcome["type"] == "cancelled":
        return CANCELLED
    code = exit_code(outcome.get("code", ""))
    return code if code != CANCELLED else FAILED


def _prompt(text: str) -> str:
    if text != "-":
        return text
    data = sys.stdin.buffer.read()
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"Standard input is not UTF-8 text (byte {error.start}).") from None
