"""Tokens of nodes and keys of API clients: 256 random bits, shown once, kept as SHA-256, bound to one owner.

``iopn_<keyid>_<secret>`` is a node's token, ``iopo_<keyid>_<secret>`` an operator's or client's API key. SHA-256 is the
right hash for a random secret of 256 bits (4.7 us; bcrypt would hold the reactor for 81 ms and add nothing).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import secrets
import time
from collections.abc import Callable

import msgspec

from iop import yamlfile
from iop.errors import AuthFailed, ConfigError
from iop.files import StrPath, check_private, write_private
from iop.keylimits import NO_LIMITS, KeyLimits
from iop.schema import convert

_TOKEN = re.compile(r"iop(?P<kind>[no])_(?P<keyid>[a-z2-7]{16})_(?P<secret>[A-Za-z0-9_-]{43})")
KINDS = {"node": "n", "api": "o"}
SCOPES = ("runs:read", "runs:write", "programs", "models", "nodes:read", "nodes:write", "events:read", "metrics:read",
          "admin")
_NOBODY = hashlib.sha256(b"nobody").hexdigest()


class Key(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One key, without its secret. `owner`: the node's id, or the client's name. `scopes` of a node are empty."""

    keyid: str
    kind: str                        # node | api
    owner: str
    sha256: str                      # hex, of the secret part
    scopes: list[str] = []
    not_after: int = 0               # Unix seconds; 0: no end
    created: int = 0
    limits: KeyLimits = NO_LIMITS    # of an API key

    def valid_at(self, now_s: float) -> bool:
        return not self.not_after or now_s < self.not_after


class _File(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    keys: list[Key] = []


def make_key(kind: str, owner: str, scopes: list[str] | None = None, *, not_after: int = 0,
             limits: KeyLimits = NO_LIMITS) -> tuple[Key, str]:
    """A new key and its text, which is shown once and never stored by the edge."""
    keyid = base64.b32encode(os.urandom(10)).decode("ascii").lower()
    secret = secrets.token_urlsafe(32)
    key = Key(keyid=keyid, kind=kind, owner=owner, sha256=hashlib.sha256(secret.encode()).hexdigest(),
              scopes=scopes or [], not_after=not_after, created=int(time.time()), limits=limits)
    return key, f"iop{KINDS[kind]}_{keyid}_{secret}"


class KeyRing:
    """The keys of one edge, looked up by id and compared in constant time."""

    def __init__(self, keys: list[Key], now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._keys = {key.keyid: key for key in keys}
        self._limited = {key.owner: [one for one in keys if one.owner == key.owner and one.kind == "api"]
                         for key in keys if key.limits != NO_LIMITS}
        self._patient = ({key.owner for key in keys if key.kind == "api"}
                         - {key.owner for key in keys if "admin" in key.scopes})

    @property
    def keys(self) -> list[Key]:
        return list(self._keys.values())

    def verify(self, kind: str, text: str) -> Key:
        """The key that `text` is; raises AuthFailed, with the same work for an unknown id as for a wrong secret."""
        match = _TOKEN.fullmatch(text)
        keyid, secret = (match["keyid"], match["secret"]) if match else ("", text)
        key = self._keys.get(keyid)
        digest = hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
        wrong_kind = match is None or match["kind"] != KINDS[kind]
        right = hmac.compare_digest(digest.encode("ascii"), (key.sha256 if key else _NOBODY).encode("utf-8"))
        if wrong_kind or key is None or not right or key.kind != kind or not key.valid_at(self._now()):
            raise AuthFailed()
        return key

    def limits_of(self, owner: str) -> list[KeyLimits]:
        """Those of the owner's keys that are valid now; none where none of them has any."""
        keys = self._limited.get(owner)
        return [key.limits for key in keys if key.valid_at(self._now())] if keys else []

    def may_hurry(self, owner: str) -> bool:
        """Whether the owner's runs may be more urgent than usual, where no limit says it: those of operators, and of who has
        no API key and came in by another door."""
        return owner not in self._patient

    @property
    def budgeted(self) -> bool:
        """Whether some key has a budget for a day or a month."""
        return any(key.limits.budgeted for keys in self._limited.values() for key in keys)

    def holds(self, key: Key) -> bool:
        """Whether a key that was verified before still is one."""
        known = self._keys.get(key.keyid)
        return (known is not None and known.sha256 == key.sha256 and known.owner == key.owner
                and known.valid_at(self._now()))


def load_keys(file: StrPath) -> list[Key]:
    """Read keys.yaml; none when there is no such file. Raises ConfigError, also when others may read it."""
    try:
        check_private(file)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}.") from None
    document = yamlfile.load(os.fspath(file))
    keys = convert(document, document.value, _File).keys
    for index, key in enumerate(keys):
        if key.kind not in KINDS or any(scope not in SCOPES for scope in key.scopes):
            raise document.error(("keys", index), f"kind is one of {', '.join(KINDS)}; scopes are among "
                                 f"{', '.join(SCOPES)}.")
    return keys


def save_keys(file: StrPath, keys: list[Key]) -> None:
    """Write keys.yaml, 0600, atomically."""
    body = yamlfile.dump({"keys": [_plain(key) for key in keys]})
    write_private(file, ("# Keys of this edge: hashes only. Made with `iop keys`.\n" + body).encode())


def _plain(key: Key) -> dict[str, object]:
    """As the file has it; limits only where there are some."""
    values = msgspec.structs.asdict(key) | {"limits": msgspec.to_builtins(key.limits)}
    if not values["limits"]:
        del values["limits"]
    return values


def add_key(file: StrPath, kind: str, owner: str, scopes: list[str] | None = None, *, not_after: int = 0,
            limits: KeyLimits = NO_LIMITS) -> tuple[Key, str]:
    """Make a key and write it into keys.yaml, beside those that are there; the key and its text."""
    key, text = make_key(kind, owner, scopes, not_after=not_after, limits=limits)
    save_keys(file, [*load_keys(file), key])
    return key, text


class Secret:
    """A secret that does not show itself: its str, repr and format are ``***``, and it cannot be pickled."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return "***"

    def __reduce__(self) -> str:
        raise TypeError("a secret is not pickled")
