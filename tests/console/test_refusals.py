"""What the console refuses, asked for by a real ssh client and by hand-made packets."""

from __future__ import annotations

import os
import signal
import stat
import struct
import subprocess

import pytest
import pytest_twisted
from twisted.conch.ssh import common, transport
from twisted.internet import reactor
from twisted.internet.defer import Deferred, succeed
from twisted.internet.endpoints import HostnameEndpoint, connectProtocol
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock

from iop.console import server as console_server
from iop.console.keys import host_key
from iop.errors import ConfigError

pytestmark = pytest.mark.e2e
ensure = pytest_twisted.ensureDeferred


@ensure
async def test_a_password_is_not_even_asked_for(console):
    code, out, err = await console.ssh("nodes", options=("-o", "PreferredAuthentications=password,keyboard-interactive"))
    assert code == 255
    assert "Permission denied (publickey)." in err


@ensure
async def test_a_key_that_is_not_authorized_is_refused(console):
    console.key("other", authorized=False)
    code, _, err = await console.ssh("nodes", key="other")
    assert code == 255 and "Permission denied (publickey)." in err


@ensure
async def test_a_key_taken_out_of_the_file_is_out_at_once(console):
    assert (await console.ssh("nodes"))[0] == 0
    (console.folder / "authorized_keys").write_text("")
    assert (await console.ssh("nodes"))[0] == 255


@ensure
async def test_a_file_of_keys_that_others_may_read_lets_nobody_in(console):
    os.chmod(console.folder / "authorized_keys", 0o644)
    code, _, err = await console.ssh("nodes")
    assert code == 255 and "Permission denied" in err


@ensure
@pytest.mark.parametrize("kind", ["rsa", "ecdsa"])
async def test_rsa_and_ecdsa_keys_can_log_in(console, kind):
    console.key("second", kind=kind)
    assert (await console.ssh("nodes", key="second"))[0] == 0


@ensure
async def test_rsa_with_sha1_is_refused(console):
    console.key("second", kind="rsa")
    code, _, _ = await console.ssh("nodes", key="second", options=("-o", "PubkeyAcceptedAlgorithms=ssh-rsa"))
    assert code == 255


@ensure
async def test_a_key_with_few_scopes_may_do_only_that(console):
    console.key("guest", options='iop-scopes="nodes:read"')
    assert (await console.ssh("nodes", key="guest"))[0] == 0
    code, out, err = await console.ssh("drain n1", key="guest")
    assert (code, out) == (4, "") and "nodes:write" in err
    assert console.edge.asked == []


@ensure
async def test_forwarding_a_port_there_is_refused_when_it_is_used(console, until):
    reached = []

    class Target(Protocol):
        def connectionMade(self):
            reached.append(self)

    port = reactor.listenTCP(0, Factory.forProtocol(Target), interface="127.0.0.1")
    # A port that was free a moment ago, for ssh to listen on.
    probe = reactor.listenTCP(0, Factory(), interface="127.0.0.1")
    number = probe.getHost().port
    await probe.stopListening()
    try:
        program = console.start(console.command(options=("-N", "-L", f"127.0.0.1:{number}:127.0.0.1:{port.getHost().port}")))
        closed = []

        class Client(Protocol):
            def connectionLost(self, reason):
                closed.append(reason)

        async def connected():
            try:
                return await connectProtocol(HostnameEndpoint(reactor, "127.0.0.1", number), Client())
            except Exception:
                return None

        await until(lambda: Deferred.fromCoroutine(connected()), "ssh to listen")
        await until(lambda: closed, "the forwarded connection to be closed")
        await until(lambda: b"administratively prohibited" in program.err, "ssh to say why")
        assert reached == []
    finally:
        await port.stopListening()


@ensure
async def test_forwarding_a_port_back_is_refused(console):
    code, _, err = await console.ssh(options=("-N", "-o", "ExitOnForwardFailure=yes", "-R", "0:127.0.0.1:9"))
    assert code == 255 and "remote port forwarding failed" in err


@pytest.fixture
def agent(console):
    """The socket of an ssh-agent of our own."""
    socket = str(console.folder / "agent")
    told = subprocess.run(["ssh-agent", "-s", "-a", socket], capture_output=True, text=True, check=True).stdout
    yield socket
    os.kill(int(told.split("SSH_AGENT_PID=")[1].split(";")[0]), signal.SIGTERM)


