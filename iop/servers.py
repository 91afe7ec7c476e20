"""A model server that a node starts itself, as a target's settings say: which program, where it listens, what it may take.

Two targets that say the same share one server. Pure values and checks; who starts them is iop.node.servers.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import Meta

from iop.addresses import host_port, is_loopback
from iop.config import Bytes, Count, Port
from iop.errors import ConfigError
from iop.requirements import Program

PORT, HOST = "{port}", "{host}"
COLD, STARTING, WARM = "cold", "starting", "warm"        # the states of a server that a run can be sent to

Told = Callable[[str, float], None]                      # hears a detail, and the progress from 0 to 1 (0: not known)

Name = Annotated[str, Meta(pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,47})?\Z",
                           description="letters, digits and . _ -, at most 48")]
Duration = Annotated[float, Meta(ge=0, le=31_536_000)]


class ServerSpec(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """See the module. `{port}` and `{host}` are filled in, in `argv` and in the values of `env`."""

    argv: tuple[str, ...]
    env: dict[str, str] = {}
    cwd: str = ""                    # empty: a folder of the server's own, which the node makes
    name: Name = ""                  # empty: one made of the program's name and all that is said here
    host: str = "127.0.0.1"
    port: Port = 0                   # 0: any free one
    health_path: str = ""            # answers 200 once requests may come; empty: the adapter's own
    ready_s: Duration = 600.0        # from its start until then
    idle_s: Duration = 900.0         # without a run for so long, it is unloaded; 0: never
    memory_bytes: Bytes = 0          # what it takes of the node's budget; 0: nothing
    restarts: Count = 5              # in a row; then it is left alone for a while

    @property
    def id(self) -> str:
        """What there is one server for at most."""
        if self.name:
            return self.name
        said = hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()
        program = re.sub(r"[^A-Za-z0-9._-]", "", os.path.basename(self.argv[0])).lstrip("._-")[:32]
        return f"{program or 'server'}-{said[:8]}"

    @property
    def program(self) -> Program:
        """What the owner of the machine must allow."""
        return Program(self.argv, self.cwd, self.env, serves=True)

    def url(self, port: int) -> str:
        return f"http://{host_port(self.host, port)}"

    def filled(self, port: int) -> tuple[tuple[str, ...], dict[str, str]]:
        """(argv, env) for a server at that port."""
        def fill(text: str) -> str:
            return text.replace(PORT, str(port)).replace(HOST, self.host)

        return tuple(map(fill, self.argv)), {name: fill(value) for name, value in self.env.items()}


class TargetHealth(msgspec.Struct, frozen=True):
    """How a target's backend is: "" when it is ready, else a sentence why not."""

    why_not: str = ""
    warm: bool | None = None         # the model is in its backend's memory; None: not known
    context_tokens: int = 0          # the longest prompt and answer together; 0: not known


def why_not_of(state: str) -> str:
    """Why no run can be sent to a server, where IServers.state() says that; else empty."""
    return "" if state in (COLD, STARTING, WARM) else state


def checked_spec(spec: ServerSpec, health_path: str) -> ServerSpec:
    """The spec, with the adapter's own `health_path` where it names none. Raises ConfigError."""
    if not spec.argv or not spec.argv[0]:
        raise ConfigError("serve.argv needs a program: a list as [/usr/bin/llama-server, --port, \"{port}\"].")
    if not is_loopback(spec.host):
        raise ConfigError(f"serve.host: {spec.host[:100]!r} can be reached by other machines; allowed is loopback, e.g. "
                          "127.0.0.1.")
    if not spec.port and not any(PORT in text for text in (*spec.argv, *spec.env.values())):
        raise ConfigError("serve.argv must say where the server shall listen: write {port}, e.g. [--port, \"{port}\"], or "
                          "give serve.port.")
    if spec.cwd and not os.path.isabs(spec.cwd):
        raise ConfigError(f"serve.cwd: {spec.cwd[:200]!r} is not an absolute path.")
    if not spec.ready_s:
        raise ConfigError("serve.ready_s must be more than 0 (seconds).")
    path = spec.health_path or health_path
    check_health_path("serve.health_path", path)
    return msgspec.structs.replace(spec, health_path=path)


def check_health_path(key: str, path: str) -> None:
    """Raises ConfigError."""
    if not re.fullmatch(r"/[A-Za-z0-9._~/-]{0,200}", path):
        raise ConfigError(f"{key}: {path[:200]!r} is not a path; allowed is one like /health.")
