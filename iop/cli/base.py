"""What every command shares: its options, its examples in the help, and errors told as one sentence and an exit code."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

import click

from iop.cli.errors import SystemFault
from iop.cli.find import find_edge
from iop.cli.output import fitted
from iop.errors import InvalidRequest, IOPError
from iop.exits import CANCELLED, FAILED, USAGE, exit_code
from iop.rendering import error_text


class Group(click.Group):
    """A group whose commands end with a sentence on standard error instead of a traceback; listed as they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except IOPError as error:
            tell(error)
            ctx.exit(exit_code(error.code))
        except click.UsageError as error:
            if "--json" not in sys.argv:
                raise click.UsageError(_fitted_usage(error), error.ctx) from None
            tell(InvalidRequest(_sentence(error.format_message()), hint=_help_of(error.ctx)))
            ctx.exit(USAGE)
        except KeyboardInterrupt:
            if sys.stderr.isatty():
                click.echo(err=True)     # the terminal's cursor stands behind its ^C
            ctx.exit(CANCELLED)
        except BrokenPipeError:
            # The reader of our output is gone (`iop tail … | head`): that is its end, not a fault of ours.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)
        except OSError as error:
            tell(SystemFault(f"{error.filename or 'The system'}: {error.strerror or error}."))
            ctx.exit(FAILED)


def tell(error: IOPError) -> None:
    """An error on standard error: for people, or as the API's error object where --json was given."""
    as_json = "--json" in sys.argv
    text = error_text(error, as_json, head="iop")
    click.echo(text if as_json else fitted(text, sys.stderr), nl=False, err=True)


def _fitted_usage(error: click.UsageError) -> str:
    """What click says behind its word "Error: "."""
    head = "Error: "
    return fitted(head + error.format_message() + "\n", sys.stderr).removeprefix(head).removesuffix("\n")


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else text + "."


def _help_of(context: click.Context | None) -> str:
    return f"See `{context.command_path} --help`." if context is not None else ""


def examples(*lines: str) -> str:
    """An epilog that shows how the command is typed."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, one value a line.")(command)


def state_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--state", metavar="DIR", help="The state folder of the edge; default: IOP_URL and IOP_API_KEY, then "
                        "~/.local/state/iop.")(command)


def edge_folder_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Of the commands that work on the files of an edge on this machine."""
    return click.option("--state", metavar="DIR", help="The folder of the edge's state, or of its edge.yaml; default: "
                        "~/.local/state/iop.")(command)


def with_edge(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --state, and passes the running edge's Client as the first argument."""

    @functools.wraps(command)
    def call(*args: Any, state: str | None, **options: Any) -> Any:
        context = click.get_current_context()
        return command(find_edge(state if state is not None else context.obj), *args, **options)

    return state_option(call)