@ensure
async def test_the_agent_is_not_forwarded_and_no_environment_taken(console, agent):
    code, _, err = await console.ssh("nodes", options=("-v", "-o", f"IdentityAgent={agent}", "-A", "-o", "SetEnv=A=b"))
    assert code == 0
    assert "Requesting authentication agent forwarding" in err
    # The server opens no channel to the agent, which is all that forwarding is.
    assert "auth-agent@openssh.com" not in err.replace("auth-agent-req@openssh.com", "")


@ensure
async def test_sftp_is_not_there(console):
    code, _, err = await console.ssh("sftp", options=("-s",))
    assert code == 255 and "subsystem request failed" in err


@ensure
async def test_a_shell_without_a_terminal_ends_with_a_sentence(console):
    code, _, err = await console.ssh(options=("-T",))
    assert code == 2 and "no terminal" in err


@ensure
@pytest.mark.parametrize(("option", "value"), [
    ("Ciphers", "aes128-gcm@openssh.com,aes192-ctr"), ("MACs", "hmac-sha1,umac-64@openssh.com"),
    ("KexAlgorithms", "diffie-hellman-group14-sha1,ecdh-sha2-nistp384"), ("HostKeyAlgorithms", "rsa-sha2-256")])
async def test_other_algorithms_are_not_offered(console, option, value):
    code, _, err = await console.ssh("nodes", options=("-o", f"{option}={value}"))
    assert code == 255 and "Unable to negotiate" in err


@ensure
@pytest.mark.parametrize(("option", "value"), [
    ("Ciphers", "aes128-ctr"), ("MACs", "hmac-sha2-256"), ("KexAlgorithms", "ecdh-sha2-nistp256"),
    ("KexAlgorithms", "curve25519-sha256")])
async def test_each_offered_algorithm_works(console, option, value):
    assert (await console.ssh("nodes", options=("-o", f"{option}={value}")))[0] == 0


@ensure
async def test_compression_is_not_negotiated(console):
    _, _, err = await console.ssh("nodes", options=("-C", "-vv"))
    assert "compression: none" in err and "compression: zlib" not in err


@ensure
async def test_a_fifth_session_is_refused_and_a_place_is_free_again(console, until):
    await console.ssh("run", "tiny", "x", "--detach")
    run_id = console.edge.last.record.run_id
    programs = [console.start(console.command("tail", run_id)) for _ in range(4)]
    await until(lambda: len(console.server.sessions) == 4, "four sessions")
    code, _, err = await console.ssh("nodes")
    assert code == 255 and "4 sessions are open" in err
    programs[0].kill()
    await until(lambda: len(console.server.sessions) == 3, "one to end")
    assert (await console.ssh("nodes"))[0] == 0


class Stranger(transport.SSHClientTransport):
    """A client that exchanges keys and then sends what it likes."""

    def __init__(self) -> None:
        self.secure: Deferred[None] = Deferred()
        self.got: list[tuple[int, bytes]] = []
        self.lost = False

    def verifyHostKey(self, hostKey, fingerprint):
        return succeed(True)

    def connectionSecure(self):
        self.secure.callback(None)

    def dispatchMessage(self, number, payload):
        self.got.append((number, payload))
        if number < 50 and number != transport.MSG_SERVICE_ACCEPT:
            super().dispatchMessage(number, payload)

    def connectionLost(self, reason=None):
        self.lost = True
        super().connectionLost(reason)


OPEN_SESSION = common.NS(b"session") + struct.pack(">3L", 0, 65536, 32768)


@ensure
@pytest.mark.parametrize("authentication_begun", [False, True])
async def test_channels_and_requests_before_the_login_reach_nothing(console, until, authentication_begun):
    stranger = Stranger()
    await connectProtocol(HostnameEndpoint(reactor, "127.0.0.1", console.number), stranger)
    await stranger.secure
    if authentication_begun:
        stranger.sendPacket(transport.MSG_SERVICE_REQUEST, common.NS(b"ssh-userauth"))
    stranger.sendPacket(90, OPEN_SESSION)
    stranger.sendPacket(98, struct.pack(">L", 0) + common.NS(b"exec") + b"\1" + common.NS(b"drain n1"))
    stranger.sendPacket(80, common.NS(b"tcpip-forward") + b"\1" + common.NS(b"") + struct.pack(">L", 0))
    stranger.sendPacket(transport.MSG_SERVICE_REQUEST, common.NS(b"ssh-connection"))
    await until(lambda: stranger.lost or len([n for n, _ in stranger.got if n == transport.MSG_UNIMPLEMENTED]) >= 3,
                "refusals")
    assert not {number for number, _ in stranger.got} & {91, 99, 81}
    assert console.server.sessions == set()
    assert console.edge.asked == []
    stranger.transport.abortConnection()


