"""The state folder of `iop up`."""

import os
import shutil
import socket
import stat
import subprocess
from pathlib import Path

import pytest

from iop import config
from iop.cli import targets
from iop.cli.layout import Layout, Ports, Wish
from iop.cli.up import shown_path
from iop.errors import ConfigError
from iop.keys import KeyRing, load_keys

ANY = Ports(http=0, link=0, console=0)


@pytest.fixture
def layout(tmp_path):
    layout = Layout(tmp_path / "state")
    layout.create()
    return layout


def settle(layout, **wish):
    told = []
    return layout.settle(Wish(**({"ports": ANY} | wish)), told.append), told


def test_the_folder_and_its_secrets_are_private(layout):
    settle(layout)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in layout.folder.rglob("*")}
    assert stat.S_IMODE(layout.folder.stat().st_mode) == 0o700
    assert all(mode & 0o077 == 0 for mode in modes.values()), modes


def test_a_folder_open_to_others_is_refused(tmp_path):
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(ConfigError, match="chmod 700"):
        Layout(tmp_path / "open").create()


def test_both_files_are_what_the_processes_read(layout):
    settled, _ = settle(layout, targets=[targets.program("hello=echo {prompt}")], nodes=2)
    edge = config.load_edge(str(layout.edge / "edge.yaml"))
    node = config.load_node(str(layout.node(2) / "node.yaml"))
    assert [one.id for one in edge.nodes] == ["node-1", "node-2"]
    assert edge.nodes[0].adapters[0].targets[0].aliases == ["hello"]
    assert (node.node.id, node.edge.port) == ("node-2", settled.ports.link)
    assert edge.listen.http.port == settled.ports.http


def test_the_keys_made_are_known_to_the_edge(layout):
    settle(layout)
    ring = KeyRing(load_keys(str(layout.edge / "keys.yaml")))
    assert ring.verify("api", layout.api_key()).owner == "operator"
    assert ring.verify("node", (layout.node(1) / "token").read_text().strip()).owner == "node-1"


def test_a_folder_that_exists_is_continued(layout):
    first, _ = settle(layout, targets=[targets.program("hello=echo {prompt}")])
    key = layout.api_key()
    (layout.edge / "edge.yaml").write_text((layout.edge / "edge.yaml").read_text() + "# mine\n")
    again, _ = settle(layout)
    assert again == first and layout.api_key() == key
    assert "# mine" in (layout.edge / "edge.yaml").read_text()


def test_other_targets_replace_those_of_last_time_and_the_ports_stay(layout):
    first, _ = settle(layout, targets=[targets.program("hello=echo {prompt}")])
    again, _ = settle(layout, targets=[targets.program("bye=echo {prompt}")])
    assert again.ports == first.ports
    assert [target.name for target in again.targets] == ["bye"]
    assert "bye" in (layout.edge / "edge.yaml").read_text()


def test_without_any_target_a_mock_is_offered(layout):
    settled, _ = settle(layout)
    assert [(target.adapter, target.name) for target in settled.targets] == [("mock", "echo")]


def test_a_port_that_is_taken_is_one_sentence(layout):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"Port {port} .* is taken; choose another with --http-port"):
            settle(layout, ports=Ports(http=port, link=0, console=0))


def test_a_kept_port_that_is_taken_is_chosen_anew(layout):
    first, _ = settle(layout)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", first.ports.http))
        taken.listen()
        again, told = settle(layout)
    assert again.ports.http != first.ports.http and "taken" in told[0]


def test_one_port_for_two_faces_is_refused(layout):
    with pytest.raises(ConfigError, match="must differ"):
        settle(layout, ports=Ports(http=18999, link=18999, console=0))


def test_the_console_key_is_a_pair_that_the_edge_allows(layout):
    settle(layout)
    public = (layout.folder / "console_key.pub").read_text()
    assert public.startswith("ssh-ed25519 ") and (layout.edge / "authorized_keys").read_text() == public
    assert "OPENSSH PRIVATE KEY" in layout.console_key.read_text()
    assert not os.access(layout.console_key, os.X_OK)


@pytest.mark.skipif(shutil.which("ssh") is None and not os.environ.get("IOP_REQUIRE_TOOLS"), reason="needs ssh")
def test_ssh_is_told_the_edge_s_key_and_where_it_listens(layout):
    settled, _ = settle(layout)
    kept = (layout.edge / "console_host_key").read_text()
    asked = subprocess.run(["ssh", "-F", layout.ssh_config, "-G", "edge"], capture_output=True, text=True, check=True).stdout
    assert f"port {settled.ports.console}\n" in asked and f"identityfile {layout.console_key}\n" in asked
    known = (layout.folder / "known_hosts").read_text()
    assert known.startswith(f"[127.0.0.1]:{settled.ports.console} ssh-ed25519 ")
    settle(layout)
    assert (layout.edge / "console_host_key").read_text() == kept and (layout.folder / "known_hosts").read_text() == known


def test_a_path_is_shown_as_it_is_typed(monkeypatch):
    monkeypatch.setenv("HOME", "/users/ann")
    assert shown_path(Path("/users/ann/.local/state/iop")) == "~/.local/state/iop"
    assert shown_path(Path("/srv/iop")) == "/srv/iop" and shown_path(Path("/users/ann/my edge")) == "'/users/ann/my edge'"
