"""Real TLS on loopback: who is trusted, which reason is told, and that a stranger never sees a byte of a token."""

from __future__ import annotations

import os
import socket
import ssl
import stat

import pytest
import pytest_twisted
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol, ServerFactory
from twisted.internet.threads import deferToThread
from twisted.protocols.tls import TLSMemoryBIOFactory

from iop.errors import ConfigError
from iop.link.certs import make_ca, make_server_cert
from iop.link.dial import LinkDialer
from iop.link.errors import LinkUntrusted
from iop.link.listen import LinkListener
from iop.link.peers import Peers
from iop.link.tls import client_options, pin_of, server_options
from iop.proto.link_pb2 import Hello
from iop.testing.links import OpenGreeter, Recorder

TOKEN = "iopn_TOKEN_THAT_NOBODY_MAY_SEE"


class Spy(Protocol):
    """A server that keeps each byte of application data it gets, below TLS or without it."""

    def connectionMade(self) -> None:
        self.factory.connections.append(self)

    def dataReceived(self, data: bytes) -> None:
        self.factory.got += data
        if self.factory.answer:
            self.transport.write(self.factory.answer)


class SpyFactory(ServerFactory):
    protocol = Spy
    noisy = False

    def __init__(self, answer: bytes = b"") -> None:
        self.got, self.answer, self.connections = bytearray(), answer, []


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tmp_path_factory.mktemp("certs"))


@pytest.fixture(scope="module")
def ca(folder):
    return make_ca(folder)


@pytest.fixture(scope="module")
def server(folder, ca):
    return make_server_cert(folder, ["edge.example", "127.0.0.1", "::1"])


