"""The limits of API keys, as they are typed and shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click
import msgspec

from iop.keylimits import NO_LIMITS, NUMBERS, KeyLimits

_COUNT, _DOLLARS = click.IntRange(0, 10 ** 15), click.FloatRange(0, 10 ** 9)
_LIMITS: tuple[tuple[str, Any, str, str], ...] = (
    ("requests_per_minute", _COUNT, "N", "Requests a minute."),
    ("tokens_per_minute", _COUNT, "N", "Tokens a minute, read and written."),
    ("concurrency", _COUNT, "N", "Runs at once; more wait in the queue."),
    ("tokens_per_day", _COUNT, "N", "Tokens a day (UTC)."),
    ("tokens_per_month", _COUNT, "N", "Tokens a month."),
    ("cost_per_day", _DOLLARS, "DOLLARS", "Dollars a day."),
    ("cost_per_month", _DOLLARS, "DOLLARS", "Dollars a month."),
)


def limit_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options for all limits of an API key; what is not given is not passed on."""
    more = [
        click.option("--max-priority", metavar="N", type=click.IntRange(-1000, 1000), help="The most urgent that its "
                     "runs may be. Default: 0, or any with the scope admin."),
        click.option("--model", "models", metavar="NAME", multiple=True, help="A model or target that it may use, where * "
                     "stands for any text; repeatable. Default: all.")]
    numbers = [click.option(f"--{name.replace('_', '-')}", metavar=metavar, type=kind, help=f"{text} 0: no limit.")
               for name, kind, metavar, text in _LIMITS]
    for option in reversed(numbers + more):
        command = option(command)
    return command


def changed_limits(before: KeyLimits, given: Mapping[str, Any]) -> KeyLimits:
    """`before` with what was given on the command line."""
    told = {name: value for name, value in given.items() if value is not None and value != ()}
    if "models" in told:
        told["models"] = [name for name in told["models"] if name]
    told |= {name: getattr(NO_LIMITS, name) for name in NUMBERS if not told.get(name, 1)}    # that very value is left out
    return msgspec.structs.replace(before, **told)


_SHORT = {"requests_per_minute": "{} requests/min", "tokens_per_minute": "{} tokens/min", "concurrency": "{} at once",
          "tokens_per_day": "{} tokens/day", "tokens_per_month": "{} tokens/month", "cost_per_day": "${}/day",
          "cost_per_month": "${}/month", "max_priority": "priority {}"}


def limits_text(limits: Mapping[str, Any]) -> str:
    """What a key is limited to, in a few words; "" for nothing."""
    told = [text.format(limits[name]) for name, text in _SHORT.items() if name in limits]
    if limits.get("models"):
        told.append("only " + ", ".join(limits["models"]))
    return ", ".join(told)
