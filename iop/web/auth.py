"""Who asks: an API key from `Authorization: Bearer` or `x-api-key`, and the scopes it carries."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from iop.errors import AuthFailed, Forbidden
from iop.headers import Headers
from iop.keys import KeyRing

ADMIN = "admin"


class Principal(msgspec.Struct, frozen=True):
    """The owner of the key that a request carries."""

    name: str
    keyid: str
    scopes: frozenset[str]

    def may(self, scope: str) -> bool:
        return scope in self.scopes or ADMIN in self.scopes

    def require(self, scope: str) -> None:
        if not self.may(scope):
            raise Forbidden(f"This key does not carry the scope {scope}.")


NOBODY = Principal("", "", frozenset())


def authenticate(headers: Headers, keyring_of: Callable[[], KeyRing]) -> Principal:
    """The principal of a request. Raises AuthFailed: in one way, whatever is wrong with the key."""
    text = _key_text(headers)
    if text is None:
        raise AuthFailed("The request carries no API key.",
                         hint="Send it as `Authorization: Bearer KEY` or `x-api-key: KEY`.")
    key = keyring_of().verify("api", text)
    return Principal(key.owner, key.keyid, frozenset(key.scopes))


def _key_text(headers: Headers) -> str | None:
    """The key's text; None when there is none. More than one is ambiguous, and no key."""
    given = []
    for value in headers.getRawHeaders(b"authorization") or ():
        scheme, _, rest = value.partition(b" ")
        if scheme.lower() == b"bearer":
            given.append(rest.strip())
    given.extend(headers.getRawHeaders(b"x-api-key") or ())
    if not given or any(other != given[0] for other in given):
        return None
    return given[0].decode("utf-8", "surrogateescape")
