"""The targets that `iop up` declares: from what a person types to edge.yaml and the node's policy. Pure but for PATH."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import msgspec

from iop.adapters.argv import check_argv
from iop.adapters.settings import checked_url
from iop.config import Name
from iop.errors import ConfigError


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One target. `settings` go into edge.yaml; the rest is what the machine's owner allows by typing it."""

    adapter: str
    name: str
    settings: dict[str, Any]
    programs: list[str] = []
    upstreams: list[str] = []


def _split(text: str, option: str, example: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals or not value.strip():
        raise ConfigError(f"{option} {text!r} is not of the form {example}.")
    try:
        return msgspec.convert(name, Name), value
    except msgspec.ValidationError:
        raise ConfigError(f"{option}: {name!r} cannot be a target's name: it has letters, digits and . _ : / @ + -, at most "
                          "128.") from None


def program(text: str) -> Target:
    """``NAME=prog arg {prompt}``: split as a shell would, without a shell; the program found on PATH.

    Without ``{prompt}`` the prompt goes to the program's standard input.
    """
    name, line = _split(text, "--cli", "NAME='prog arg {prompt}'")
    try:
        argv = shlex.split(line)
    except ValueError as error:
        raise ConfigError(f"--cli {name}: the command line cannot be split: {error}.") from None
    found = shutil.which(os.path.expanduser(argv[0]))
    if found is None:
        raise ConfigError(f"--cli {name}: there is no program {argv[0]!r} on PATH.",
                          hint="Install it, or give its absolute path.")
    found = os.path.abspath(found)
    with _blamed(f"--cli {name}"):
        check_argv([found, *argv[1:]])
    prompt = "argument" if "{prompt}" in argv else "stdin"
    return Target(adapter="cli", name=name, settings={"argv": [found, *argv[1:]], "prompt": prompt}, programs=[found])


def model(adapter: str, text: str) -> Target:
    """``NAME=URL[#MODEL]``: MODEL is the backend's own name for it, NAME when it is not given."""
    name, rest = _split(text, f"--{adapter}", "NAME=URL[#MODEL]")
    url, _, backend_name = rest.partition("#")
    with _blamed(f"--{adapter} {name}"):
        checked_url("the URL", url)
    return Target(adapter=adapter, name=name, settings={"url": url, "model": backend_name or name},
                  upstreams=[urlsplit(url).netloc])


@contextmanager
def _blamed(option: str) -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{option}: {error.message}", hint=error.hint) from None


def mock() -> Target:
    """What a node offers when nobody declared anything, so that there is something to try."""
    return Target(adapter="mock", name="echo", settings={"echo": True})


def adapters(targets: list[Target]) -> dict[str, Any]:
    """The `adapters` of a node in edge.yaml; each name is the model alias too."""
    found: dict[str, Any] = {}
    names: set[str] = set()
    for target in targets:
        if target.name in names:
            raise ConfigError(f"The target {target.name} is declared twice; each needs a name of its own.")
        names.add(target.name)
        place = found.setdefault(target.adapter, {"targets": {}})["targets"]
        place[target.name] = {"aliases": [target.name], **target.settings}
    return found


def policy(targets: list[Target]) -> dict[str, Any]:
    """The policy of a node whose owner typed these targets: exactly what they need."""
    programs = sorted({path for target in targets for path in target.programs})
    return {"mode": "guided", "executables": programs, "interpreters": programs,
            "upstreams": sorted({host for target in targets for host in target.upstreams})}
