"""The targets that `iop up` declares: from what a person types to edge.yaml and the node's policy. Pure but for PATH."""

from __future__ import annotations

import os
import shlex
import shutil
from typing import Any
from urllib.parse import urlsplit

import msgspec

from iop.adapters.argv import check_argv
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
    return name, value


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
    check_argv([found, *argv[1:]])
    prompt = "argument" if "{prompt}" in argv else "stdin"
    return Target(adapter="cli", name=name, settings={"argv": [found, *argv[1:]], "prompt": prompt}, programs=[found])


def model(adapter: str, text: str) -> Target:
    """``NAME=URL[#MODEL]``: MODEL is the backend's own name for it, NAME when it is not given."""
    name, rest = _split(text, f"--{adapter}", "NAME=URL[#MODEL]")
    url, _, backend_name = rest.partition("#")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"--{adapter} {name}: {url!r} is not a URL; it looks like http://127.0.0.1:8080/v1.")
    return Target(adapter=adapter, name=name, settings={"url": url, "model": backend_name or name},
                  upstreams=[parts.netloc.rpartition("@")[2]])


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
