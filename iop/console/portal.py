"""Login: by key only. There is no password checker, so that no password can ever be right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.conch.error import ValidPublicKey
from twisted.conch.interfaces import IConchUser
from twisted.conch.ssh.keys import BadKeyError, Key
from twisted.cred.checkers import ICredentialsChecker
from twisted.cred.credentials import ISSHPrivateKey
from twisted.cred.error import UnauthorizedLogin
from twisted.cred.portal import IRealm, Portal
from twisted.internet import defer
from twisted.logger import Logger
from zope.interface import implementer

from iop.console.keys import SIGNATURES, AuthorizedKey, read_authorized, right_signature
from iop.errors import ConfigError

log = Logger()


@implementer(ICredentialsChecker)
class KeyChecker:
    """Lets in who holds a key of the file, which is read at each login, so that a removed key is out at once."""

    credentialInterfaces = (ISSHPrivateKey,)

    def __init__(self, file: str) -> None:
        self._file = file

    def requestAvatarId(self, credentials: Any) -> defer.Deferred[AuthorizedKey]:
        return defer.execute(self._check, credentials)

    def _check(self, credentials: Any) -> AuthorizedKey:
        if credentials.algName not in SIGNATURES:
            raise UnauthorizedLogin("this kind of signature is not taken")
        entry = self._find(credentials.blob)
        if not credentials.signature:
            raise ValidPublicKey()
        if not right_signature(Key.fromString(credentials.blob), credentials.algName, credentials.signature,
                               credentials.sigData):
            raise UnauthorizedLogin("the signature is wrong")
        return entry

    def _find(self, blob: bytes) -> AuthorizedKey:
        try:
            wanted = Key.fromString(blob).blob()
            known = read_authorized(self._file)
        except BadKeyError:
            raise UnauthorizedLogin("this is no key") from None
        except (ConfigError, OSError) as error:
            log.error("nobody can log in to the console: {reason}", reason=str(error))
            raise UnauthorizedLogin("the authorized keys cannot be read") from None
        for entry in known:
            if entry.blob == wanted:
                return entry
        raise UnauthorizedLogin("this key is not authorized")


@implementer(IConchUser)
class User:
    """Someone who has logged in. The Connection asks nothing of it but who it is."""

    def __init__(self, key: AuthorizedKey) -> None:
        self.key = key
        self.conn: Any = None

    def lookupChannel(self, channelType: bytes, windowSize: int, maxPacket: int, data: bytes) -> None:
        raise NotImplementedError("channels are opened by iop.console.server.Connection")

    def lookupSubsystem(self, subsystem: bytes, data: bytes) -> None:
        return None

    def gotGlobalRequest(self, requestType: bytes, data: bytes) -> int:
        return 0


@implementer(IRealm)
class Realm:
    """Makes a User of an AuthorizedKey."""

    def requestAvatar(self, avatarId: AuthorizedKey, mind: object,
                      *interfaces: object) -> tuple[object, User, Callable[[], None]]:
        if IConchUser not in interfaces:
            raise NotImplementedError("only IConchUser is offered")
        log.info("{principal} has logged in to the console", principal=avatarId.principal)
        return IConchUser, User(avatarId), lambda: log.info("{principal} has left the console", principal=avatarId.principal)


def make_portal(file: str) -> Portal:
    """A portal with the one checker there is."""
    return Portal(Realm(), [KeyChecker(file)])
