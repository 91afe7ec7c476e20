"""A node on another address: a network namespace of its own, a CA of its own, and what is refused."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from iop.link import certs
from tests.e2e.up import IOP, eventually

NAME = f"iop{os.getpid()}"
EDGE, NODE = "10.213.77.1", "10.213.77.2"
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
EDGE_YAML = """\
edge: {state: state}
listen:
  http: {port: HTTP}
  link: {host: EDGE, port: LINK, tls: {cert: server.pem, key: server.key}}
nodes:
  - id: laptop
    adapters: {mock: {targets: {echo: {echo: true}}}}
"""
HAVE_IP = os.geteuid() == 0 and shutil.which("ip", path=PATH) is not None
pytestmark = pytest.mark.skipif(not HAVE_IP, reason="makes a network namespace")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, env=os.environ | {"PATH": PATH})


@pytest.fixture(scope="module")
def namespace():
    """Another address: NODE in a namespace, EDGE in ours, joined by a pair of interfaces."""
    ip("netns", "add", NAME)
    try:
        ip("link", "add", f"{NAME}a", "type", "veth", "peer", "name", f"{NAME}b", "netns", NAME)
        ip("addr", "add", f"{EDGE}/30", "dev", f"{NAME}a")
        ip("link", "set", f"{NAME}a", "up")
        ip("-n", NAME, "addr", "add", f"{NODE}/30", "dev", f"{NAME}b")
        ip("-n", NAME, "link", "set", f"{NAME}b", "up")
        yield NAME
    finally:
        ip("netns", "del", NAME)


def twistd(tap: str, file: Path, *prefix: str) -> subprocess.Popen:
    log = (file.parent / f"{file.stem}.log").open("w")
    argv = [*prefix, sys.executable, "-P", "-m", "iop.tap", "--nodaemon", "--pidfile=", tap, "-c", str(file)]
    return subprocess.Popen(argv, stdout=log, stderr=subprocess.STDOUT, env=os.environ | {"PATH": PATH})


class Place:
    """An edge that listens for links with TLS on EDGE, and the files of a node."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.chmod(0o700)
        self.ports = [free_port() for _ in range(2)]
        certs.make_ca(str(folder))
        self.cert = certs.make_server_cert(str(folder), [EDGE])
        text = EDGE_YAML.replace("EDGE", EDGE).replace("LINK", str(self.ports[0])).replace("HTTP", str(self.ports[1]))
        (folder / "edge.yaml").write_text(text)
        token = subprocess.run([IOP, "keys", "new", "node", "laptop", "--state", str(folder)], check=True,
                               capture_output=True, text=True).stdout
        self.token = token.strip()
        (folder / "token").write_text(token)
        (folder / "token").chmod(0o600)
        self.running: list[subprocess.Popen] = []

    def edge(self) -> None:
        self.running.append(twistd("iop-edge", self.folder / "edge.yaml"))
        eventually(lambda: (self.folder / "state" / "edge.ready.json").exists(), "the edge listens")

    def node(self, trust: str, port: int | None = None) -> Path:
        """Start the node in the namespace; returns its log."""
        name = f"node{len(self.running)}"
        (self.folder / f"{name}.yaml").write_text(
            f"node: {{id: laptop, state: {name}}}\nedge: {{host: {EDGE}, port: {port or self.ports[0]}, {trust}}}\n")
        self.running.append(twistd("iop-node", self.folder / f"{name}.yaml", "ip", "netns", "exec", NAME))
        return self.folder / f"{name}.log"

    def end_node(self) -> None:
        node = self.running.pop()
        node.send_signal(signal.SIGTERM)
        node.wait(40)

    def nodes_up(self) -> bool:
        told = subprocess.run([IOP, "--state", str(self.folder / "state"), "nodes"], capture_output=True, text=True)
        return " up " in told.stdout

    def stop(self) -> None:
        for process in reversed(self.running):
            process.send_signal(signal.SIGTERM)
            process.wait(40)


@pytest.fixture
def place(namespace, tmp_path):
    place = Place(tmp_path)
    yield place
    place.stop()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]


@pytest.mark.parametrize("by", ["ca", "pin"])
def test_a_node_joins_from_another_address(place, by):
    place.edge()
    place.node({"ca": "ca: ca.pem", "pin": f"pin: {place.cert.pin}"}[by])
    eventually(place.nodes_up, "the node is up")
    told = subprocess.run([IOP, "--state", str(place.folder / "state"), "run", "-a", "mock", "-t", "echo", "far"],
                          capture_output=True, text=True)
    assert told.stdout.strip() == "far"


def test_a_wrong_ca_is_refused_with_the_reason(place, tmp_path):
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    certs.make_ca(str(other))
    place.edge()
    log = place.node("ca: other/ca.pem")
    eventually(lambda: "CA" in log.read_text(), "the node tells why")
    assert not place.nodes_up() and place.token not in log.read_text()


def test_a_wrong_pin_is_refused_with_the_reason(place):
    place.edge()
    log = place.node("pin: sha256:" + "0" * 64)
    eventually(lambda: "pin" in log.read_text().lower(), "the node tells why")
    assert not place.nodes_up()


def test_an_expired_certificate_is_refused_with_the_reason(place):
    certs.make_server_cert(str(place.folder), [EDGE], days=-1)
    place.edge()
    log = place.node("ca: ca.pem")
    eventually(lambda: "expired" in log.read_text(), "the node tells why")
    assert not place.nodes_up()


def test_plain_tcp_off_loopback_is_refused_before_any_byte(place):
    received: list[bytes] = []
    with socket.create_server((EDGE, 0)) as listener:
        listener.settimeout(0.2)
        log = place.node("plain: true", listener.getsockname()[1])
        eventually(lambda: place.running[-1].poll() is not None, "the node gives up")
        with pytest.raises(TimeoutError):
            received.append(listener.accept()[0].recv(100))
    assert place.running[-1].returncode == 78 and "loopback" in log.read_text() and received == []


@pytest.mark.parametrize("trust", ["ca: ca.pem", "pin: sha256:" + "1" * 64])
def test_a_listener_without_tls_never_sees_the_token(place, trust):
    seen = bytearray()

    def listen(listener: socket.socket) -> None:
        wire = listener.accept()[0]
        wire.settimeout(3)
        try:
            while data := wire.recv(4096):
                seen.extend(data)
        except TimeoutError:
            pass
        wire.close()

    with socket.create_server((EDGE, 0)) as listener:
        thread = threading.Thread(target=listen, args=(listener,))
        thread.start()
        place.node(trust, listener.getsockname()[1])
        thread.join(30)
    assert seen[:2] == b"\x16\x03", "a TLS greeting came"
    assert place.token.encode() not in seen and b"laptop" not in seen


def test_an_edge_does_not_listen_off_loopback_without_tls(place):
    (place.folder / "open.yaml").write_text(f"listen: {{link: {{host: {EDGE}, port: {place.ports[0]}}}}}\n")
    process = twistd("iop-edge", place.folder / "open.yaml")
    assert process.wait(40) == 78
    assert "TLS" in (place.folder / "open.log").read_text()
