"""The SSH side of the console: what algorithms, how long, how many, and nothing but sessions.

::

    connect → version, key exchange → publickey login (20 s in all) → session channels → shell or one command each
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from typing import Any

from twisted.conch.ssh import common, connection, factory, transport, userauth
from twisted.conch.ssh.connection import (
    MSG_CHANNEL_OPEN_FAILURE,
    OPEN_ADMINISTRATIVELY_PROHIBITED,
    OPEN_RESOURCE_SHORTAGE,
)
from twisted.conch.ssh.transport import DISCONNECT_BY_APPLICATION
from twisted.cred.error import UnauthorizedLogin
from twisted.internet import defer
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from iop.commands import Caller, CommandTable
from iop.config import ConsoleListen
from iop.console.channel import SessionChannel
from iop.console.keys import SIGNATURES, AuthorizedKey, host_key, read_authorized
from iop.console.portal import make_portal
from iop.console.python import Python
from iop.errors import ConfigError
from iop.proto import run_pb2

log = Logger()

LOGIN_S = 20                # from connected to logged in
MOST_ATTEMPTS = 3           # failed logins of one connection
MOST_SESSIONS = 4           # shells and commands at once
MOST_CONNECTIONS = 32       # at once, logged in or not
SMALLEST_PACKET = 256       # bytes; a peer that wants smaller ones wants to keep us busy
PROBE_AFTER_S = 60          # of silence: TCP asks whether the peer is still there, and gives up after about a minute


class Transport(transport.SSHServerTransport):
    """One connection, with a deadline to log in and few, good algorithms."""

    ourVersionString = b"SSH-2.0-IOP"
    supportedKeyExchanges = [b"curve25519-sha256", b"curve25519-sha256@libssh.org", b"ecdh-sha2-nistp256"]
    supportedCiphers = [b"aes256-ctr", b"aes128-ctr"]
    supportedMACs = [b"hmac-sha2-512", b"hmac-sha2-256"]
    supportedCompressions = [b"none"]

    factory: ConsoleServer
    _deadline: IDelayedCall | None = None

    def connectionMade(self) -> None:
        self.factory.connections.add(self)
        self._deadline = self.factory.clock.callLater(LOGIN_S, self._too_late)
        _probe(self.transport)
        super().connectionMade()

    def connectionLost(self, reason: Failure | None = None) -> None:
        self._cancel_deadline()
        self.factory.connections.discard(self)
        super().connectionLost(reason)

    def dataReceived(self, data: bytes) -> None:
        try:
            super().dataReceived(data)
        except Exception:  # a packet that breaks conch's parsers must end this connection, whatever it raises
            log.failure("a console connection from {peer} broke the rules of SSH", peer=self.transport.getPeer())
            self.transport.abortConnection()

    def sendExtInfo(self, extensions: list[tuple[bytes, bytes]]) -> None:
        # conch offers the host key's algorithms for users' keys as well; users may have others (RFC 8308, 3.1).
        super().sendExtInfo([(b"server-sig-algs", b",".join(SIGNATURES))])

    def setService(self, service: Any) -> None:
        if service.name == Connection.name:
            self._cancel_deadline()
        elif self.service is not None:
            # Beginning the login anew would count its failed attempts from 0 again.
            self.sendDisconnect(DISCONNECT_BY_APPLICATION, b"one login is enough")
            self.transport.abortConnection()
            return
        super().setService(service)

    def _too_late(self) -> None:
        self._deadline = None
        self.sendDisconnect(DISCONNECT_BY_APPLICATION, b"the login took too long")
        self.transport.abortConnection()

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class UserAuth(userauth.SSHUserAuthServer):
    """Login with a key."""

    loginTimeout = LOGIN_S
    attemptsBeforeDisconnect = MOST_ATTEMPTS

    def serviceStarted(self) -> None:
        self.clock = self.transport.factory.clock
        super().serviceStarted()

    def auth_publickey(self, packet: bytes) -> defer.Deferred[Any]:
        # conch puts the algorithm's name into a log *format* when it does not know the key: only known names get there.
        if common.getNS(packet[1:])[0] not in SIGNATURES:
            return defer.fail(UnauthorizedLogin("this kind of key is not taken"))
        return super().auth_publickey(packet)


class Connection(connection.SSHConnection):
    """What is allowed after login: session channels, a few, and no forwarding of anything."""

    def ssh_CHANNEL_OPEN(self, packet: bytes) -> None:
        kind, rest = common.getNS(packet)
        sender, _, largest = struct.unpack(">3L", rest[:12])
        server: ConsoleServer = self.transport.factory
        if kind != b"session" or largest < SMALLEST_PACKET:
            self._refuse(sender, OPEN_ADMINISTRATIVELY_PROHIBITED, b"only sessions are allowed here")
            log.warn("{principal} asked for a channel that is not allowed: {kind}", kind=kind,
                     principal=self.transport.avatar.key.principal)
        elif len(server.sessions) >= MOST_SESSIONS:
            self._refuse(sender, OPEN_RESOURCE_SHORTAGE, b"%d sessions are open already" % MOST_SESSIONS)
        else:
            super().ssh_CHANNEL_OPEN(packet)

    def _refuse(self, sender: int, code: int, reason: bytes) -> None:
        self.transport.sendPacket(MSG_CHANNEL_OPEN_FAILURE,
                                  struct.pack(">2L", sender, code) + common.NS(reason) + common.NS(b""))

    def getChannel(self, channelType: bytes, windowSize: int, maxPacket: int, data: bytes) -> SessionChannel:
        channel = SessionChannel(self.transport.factory, self.transport.avatar.key, remoteWindow=windowSize,
                                 remoteMaxPacket=maxPacket, conn=self, avatar=self.transport.avatar)
        self.transport.factory.sessions.add(channel)
        return channel

    def channelClosed(self, channel: SessionChannel) -> None:
        self.transport.factory.sessions.discard(channel)
        super().channelClosed(channel)

    def gotGlobalRequest(self, requestType: bytes, data: bytes) -> int:
        return 0


class ConsoleServer(factory.SSHFactory):
    """The factory to listen with.

    `table`: the role's commands. `context_for`: makes their context of an iop.commands.Caller. `paths`: makes an absolute
    path of a name in `listen`. `audit(source, action, detail)`: a Deferred that fires once it is written; without it, or
    without `manhole_namespace`, there is no /python. `name`: what the prompt says.
    """

    protocol = Transport
    services = {b"ssh-userauth": UserAuth, b"ssh-connection": Connection}
    noisy = False

    def __init__(self, table: CommandTable, context_for: Callable[[Caller], object], listen: ConsoleListen,
                 paths: Callable[[str], str], clock: IReactorTime, manhole_namespace: dict[str, object] | None = None,
                 audit: Callable[..., defer.Deferred[Any]] | None = None, name: str = "iop") -> None:
        self.table, self.context_for, self.clock, self.name = table, context_for, clock, name
        self.connections: set[Transport] = set()
        self.sessions: set[SessionChannel] = set()
        self._listen, self._paths = listen, paths
        self._namespace = manhole_namespace if listen.manhole else None
        self._audit = audit
        self.portal = make_portal(paths(listen.authorized_keys))

    def startFactory(self) -> None:
        """Raises ConfigError when a file of keys is not what it must be."""
        key = host_key(self._paths(self._listen.host_key))
        self.publicKeys, self.privateKeys, self.primes = {key.sshType(): key.public()}, {key.sshType(): key}, None
        file = self._paths(self._listen.authorized_keys)
        if not read_authorized(file):
            log.warn("nobody can log in to the console: there is no key in {file}", file=file)

    def buildProtocol(self, addr: object) -> Transport | None:
        if len(self.connections) >= MOST_CONNECTIONS:
            log.warn("a console connection from {peer} was refused: there are {count} already", peer=addr,
                     count=MOST_CONNECTIONS)
            return None
        protocol = super().buildProtocol(addr)
        protocol.supportedKeyExchanges = list(Transport.supportedKeyExchanges)
        return protocol

    def python_for(self, key: AuthorizedKey) -> Callable[..., Python] | str:
        """What makes a Python for this key; or why there is none."""
        if self._namespace is None or self._audit is None:
            return "/python is off; `manhole: true` under listen.console turns it on."
        try:
            allowed = any(entry.blob == key.blob for entry in read_authorized(self._paths(self._listen.manhole_keys)))
        except (ConfigError, OSError) as error:
            return str(error)
        if not allowed:
            return "This key is not among the manhole_keys."
        namespace, audit = self._namespace, self._audit

        def make(source: run_pb2.Source, channel: SessionChannel, left: Callable[[], None]) -> Python:
            return Python(namespace, lambda line: audit(source, "python", {"line": line}), channel, left)
        return make

    def stop(self) -> None:
        """End all sessions; the port is closed by whoever opened it."""
        for one in list(self.connections):
            one.sendDisconnect(DISCONNECT_BY_APPLICATION, b"the console is shutting down")
            one.transport.abortConnection()


def _probe(tcp: Any) -> None:
    """Have TCP notice a peer that has vanished, since its sessions count (twisted-hazards: half-open sockets)."""
    if not hasattr(tcp, "setTcpKeepAlive"):
        return
    tcp.setTcpKeepAlive(True)
    handle = tcp.getHandle()
    for name, value in (("TCP_KEEPIDLE", PROBE_AFTER_S), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            handle.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