BY_KEY = common.NS(b"me") + common.NS(b"ssh-connection") + common.NS(b"publickey")
BY_PASSWORD = common.NS(b"me") + common.NS(b"ssh-connection") + common.NS(b"password") + b"\0" + common.NS(b"x")
JUNK_KEY = b"\1" + common.NS(b"{a.__class__}\xff") + common.NS(b"junk") + common.NS(b"junk")


@ensure
@pytest.mark.parametrize("payload", [b"", b"\0\0\0\xff", BY_KEY, BY_KEY + JUNK_KEY])
async def test_a_malformed_login_harms_only_its_connection(console, until, payload):
    stranger = Stranger()
    await connectProtocol(HostnameEndpoint(reactor, "127.0.0.1", console.number), stranger)
    await stranger.secure
    stranger.sendPacket(transport.MSG_SERVICE_REQUEST, common.NS(b"ssh-userauth"))
    stranger.sendPacket(50, payload)
    await until(lambda: stranger.lost or any(number == 51 for number, _ in stranger.got), "an answer")
    assert (await console.ssh("nodes"))[0] == 0
    if not stranger.lost:
        stranger.transport.abortConnection()


@ensure
async def test_the_login_cannot_be_begun_anew_to_try_more_keys(console, until):
    stranger = Stranger()
    await connectProtocol(HostnameEndpoint(reactor, "127.0.0.1", console.number), stranger)
    await stranger.secure
    stranger.sendPacket(transport.MSG_SERVICE_REQUEST, common.NS(b"ssh-userauth"))
    stranger.sendPacket(transport.MSG_SERVICE_REQUEST, common.NS(b"ssh-userauth"))
    await until(lambda: stranger.lost, "the end")


@ensure
async def test_a_fourth_wrong_key_ends_the_connection(console, until):
    stranger = Stranger()
    await connectProtocol(HostnameEndpoint(reactor, "127.0.0.1", console.number), stranger)
    await stranger.secure
    stranger.sendPacket(transport.MSG_SERVICE_REQUEST, common.NS(b"ssh-userauth"))
    for _ in range(8):
        stranger.sendPacket(50, BY_PASSWORD)
    await until(lambda: stranger.lost, "the end")
    assert len([number for number, _ in stranger.got if number == 51]) == console_server.MOST_ATTEMPTS


@ensure
async def test_ctrl_c_in_a_one_shot_with_a_terminal_ends_it(console, until):
    program = console.start(console.command("run", "tiny", "x", options=("-tt",)))
    await until(lambda: console.edge.runs_by_id, "the run")
    console.edge.last.start()
    await until(lambda: b"started" in program.out, "the start")
    program.transport.write(b"\x03")
    assert await program.ended == 130
    assert len(console.edge.last.cancels) == 1


class Silent(Protocol):
    def connectionMade(self):
        self.lost = False

    def connectionLost(self, reason):
        self.lost = True


@ensure
async def test_who_does_not_log_in_is_cut_off_after_20_seconds(bare_console, until):
    bare_console.key("me")
    bare_console.listen()
    clock = bare_console.server.clock = Clock()
    silent = await connectProtocol(HostnameEndpoint(reactor, "127.0.0.1", bare_console.number), Silent())
    await until(lambda: bare_console.server.connections, "the connection")
    clock.advance(console_server.LOGIN_S - 1)
    assert len(bare_console.server.connections) == 1
    clock.advance(2)
    await until(lambda: silent.lost, "the end")


def test_the_host_key_is_made_once_and_for_its_owner_alone(tmp_path):
    file = str(tmp_path / "host")
    made = host_key(file)
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
    assert host_key(file) == made
    os.chmod(file, 0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        host_key(file)
    (tmp_path / "junk").write_text("no key")
    os.chmod(tmp_path / "junk", 0o600)
    with pytest.raises(ConfigError, match="no ed25519 key"):
        host_key(str(tmp_path / "junk"))
