"""The commands as they are typed: help, errors and exit codes, and the keys."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from iop.cli.find import find_edge
from iop.cli.main import main
from iop.config import load_node
from iop.errors import InvalidRequest
from iop.keylimits import KeyLimits
from iop.keys import KeyRing, load_keys


@pytest.fixture
def iop(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("IOP_URL", raising=False)
    monkeypatch.setenv("IOP_API_KEY", "k")
    return lambda *words: CliRunner().invoke(main, words, catch_exceptions=False)


@pytest.fixture
def edge_folder(tmp_path):
    folder = tmp_path / "edge"
    folder.mkdir(mode=0o700)
    (folder / "edge.yaml").write_text("edge: {id: edge, state: .}\n")
    return str(folder)


def every_command(group=main, path=()):
    for name, command in group.commands.items():
        yield (*path, name)
        if hasattr(command, "commands"):
            yield from every_command(command, (*path, name))


@pytest.mark.parametrize("path", list(every_command()), ids=" ".join)
def test_every_command_has_help_with_examples(iop, path):
    result = iop(*path, "--help")
    assert result.exit_code == 0 and "Examples:" in result.output
    assert max(map(len, result.output.splitlines())) <= 80


@pytest.mark.parametrize("path", [(), ("keys",), ("tls",), ("node",)], ids=" ".join)
def test_what_a_command_is_for_fits_its_line_in_the_list(iop, path):
    assert "..." not in iop(*path, "--help").output.partition("Commands:")[2]


def test_without_an_edge_it_says_how_to_start_one(iop):
    result = iop("nodes")
    assert result.exit_code == 1 and "Start one with `iop up`" in result.output


def test_an_unknown_option_is_usage(iop):
    assert iop("nodes", "--colour").exit_code == 2


@pytest.mark.parametrize(("words", "told"), [
    ((), "The prompt is missing: put it in quotes, or give - for standard input."),
    (("hi", "there"), "2 words stand where one prompt belongs: put it in quotes"),
])
def test_a_prompt_is_one_argument(iop, words, told):
    result = iop("run", "-a", "cli", "-t", "hello", *words)
    assert result.exit_code == 2 and told in result.output


def test_wrong_usage_is_json_where_json_was_asked_for(iop, monkeypatch):
    words = ["runs", "--json", "--state-is", "gone"]
    monkeypatch.setattr("sys.argv", ["iop", *words])
    result = iop(*words)
    error = json.loads(result.stderr)["error"]
    assert (result.exit_code, result.stdout, error["code"]) == (2, "", "invalid_request")
    assert "'completed'" in error["message"] and error["hint"] == "See `main runs --help`."


def test_an_event_id_that_is_none_is_usage(iop, monkeypatch):
    monkeypatch.setenv("IOP_URL", "http://127.0.0.1:9")
    assert iop("tail", "abc", "--after", "x").exit_code == 2


def test_a_run_id_cannot_leave_its_path(iop, monkeypatch):
    monkeypatch.setenv("IOP_URL", "http://127.0.0.1:9")
    result = iop("show", "../nodes")
    assert result.exit_code == 2 and "not the id of a run" in result.output


def test_a_bad_address_is_usage(iop, monkeypatch):
    monkeypatch.setenv("IOP_URL", "127.0.0.1:7411")
    assert iop("nodes").exit_code == 2


def test_a_new_key_works_and_is_stored_as_a_hash(iop, edge_folder):
    made = json.loads(iop("keys", "new", "api", "ci", "--scope", "runs:read", "--state", edge_folder, "--json").output)
    keys = load_keys(f"{edge_folder}/keys.yaml")
    assert KeyRing(keys).verify("api", made["key"]).scopes == ["runs:read"]
    assert made["key"].split("_", 2)[2] not in open(f"{edge_folder}/keys.yaml").read()


def test_a_revoked_key_is_gone(iop, edge_folder):
    made = json.loads(iop("keys", "new", "node", "laptop", "--state", edge_folder, "--json").output)
    assert iop("keys", "revoke", made["keyid"], "--state", edge_folder).exit_code == 0
    assert load_keys(f"{edge_folder}/keys.yaml") == []
    assert iop("keys", "revoke", made["keyid"], "--state", edge_folder).exit_code == 3


def test_a_node_s_token_is_for_an_id_that_a_node_can_have(iop, edge_folder):
    result = iop("keys", "new", "node", "a b", "--state", edge_folder)
    assert result.exit_code == 2 and "letters, digits" in result.output


def test_the_keys_are_found_by_the_state_folder_and_where_edge_yaml_puts_them(iop, tmp_path):
    (tmp_path / "edge.yaml").write_text("edge: {state: var/state}\nkeys: secret.yaml\n")
    (tmp_path / "var").mkdir()
    assert iop("keys", "new", "api", "ci", "--state", str(tmp_path)).exit_code == 0
    assert [key.owner for key in load_keys(f"{tmp_path}/secret.yaml")] == ["ci"]
    (tmp_path / "edge.yaml").write_text("edge: {state: state}\n")
    assert iop("keys", "new", "api", "ci2", "--state", str(tmp_path / "state")).exit_code == 0
    assert [key.owner for key in load_keys(f"{tmp_path}/keys.yaml")] == ["ci2"]
    other = iop("keys", "list", "--state", str(tmp_path / "other"))
    assert other.exit_code == 2 and "is not the state folder of an edge" in other.output


def test_certificates_are_renewed_with_the_key_that_nodes_pin(iop, tmp_path):
    def init(*words):
        return iop("tls", "init", "--dir", str(tmp_path / "tls"), *words)

    first = json.loads(init("--json").output)
    assert json.loads(init("--name", "edge.example", "--json").output) == first
    assert "its key and pin are as before" in init().output
    told = init("--new-key").output
    assert first["pin"] not in told and "nodes with `pin` need the new one" in told


def test_a_state_folder_that_certificates_are_the_first_in_is_private(iop, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert f"cert: {tmp_path}/state/tls/server.pem\n" in iop("tls", "init", "--state", "state").output
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700


def test_the_script_for_a_node_keeps_a_node_yaml_that_is_there(iop, edge_folder, tmp_path):
    script = iop("node-config", "laptop", "--state", edge_folder).stdout
    home = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    first = subprocess.run(["sh"], input=script, text=True, check=True, env=home, capture_output=True).stdout
    (tmp_path / "iop-node" / "node.yaml").write_text("mine")
    told = subprocess.run(["sh"], input=script, text=True, check=True, env=home, capture_output=True).stdout
    assert "node.yaml.old" in told and "node.yaml.old" not in first
    assert (tmp_path / "iop-node" / "node.yaml.old").read_text() == "mine"
    assert load_node(str(tmp_path / "iop-node" / "node.yaml")).node.id == "laptop"


@pytest.mark.parametrize("host", ["0.0.0.0", "'::'"])
def test_a_node_is_not_sent_to_all_addresses_at_once(iop, tmp_path, host):
    made = json.loads(iop("tls", "init", "--dir", str(tmp_path / "tls"), "--name", "edge.example", "--json").output)
    tls = f"{{cert: {made['cert']}, key: {made['key']}}}"
    (tmp_path / "edge.yaml").write_text(f"listen: {{link: {{host: {host}, tls: {tls}}}}}\n")
    refused = iop("node-config", "laptop", "--config", str(tmp_path / "edge.yaml"))
    assert refused.exit_code == 2 and "--host" in refused.output and not (tmp_path / "keys.yaml").exists()
    assert "host: edge.example\n" in iop("node-config", "laptop", "--host", "edge.example", "--config",
                                         str(tmp_path / "edge.yaml")).stdout


def test_what_a_new_node_offers_is_asked_for_unless_edge_yaml_says_it(iop, edge_folder):
    told = iop("node-config", "laptop", "--state", edge_folder).stderr
    assert f"under `nodes` of {edge_folder}/edge.yaml" in told and "  - id: laptop\n" in told
    (Path(edge_folder) / "edge.yaml").write_text("edge: {state: .}\nnodes: [{id: laptop}]\n")
    assert iop("node-config", "laptop", "--state", edge_folder).stderr == ""
    assert iop("node-config", "a b", "--state", edge_folder).exit_code == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to be root")
def test_what_root_adds_stays_the_edge_s_own(iop, tmp_path):
    nobody = 65534
    state = tmp_path / "only-root-may-pass" / "state"
    state.mkdir(parents=True)
    state.chmod(0o700), state.parent.chmod(0o700)
    (state / "keys.yaml").touch(0o600)
    (state / "operator.key").write_text("k")
    (state / "operator.key").chmod(0o600)
    for path in (state, *state.iterdir()):
        os.chown(path, nobody, nobody)
    assert iop("keys", "new", "node", "laptop", "--state", str(state)).exit_code == 0
    assert (state / "keys.yaml").stat().st_uid == nobody and os.geteuid() == 0
    (state / "edge.ready.json").write_text('{"http": "127.0.0.1:7", "pid": 1}')
    assert find_edge(str(state)).url == "http://127.0.0.1:7"


def test_what_the_system_does_not_allow_is_a_sentence(iop, edge_folder):
    (tmp := Path(edge_folder) / "edge.yaml").write_text("edge: {state: .}\nkeys: nowhere/keys.yaml\n")
    result = iop("keys", "new", "api", "ci", "--state", str(tmp.parent))
    assert result.exit_code == 1 and result.output == f"iop: {edge_folder}/nowhere: No such file or directory.\n"


@pytest.mark.parametrize("state", [".", "state"])
def test_the_edge_that_runs_hears_of_a_change_wherever_its_state_is(iop, tmp_path, state):
    (tmp_path / "edge.yaml").write_text(f"edge: {{state: {state}}}\n")
    (tmp_path / state).mkdir(exist_ok=True)
    edge = subprocess.Popen(["sleep", "60"], executable=shutil.which("sleep"), process_group=0)
    other = subprocess.Popen(["iop-edge", "60"], executable=shutil.which("sleep"), process_group=0,
                             preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))     # nohup has it ignored
    try:
        (tmp_path / state / "edge.ready.json").write_text(json.dumps({"pid": edge.pid}))
        told = iop("keys", "new", "node", "laptop", "--state", str(tmp_path), "--json")
        assert json.loads(told.output)["in_force"] is False and edge.poll() is None     # another process has its pid now
        (tmp_path / state / "edge.ready.json").write_text(json.dumps({"pid": other.pid}))
        keyid = json.loads(told.output)["keyid"]
        assert iop("keys", "revoke", keyid, "--state", str(tmp_path)).output == f"{keyid} is revoked.\n"
        assert other.wait(10) == -signal.SIGHUP
        assert "SIGHUP" in iop("keys", "new", "node", "laptop", "--state", str(tmp_path)).output
    finally:
        edge.kill(), other.kill()
        edge.wait(), other.wait()


def test_the_limits_of_a_key_are_set_changed_and_lifted(iop, edge_folder):
    made = json.loads(iop("keys", "new", "api", "anna", "--requests-per-minute", "60", "--cost-per-day", "2.5", "--model",
                          "qwen*", "--max-priority", "0", "--state", edge_folder, "--json").output)
    key, = load_keys(f"{edge_folder}/keys.yaml")
    assert key.limits == KeyLimits(requests_per_minute=60, cost_per_day=2.5, models=["qwen*"], max_priority=0)
    assert "60 requests/min, $2.5/day, priority 0, only qwen*" in iop("keys", "list", "--state", edge_folder).output
    told = iop("keys", "set", made["keyid"], "--concurrency", "2", "--requests-per-minute", "0", "--any-model",
               "--any-priority", "--state", edge_folder, "--json")
    assert json.loads(told.output)["limits"] == {"concurrency": 2, "cost_per_day": 2.5}
    assert load_keys(f"{edge_folder}/keys.yaml")[0].limits == KeyLimits(concurrency=2, cost_per_day=2.5)
    lifted = iop("keys", "set", made["keyid"], "--concurrency", "0", "--cost-per-day", "0", "--state", edge_folder)
    assert "no limits" in lifted.output and "limits" not in open(f"{edge_folder}/keys.yaml").read()


def test_limits_are_of_api_keys_that_are_there(iop, edge_folder):
    made = json.loads(iop("keys", "new", "node", "laptop", "--state", edge_folder, "--json").output)
    assert iop("keys", "set", made["keyid"], "--concurrency", "2", "--state", edge_folder).exit_code == 2
    assert iop("keys", "set", "nothere", "--concurrency", "2", "--state", edge_folder).exit_code == 3
    assert iop("keys", "new", "node", "other", "--concurrency", "2", "--state", edge_folder).exit_code == 2
    assert iop("keys", "new", "api", "x", "--concurrency", "-1", "--state", edge_folder).exit_code == 2


def test_keys_are_listed_without_secrets(iop, edge_folder):
    made = json.loads(iop("keys", "new", "api", "ci", "--state", edge_folder, "--json").output)
    listed = iop("keys", "list", "--state", edge_folder).output
    assert made["keyid"] in listed and made["key"] not in listed


def test_scopes_are_listed_in_few_words(iop, edge_folder):
    iop("keys", "new", "api", "ci", "--state", edge_folder)
    iop("keys", "new", "api", "reader", "--scope", "runs:read", "--scope", "events:read", "--state", edge_folder)
    lines = iop("keys", "list", "--state", edge_folder).output.splitlines()
    assert lines[1].endswith("  all but admin") and lines[2].endswith("  runs:read,events:read")
    assert max(map(len, lines)) <= 80


def test_the_edge_is_found_by_what_iop_up_left(tmp_path):
    (tmp_path / "ready.json").write_text('{"http": "http://127.0.0.1:7", "api_key": "k"}')
    assert find_edge(str(tmp_path)).url == "http://127.0.0.1:7"


def test_the_edge_is_found_by_what_it_left_itself(tmp_path):
    (tmp_path / "edge.ready.json").write_text('{"http": "127.0.0.1:7", "pid": 1}')
    (tmp_path / "operator.key").write_text("k")
    (tmp_path / "operator.key").chmod(0o600)
    assert find_edge(str(tmp_path)).url == "http://127.0.0.1:7"


def test_the_environment_names_the_edge_before_the_default_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("IOP_URL", "http://127.0.0.1:8/")
    monkeypatch.setenv("IOP_API_KEY", "k")
    assert find_edge(None).url == "http://127.0.0.1:8"
    monkeypatch.delenv("IOP_API_KEY")
    with pytest.raises(InvalidRequest, match="IOP_API_KEY is not"):
        find_edge(None)
