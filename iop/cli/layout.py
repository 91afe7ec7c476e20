"""The state folder of `iop up`: which file stands where, and how it is filled.

::

    DIR/            0700
      up.json       what was asked last: ports, targets, number of nodes
      ready.json    0600, while it runs
      ssh_config    for `ssh -F DIR/ssh_config edge`, with console_key (an SSH key pair) and known_hosts (the edge's own key)
      edge/         edge.yaml and the edge's own state: keys.yaml, operator.key, history.db, authorized_keys, log
      node-1/ …     node.yaml, token, and the node's own state, log

edge.yaml and node.yaml are written again only when something else is asked than last time, so that edits live on.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from iop import yamlfile
from iop.cli.targets import Target, adapters, mock, policy
from iop.errors import ConfigError
from iop.files import make_private, write_private
from iop.keys import SCOPES, add_key

HOST = "127.0.0.1"


class Ports(msgspec.Struct, frozen=True, kw_only=True):
    """Chosen once and kept, so that an edge that is started again is found where it was."""

    http: int
    link: int
    console: int


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What a person asked of `iop up`. A port of 0 is any free one; no targets: those of last time."""

    ports: Ports
    targets: list[Target] = []
    nodes: int = 0                # 0: as last time, else 1


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """What was settled on; up.json."""

    ports: Ports
    targets: list[Target]
    nodes: int


class Layout:
    """The files of one state folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ready_file = folder / "ready.json"
        self.console_key = folder / "console_key"
        self.ssh_config = folder / "ssh_config"
        self.edge = folder / "edge"
        self._record = folder / "up.json"

    def node(self, number: int) -> Path:
        return self.folder / f"node-{number}"

    def create(self) -> None:
        """The folder, 0700. Raises ConfigError when it is open to others or cannot be made."""
        make_private(self.folder)
        make_private(self.edge)

    def settle(self, wish: Wish, tell: Callable[[str], None]) -> Settled:
        """Decide on ports, targets and nodes, and write what the processes need. Raises ConfigError."""
        last = self._last()
        settled = Settled(
            ports=_settle_ports(wish.ports, last.ports if last else None, tell),
            targets=wish.targets or (last.targets if last else []) or [mock()],
            nodes=wish.nodes or (last.nodes if last else 1))
        if not (settled == last and (self.edge / "edge.yaml").exists()):
            self._write_edge(settled)
            for number in range(1, settled.nodes + 1):
                self._write_node(number, settled)
            write_private(self._record, msgspec.json.format(msgspec.json.encode(settled)) + b"\n")
        self._make_keys(settled.nodes)
        self._make_console_key()
        self._write_ssh_config(settled.ports.console)
        return settled

    def api_key(self) -> str:
        return (self.edge / "operator.key").read_text().strip()

    def _last(self) -> Settled | None:
        try:
            return msgspec.json.decode(self._record.read_bytes(), type=Settled)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            raise ConfigError(f"{self._record} cannot be read: {error}.") from None

    def _write_edge(self, settled: Settled) -> None:
        nodes = [{"id": f"node-{number}", "adapters": adapters(settled.targets)} for number in range(1, settled.nodes + 1)]
        ports = settled.ports
        _write_yaml(self.edge / "edge.yaml", {
            "edge": {"id": "edge", "state": "."},
            "listen": {"http": {"host": HOST, "port": ports.http}, "link": {"host": HOST, "port": ports.link},
                       "console": {"host": HOST, "port": ports.console}},
            "nodes": nodes})

    def _write_node(self, number: int, settled: Settled) -> None:
        make_private(self.node(number))
        _write_yaml(self.node(number) / "node.yaml", {
            "node": {"id": f"node-{number}", "state": "."},
            "edge": {"host": HOST, "port": settled.ports.link, "plain": True, "token_file": "token"},
            "policy": policy(settled.targets)})

    def _make_keys(self, nodes: int) -> None:
        self._make_key(self.edge / "operator.key", "api", "operator", list(SCOPES))
        for number in range(1, nodes + 1):
            self._make_key(self.node(number) / "token", "node", f"node-{number}")

    def _make_key(self, place: Path, kind: str, owner: str, scopes: list[str] | None = None) -> None:
        if not place.exists():
            _, text = add_key(self.edge / "keys.yaml", kind, owner, scopes)
            write_private(place, text.encode() + b"\n")

    def _make_console_key(self) -> None:
        """A key pair for `ssh`, and the edge's list of who may enter; a list that exists is the person's own."""
        if not self.console_key.exists():
            private, public = make_ssh_key()
            write_private(f"{self.console_key}.pub", public)
            write_private(self.console_key, private)
        allowed = self.edge / "authorized_keys"
        if not allowed.exists():
            write_private(allowed, Path(f"{self.console_key}.pub").read_bytes())


    def _write_ssh_config(self, port: int) -> None:
        """With the edge's key in it, ssh need not ask a person whether that is the right edge."""
        host_key = self.edge / "console_host_key"
        if not host_key.exists():
            write_private(host_key, make_ssh_key()[0])
        known = serialization.load_ssh_private_key(host_key.read_bytes(), None).public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        write_private(self.folder / "known_hosts", f"[{HOST}]:{port} ".encode() + known + b"\n")
        lines = {"HostName": HOST, "Port": port, "User": "operator", "IdentityFile": _ssh_word(self.console_key),
                 "IdentitiesOnly": "yes", "UserKnownHostsFile": _ssh_word(self.folder / "known_hosts")}
        text = "# Made by `iop up` each time.\nHost edge\n" + "".join(f"    {key} {value}\n" for key, value in lines.items())
        write_private(self.ssh_config, text.encode())


def _ssh_word(path: Path) -> str:
    return '"' + str(path).replace("%", "%%") + '"'


def make_ssh_key() -> tuple[bytes, bytes]:
    """An ed25519 key pair as ssh reads it: the private file, and the public line."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH,
                                serialization.NoEncryption())
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private, public + b" operator\n"


def _settle_ports(asked: Ports, last: Ports | None, tell: Callable[[str], None]) -> Ports:
    chosen: dict[str, int] = {}
    for name in Ports.__struct_fields__:
        wanted, kept = getattr(asked, name), getattr(last, name) if last else 0
        if wanted and not _is_free(wanted):
            raise ConfigError(f"Port {wanted} of {HOST} is taken; choose another with --{name}-port, or 0 for any free one.")
        if not wanted and kept and not _is_free(kept):
            tell(f"port {kept} of last time is taken; choosing another for {name}")
            kept = 0
        chosen[name] = wanted or kept or _free_port(set(chosen.values()))
    if len(set(chosen.values())) < len(chosen):
        raise ConfigError("--http-port, --link-port and --console-port must differ.")
    return Ports(**chosen)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _free_port(taken: set[int]) -> int:
    while True:
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            port = probe.getsockname()[1]
        if port not in taken:
            return port


def _write_yaml(file: Path, value: dict[str, Any]) -> None:
    head = "# Made by `iop up`, and written again when it is asked for something else than last time.\n"
    write_private(file, (head + yamlfile.dump(value)).encode())