class Side(Recorder):
    """A role whose link_up and link_down can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.up: Deferred[None] = Deferred()

    def link_up(self, link) -> None:
        super().link_up(link)
        if not self.up.called:
            self.up.callback(None)


class World:
    """A port, and a dialer whose first failure or success ends the wait."""

    def __init__(self, factory: Factory) -> None:
        self.port = reactor.listenTCP(0, factory, interface="127.0.0.1")
        self.role = Side()
        self.failed: Deferred = Deferred()
        self.dialer = LinkDialer(lambda: Hello(peer_id="node-1", token=TOKEN, protocol=1), self.role, reactor,
                                 on_failure=lambda error: self.failed.called or self.failed.callback(error))

    def dial(self, options) -> World:
        self.dialer.start(reactor, "127.0.0.1", self.port.getHost().port, options)
        return self

    async def failure(self):
        return await self.failed.addTimeout(10, reactor)

    async def close(self) -> None:
        await self.dialer.stop()
        await self.port.stopListening()


def tls(options, factory: Factory) -> Factory:
    return TLSMemoryBIOFactory(options, False, factory, clock=reactor)


async def refused_by_dialer(server_files, options) -> tuple[object, bytes]:
    spy = SpyFactory()
    world = World(tls(server_options(server_files.cert, server_files.key), spy)).dial(options)
    error = await world.failure()
    await world.close()
    return error, bytes(spy.got)


@pytest.mark.parametrize("trust", ["ca and address", "ca and name", "pin", "pin in capitals"])
@pytest_twisted.ensureDeferred
async def test_a_link_over_tls_that_is_trusted(ca, server, trust):
    edge = Side()
    listener = LinkListener("edge", OpenGreeter(edge), Peers(reactor), reactor)
    world = World(tls(server_options(server.cert, server.key), listener))
    world.dial({"ca and address": lambda: client_options("127.0.0.1", ca_file=ca.cert),
                "ca and name": lambda: client_options("edge.example", ca_file=ca.cert),
                "pin": lambda: client_options("whatever.example", pin=server.pin),
                "pin in capitals": lambda: client_options("x", pin="sha256:" + server.pin[7:].upper())}[trust]())
    await world.role.up.addTimeout(10, reactor)
    await edge.up.addTimeout(10, reactor)
    connection = world.role.link.transport.getHandle()
    assert connection.get_protocol_version_name() in ("TLSv1.2", "TLSv1.3")
    stopping = listener.stop()
    await world.close()
    await stopping.addTimeout(10, reactor)
    assert edge.kinds == ["link_up", "link_down"] and world.role.kinds == ["link_up", "link_down"]


@pytest_twisted.ensureDeferred
async def test_a_wrong_ca_is_refused_with_the_reason_and_sees_no_token(tmp_path, server):
    error, got = await refused_by_dialer(server, client_options("127.0.0.1", ca_file=make_ca(str(tmp_path)).cert))
    assert isinstance(error, LinkUntrusted)
    assert "CA" in error.message and "127.0.0.1" in error.message
    assert got == b""


@pytest_twisted.ensureDeferred
async def test_an_expired_certificate_is_refused_with_the_reason_and_sees_no_token(tmp_path, folder, ca):
    expired = make_server_cert(str(tmp_path), ["127.0.0.1"], days=-1, ca_folder=folder)
    error, got = await refused_by_dialer(expired, client_options("127.0.0.1", ca_file=ca.cert))
    assert isinstance(error, LinkUntrusted) and "has expired" in error.message
    assert got == b""


@pytest.mark.parametrize("name", ["other.example", "127.0.0.2"])
@pytest_twisted.ensureDeferred
async def test_a_wrong_name_is_refused_with_the_names_it_is_for(ca, server, name):
    error, got = await refused_by_dialer(server, client_options(name, ca_file=ca.cert))
    assert isinstance(error, LinkUntrusted)
    assert f"is not for {name}" in error.message and "edge.example" in error.message
    assert got == b""


@pytest_twisted.ensureDeferred
async def test_a_wrong_pin_is_refused_with_the_key_that_was_shown(server):
    error, got = await refused_by_dialer(server, client_options("127.0.0.1", pin="sha256:" + "0" * 64))
    assert isinstance(error, LinkUntrusted)
    assert "pinned" in error.message and server.pin in error.message
    assert got == b""


@pytest_twisted.ensureDeferred
async def test_the_systems_cas_do_not_know_a_ca_of_ones_own(server):
    error, got = await refused_by_dialer(server, client_options("127.0.0.1"))
    assert isinstance(error, LinkUntrusted) and got == b""


@pytest.mark.parametrize("answer", [b"\0\0\0\x04what", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-x\r\n"])
@pytest_twisted.ensureDeferred
async def test_a_peer_that_speaks_no_tls_is_told_as_such_and_sees_no_token(ca, answer):
    spy = SpyFactory(answer)
    world = World(spy).dial(client_options("127.0.0.1", ca_file=ca.cert))
    error = await world.failure()
    await world.close()
    assert isinstance(error, LinkUntrusted) and "does not speak TLS" in error.message
    assert TOKEN.encode() not in spy.got and bytes(spy.got[:2]) == b"\x16\x03"


@pytest_twisted.ensureDeferred
async def test_a_peer_that_closes_during_the_handshake_is_told(ca):
    class Closer(Spy):
        def dataReceived(self, data):
            self.transport.loseConnection()

    factory = SpyFactory()
    factory.protocol = Closer
    world = World(factory).dial(client_options("127.0.0.1", ca_file=ca.cert))
    error = await world.failure()
    await world.close()
    assert "TLS handshake" in error.message


@pytest_twisted.ensureDeferred
async def test_a_plain_listener_tells_a_tls_dialer_apart_and_counts_it(ca):
    listener = LinkListener("edge", OpenGreeter(Recorder()), Peers(reactor), reactor)
    world = World(listener).dial(client_options("127.0.0.1", ca_file=ca.cert))
    error = await world.failure()
    await world.close()
    assert "does not speak TLS" in error.message
    assert listener.protocol_errors["frame_too_large"] == 1


@pytest_twisted.ensureDeferred
async def test_a_plain_dialer_on_a_tls_port_does_not_get_in(server):
    listener = LinkListener("edge", OpenGreeter(Recorder()), Peers(reactor), reactor)
    world = World(tls(server_options(server.cert, server.key), listener)).dial(None)
    await world.failure()
    await world.close()
    assert world.role.told == [] and listener.stop().called
    assert dict(listener.protocol_errors) == {"tls_failed": 1}


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
@pytest_twisted.ensureDeferred
async def test_tls_1_1_is_not_spoken(server):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    assert server_options(server.cert, server.key).getContext() is not None
    world = World(tls(server_options(server.cert, server.key), SpyFactory()))
    port = world.port.getHost().port

    def attempt() -> str:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
        context.set_ciphers("ALL:@SECLEVEL=0")
        try:
            with socket.create_connection(("127.0.0.1", port)) as plain, context.wrap_socket(plain):
                return "spoken"
        except (ssl.SSLError, OSError):
            return "refused"

    assert await deferToThread(attempt) == "refused"
    await world.close()


@pytest.mark.parametrize("by", ["plain", "TLS"])
@pytest_twisted.ensureDeferred
async def test_both_ends_tell_the_kernel_to_watch_the_connection(server, by):
    listener = LinkListener("edge", OpenGreeter(Recorder()), peers := Peers(reactor), reactor)
    over_tls = by == "TLS"
    world = World(tls(server_options(server.cert, server.key), listener) if over_tls else listener)
    world.dial(client_options("x", pin=server.pin) if over_tls else None)
    await world.role.up.addTimeout(10, reactor)
    for link in (world.role.link, peers.get("node-1")):
        transport = link.transport.transport if over_tls else link.transport
        wire = transport.getHandle()
        assert wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert wire.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 15_000
    stopping = listener.stop()
    await world.close()
    await stopping


@pytest_twisted.ensureDeferred
async def test_a_dialer_comes_back_by_itself_to_a_name(server):
    class Returning(Side):
        def __init__(self) -> None:
            super().__init__()
            self.again: Deferred[None] = Deferred()

        def link_up(self, link) -> None:
            super().link_up(link)
            if self.kinds.count("link_up") == 2:
                self.again.callback(None)

    edge = Side()
    listener = LinkListener("edge", OpenGreeter(edge), peers := Peers(reactor), reactor)
    world = World(listener)
    world.dialer._handler = world.role = Returning()
    world.dialer.start(reactor, "localhost", world.port.getHost().port)
    await world.role.up.addTimeout(10, reactor)
    peers.get("node-1").close("restarting", "Come back.")
    await world.role.again.addTimeout(10, reactor)
    assert world.role.kinds == ["link_up", "link_down", "link_up"] and world.role.link.epoch == 2
    stopping = listener.stop()
    await world.close()
    await stopping


# --- files ------------------------------------------------------------------------------------------------------------


def test_certificates_are_ecdsa_p256_and_keys_are_private(ca, server):
    for files in (ca, server):
        assert stat.S_IMODE(os.stat(files.key).st_mode) == 0o600
        with open(files.cert, "rb") as stream:
            certificate = x509.load_pem_x509_certificate(stream.read())
        assert isinstance(certificate.public_key().curve, ec.SECP256R1)
        assert pin_of(certificate) == files.pin and files.pin.startswith("sha256:")


def test_a_ca_that_is_there_is_kept(folder, ca):
    assert make_ca(folder) == ca


def test_a_certificate_can_be_renewed_with_its_key(tmp_path):
    make_ca(str(tmp_path))
    first = make_server_cert(str(tmp_path), ["edge.example"])
    text = (tmp_path / "server.pem").read_text()
    again = make_server_cert(str(tmp_path), ["edge.example", "other.example"], keep_key=True)
    assert again == first and (tmp_path / "server.pem").read_text() != text
    assert make_server_cert(str(tmp_path), ["edge.example"]).pin != first.pin


def test_a_server_certificate_without_a_ca_says_what_is_missing(tmp_path):
    with pytest.raises(ConfigError, match="ca.pem"):
        make_server_cert(str(tmp_path), ["x"])


@pytest.mark.parametrize("pin", ["sha256:", "sha1:" + "0" * 40, "0" * 64, "sha256:" + "g" * 64])
def test_a_pin_that_is_none_is_a_config_error(pin):
    with pytest.raises(ConfigError, match="64 hex digits"):
        client_options("x", pin=pin)


def test_ca_files_that_cannot_be_used_are_config_errors(tmp_path, server):
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    for file in (str(empty), str(tmp_path / "missing.pem"), server.key):
        with pytest.raises(ConfigError):
            client_options("x", ca_file=file)


def test_a_name_that_is_none_is_a_config_error(ca):
    for name in ("", "a..b", "x" * 64 + ".example"):
        with pytest.raises(ConfigError):
            client_options(name, ca_file=ca.cert)


def test_server_files_that_do_not_belong_together_are_a_config_error(tmp_path, server, ca):
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    for cert, key in ((server.cert, ca.key), (str(empty), server.key), (server.cert, str(empty)),
                      (str(tmp_path / "no.pem"), server.key), (server.cert, server.cert)):
        with pytest.raises(ConfigError):
            server_options(cert, key)
