"""A target's settings as its adapter's own type: every fault is one sentence that names the key and what is allowed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from iop.adapters.wire.passed_headers import EXCHANGE, NAME
from iop.errors import ConfigError
from iop.proto.node_pb2 import TargetConfig
from iop.schema import convert
from iop.yamlfile import Document

T = TypeVar("T")


class Settings(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The base of every adapter's settings: a key that is not known is a fault."""


class _Document(Document):
    """Settings that came over the link have no file and no lines; NodeConfig's answer names the target's path."""

    def error(self, path: tuple[str | int, ...], sentence: str) -> ConfigError:
        return ConfigError(sentence)


def read_settings(target: TargetConfig, kind: type[T]) -> T:
    """Raises ConfigError."""
    try:
        value = msgspec.json.decode(target.settings or b"{}")
    except (msgspec.DecodeError, RecursionError):
        raise ConfigError("The settings are not JSON.") from None
    if not isinstance(value, dict):
        raise ConfigError("The settings must be a mapping of names.")
    return convert(_Document("", value, {}), value, kind)


def checked_url(key: str, url: str) -> str:
    """A backend's base URL without its trailing slash. Raises ConfigError."""
    allowed = "allowed is http:// or https:// with a host, a port and a path, e.g. http://127.0.0.1:8080/v1"
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        url.encode("ascii")
    except ValueError:
        good = False
    if not good or re.search(r"[\s\x00-\x1f\x7f\\]", url):
        raise ConfigError(f"{key}: {url[:200]!r} is not a base URL; {allowed}.")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ConfigError(f"{key} must not carry a user, a query or a fragment; a key belongs into api_key_file; {allowed}.")
    return url.rstrip("/")


def check_headers(headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        if not NAME.fullmatch(name) or name.lower() in EXCHANGE:
            raise ConfigError(f"headers: {name[:100]!r} cannot be set here; allowed are header names other than "
                              f"{', '.join(sorted(EXCHANGE))}.")
        if re.search(r"[\x00-\x1f\x7f]", value) or not value.isascii():
            raise ConfigError(f"headers: the value of {name} must be printable ASCII.")


def check_seconds(**seconds: float) -> None:
    for key, value in seconds.items():
        if not 0 < value <= 86_400:
            raise ConfigError(f"{key}: {value:g} is not allowed; allowed is more than 0 and at most 86400 (seconds).")
