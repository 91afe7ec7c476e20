"""What the settings of every target at a model backend have in common. Pure."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeVar

import msgspec

from iop.adapters import settings as checks
from iop.adapters.settings import Settings
from iop.errors import ConfigError
from iop.proto.node_pb2 import TargetConfig
from iop.requirements import Program, Upstream
from iop.servers import ServerSpec, checked_spec


class ModelSettings(Settings):
    """`model` is the backend's own name for it; empty is the target's name. Paths are below `url`'s host.

    `serve`: how the node starts the server itself; then there is no `url`, but `serve_base` behind the server's own.
    """

    serve_base: ClassVar[str] = "/v1"
    serve_health: ClassVar[str] = "/health"

    url: str = ""
    model: str = ""
    serve: ServerSpec | None = None
    connect_s: float = 5.0
    first_byte_s: float = 60.0       # from the request to the reply's head; longer for cold models
    first_token_s: float = 0.0       # from the request to the first thing said; 0: as first_byte_s
    idle_s: float = 60.0             # between two things said
    idle_by: Literal["output", "bytes"] = "output"     # "bytes": comments and empty chunks count as something said


AnySettings = TypeVar("AnySettings", bound=ModelSettings)


def read_model_settings(target: TargetConfig, kind: type[AnySettings]) -> AnySettings:
    """Those of `target`, with their defaults filled in. Raises ConfigError."""
    settings = checks.read_settings(target, kind)
    checks.check_seconds(connect_s=settings.connect_s, first_byte_s=settings.first_byte_s, idle_s=settings.idle_s,
                         first_token_s=settings.first_token_s or settings.first_byte_s)
    named = msgspec.structs.replace(settings, model=settings.model or target.name)
    if settings.serve is None:
        if not settings.url:
            raise ConfigError("It needs `url`, or `serve`, which says how its server is started.")
        return msgspec.structs.replace(named, url=checks.checked_url("url", settings.url))
    if settings.url and settings.url != kind().url:
        raise ConfigError("url and serve do not go together: a server that the node starts is where the node says.")
    return msgspec.structs.replace(named, url="", serve=checked_spec(settings.serve, kind.serve_health))


def requirements_of(settings: ModelSettings) -> list[Program | Upstream]:
    """What the owner of the machine must allow."""
    return [Upstream(settings.url)] if settings.serve is None else [settings.serve.program]
