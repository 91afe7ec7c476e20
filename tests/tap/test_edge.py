from __future__ import annotations

from pathlib import Path

import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.error import CannotListenError

from iop.config import load_edge
from iop.errors import ConfigError, IOPError
from iop.files import make_private
from iop.keys import load_keys
from iop.link.certs import make_ca, make_server_cert
from iop.tap.edge import EdgeProcess, Options, check, make_keyring
from iop.tap.process import why_not


def written(folder: Path, text: str) -> str:
    file = folder / "edge.yaml"
    file.write_text(text)
    return str(file)


def test_a_configuration_that_is_in_order_passes(tmp_path: Path) -> None:
    options = Options()
    options.parseOptions(["-c", written(tmp_path, "nodes: [{id: n1, adapters: {mock: {targets: {echo: {}}}}}]")])
    assert options.config.nodes[0].id == "n1" and options.warnings == []


@pytest.mark.parametrize("text, sentence", [
    ("listen: {http: {host: 0.0.0.0}}\n", "line 1: listen.http is open to other machines and has no TLS"),
    ("edge: {id: e}\nlisten:\n  link: {host: edge.example}\n", "line 3: listen.link is open to other machines"),
    ("edge: {idd: e}\n", "edge.idd is not known"),
    ("nodes:\n- id: n1\n  adapters:\n    mock:\n      targets:\n        echo: {ecoh: 1}\n", "line 6: "),
    ("edge: {id: e}\nhistory: mysql://u@h/d\n", "line 2: The history can be kept in sqlite or postgresql, not in mysql."),
    ("listen:\n  http: {tls: {cert: no.pem, key: no.key}}\n", "line 2: "),
])
def test_a_refused_configuration_is_one_sentence_and_exit_code_78(
        tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, sentence: str) -> None:
    with pytest.raises(SystemExit) as ended:
        Options().parseOptions(["-c", written(tmp_path, text)])
    told = capsys.readouterr().err
    assert ended.value.code == 78 and sentence in told and len(told.splitlines()) == 1


def test_other_machines_may_reach_it_over_tls(tmp_path: Path) -> None:
    (tmp_path / "tls").mkdir(mode=0o700)
    make_ca(str(tmp_path / "tls"))
    files = make_server_cert(str(tmp_path / "tls"), ["edge.example"])
    text = f"listen: {{link: {{host: 0.0.0.0, tls: {{cert: {files.cert}, key: {files.key}}}}}}}"
    assert check(load_edge(written(tmp_path, text))) == []
    with pytest.raises(ConfigError):
        check(load_edge(written(tmp_path, text.replace(files.cert, "missing.pem"))))


def test_an_adapter_that_is_not_installed_here_is_a_warning(tmp_path: Path) -> None:
    config = load_edge(written(tmp_path, "nodes: [{id: n1, adapters: {theirs: {targets: {x: {}}}}}]"))
    assert "theirs" in check(config)[0]


@pytest_twisted.ensureDeferred
async def test_an_edge_that_cannot_start_leaves_the_ready_file_of_the_one_that_runs(tmp_path: Path) -> None:
    ready = tmp_path / "state" / "edge.ready.json"
    config = load_edge(written(tmp_path, f"edge: {{state: state}}\nhistory: sqlite:///{tmp_path}/nowhere/history.db\n"))
    make_private(config.state)
    ready.write_text("{}")
    edge = EdgeProcess(config, reactor, [])
    with pytest.raises(IOPError):
        await edge._begin()
    await edge.stopService()
    assert ready.exists()


@pytest.mark.parametrize(("error", "sentence"), [
    (CannotListenError("127.0.0.1", 7410, OSError(98, "Address already in use")),
     "127.0.0.1:7410 is taken: another process listens there. End that one, or choose another port under `listen`."),
    (CannotListenError("192.0.2.1", 80, OSError(13, "Permission denied")),
     "Nobody can listen at 192.0.2.1:80 here: Permission denied."),
    (ConfigError("This is wrong.", hint="Do that."), "This is wrong. Do that."),
])
def test_why_a_process_does_not_start_is_a_sentence_with_what_to_do(error: Exception, sentence: str) -> None:
    assert why_not(error) == sentence


def test_the_first_start_makes_one_operator_key_and_keeps_only_its_hash(tmp_path: Path) -> None:
    config = load_edge(written(tmp_path, "edge: {state: state}"))
    make_private(config.state)
    ring = make_keyring(config)
    text = (tmp_path / "state" / "operator.key").read_text().strip()
    assert ring.verify("api", text).owner == "operator"
    assert (tmp_path / "state" / "operator.key").stat().st_mode & 0o777 == 0o600
    assert text.split("_", 2)[2] not in (tmp_path / "keys.yaml").read_text()
    make_keyring(config)
    assert len(load_keys(str(tmp_path / "keys.yaml"))) == 1
