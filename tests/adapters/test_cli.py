"""The cli adapter: how a prompt reaches a program, what may not, and how an ending is told."""

from __future__ import annotations

import json
from typing import Any

import pytest
from twisted.internet.task import Clock

from iop.adapters import cli
from iop.adapters.place import Place
from iop.errors import Cancelled, ConfigError, InvalidRequest
from iop.proto.run_pb2 import CHANNEL_STDERR, CHANNEL_STDOUT
from tests.adapters.kit import RUN_ID, FakeSpawner, Started, Tools, target


def start(argv: list[str], *, settings: dict[str, Any] | None = None, **request: Any) -> Started:
    tools = Tools(Clock(), FakeSpawner())
    run = Started(cli.factory, tools, target("t", argv=argv, **(settings or {})), **request)
    run.tools = tools  # type: ignore[attr-defined]
    return run


def spawned(run: Any) -> Any:
    return run.tools.spawner.programs[-1].request


def refusal(run: Started) -> str:
    assert not run.tools.spawner.programs  # type: ignore[attr-defined]
    kind, outcome = run.ending  # type: ignore[misc]
    assert kind == "failed" and not run.sink.events
    return f"{outcome.code}: {outcome.message}"


def test_placeholders_become_whole_elements_and_meet_no_shell() -> None:
    run = start(["/bin/agent", "-p", "--", "{prompt}", "{workdir}", "{session}"], prompt="a; rm -rf $HOME `x` 'y'\n",
                session_id="s1")
    assert spawned(run).argv == ("/bin/agent", "-p", "--", "a; rm -rf $HOME `x` 'y'\n", f"/var/lib/iop/runs/{RUN_ID}", "s1")
    assert spawned(run).stdin is None and spawned(run).cwd == f"/var/lib/iop/runs/{RUN_ID}"


def test_a_prompt_that_holds_a_placeholder_is_not_filled_again() -> None:
    assert spawned(start(["/bin/agent", "{prompt}"], prompt="{workdir}")).argv == ("/bin/agent", "{workdir}")


def test_without_a_place_in_argv_the_prompt_goes_by_standard_input() -> None:
    run = start(["/bin/agent"], prompt="-x\x00é")
    assert spawned(run).stdin == "-x\x00é".encode()


def test_a_bare_name_is_looked_up_on_the_nodes_path() -> None:
    assert spawned(start(["env"], prompt="x")).argv[0].endswith("/bin/env")
    assert "adapter_error" in refusal(start(["no-such-program-here"], prompt="x"))


def test_the_environment_is_the_nodes_the_profiles_and_the_marker() -> None:
    run = start(["/bin/agent"], settings={"env": {"LANG": "de", "KEY": "v"}}, prompt="x")
    assert spawned(run).env == {"PATH": "/usr/bin:/bin", "HOME": "/home/iop", "LANG": "de", "KEY": "v", "IOP_MARK": "x"}


def test_a_prompt_that_could_be_an_option_is_refused() -> None:
    assert "invalid_request" in refusal(start(["/bin/agent", "{prompt}"], prompt="--yolo"))
    assert "--" in refusal(start(["/bin/agent", "-p", "{prompt}"], prompt="-x"))
    assert spawned(start(["/bin/agent", "--", "{prompt}"], prompt="-x")).argv[-1] == "-x"
    assert "session" in refusal(start(["/bin/agent", "{session}"], prompt="x", session_id="-x"))


def test_nul_and_size_are_refused() -> None:
    assert "NUL" in refusal(start(["/bin/agent", "{prompt}"], prompt="a\x00b"))
    assert "32768" in refusal(start(["/bin/agent", "{prompt}"], prompt="x" * 32_769))
    assert len(spawned(start(["/bin/agent"], prompt="x" * 200_000)).stdin) == 200_000
    assert "131072" in refusal(start(["/bin/agent", "y" * 120_000, "{prompt}"], prompt="x" * 20_000))


def test_a_session_is_needed_where_argv_says_so() -> None:
    assert "session_id" in refusal(start(["/bin/agent", "{session}"], prompt="x"))


@pytest.mark.parametrize(("request_", "prompt"), [
    ({"messages": b'[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]'}, "c"),
    ({"messages": b'[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]'}, "a\nb"),
    ({"body": b'{"messages":[{"role":"user","content":"x"}],"stream":true}', "api": "chat/completions"}, "x"),
    ({"body": b'{"input":"y"}', "api": "responses"}, "y"),
    ({"body": b'{"prompt":"z"}', "api": "completions"}, "z"),
])
def test_the_last_message_by_the_user_is_the_prompt(request_: dict[str, Any], prompt: str) -> None:
    assert spawned(start(["/bin/agent"], **request_)).stdin == prompt.encode()


@pytest.mark.parametrize("request_", [
    {"messages": b"[]"}, {"messages": b"{"}, {"messages": b'[{"role":"assistant","content":"a"}]'},
    {"messages": b'[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]'},
    {"body": b"[1]", "api": "chat/completions"}, {"body": b'{"input":[1]}', "api": "embeddings"},
])
def test_what_holds_no_text_by_the_user_is_refused(request_: dict[str, Any]) -> None:
    assert "invalid_request" in refusal(start(["/bin/agent"], **request_))


def test_output_is_text_that_is_exact_to_the_byte_per_channel() -> None:
    run = start(["/bin/agent"], prompt="x")
    receiver = run.tools.spawner.programs[0].receiver  # type: ignore[attr-defined]
    receiver.program_started(12)
    receiver.output_received(CHANNEL_STDOUT, b"caf\xc3", 4)
    receiver.output_received(CHANNEL_STDERR, b"\xff!", 6)
    receiver.output_received(CHANNEL_STDOUT, b"\xa9\xe2\x82", 9)
    run.tools.spawner.programs[0].ends(exit_code=0)  # type: ignore[attr-defined]
    told = [(event.channel, event.output, event.exact) for event in run.sink.events[1:]]
    assert told == [(CHANNEL_STDOUT, "caf", b""), (CHANNEL_STDERR, "\ufffd!", b"\xff!"), (CHANNEL_STDOUT, "é", b""),
                    (CHANNEL_STDOUT, "\ufffd", b"\xe2\x82")]
    assert run.sink.events[0].started.pid == 12


def test_a_run_goes_on_behind_each_of_its_marks() -> None:
    pieces = [(CHANNEL_STDOUT, b"caf\xc3", 40), (CHANNEL_STDERR, b"\xe2", 50), (CHANNEL_STDERR, b"\x82", 60),
              (CHANNEL_STDOUT, b"\xa9!", 70), (CHANNEL_STDERR, b"\xac", 80), (CHANNEL_STDOUT, b"\xff", 90)]

    def tell(run: Any, behind: int) -> None:
        receiver = run.tools.spawner.programs[0].receiver
        if behind == 0:
            receiver.program_started(12)
        for channel, data, offset in pieces:
            if offset > behind:
                receiver.output_received(channel, data, offset)

    whole = start(["/bin/agent"], prompt="x")
    tell(whole, 0)
    for count, mark in enumerate([b"", *whole.sink.marks]):
        again = start(["/bin/agent"], prompt="x", resume=mark)
        [(run_id, attempt, offset)] = again.tools.spawner.taken_up  # type: ignore[attr-defined]
        assert (run_id, attempt) == (RUN_ID, 1)
        tell(again, offset)
        told = [event.SerializeToString() for event in clean(whole.sink.events[:count] + again.sink.events)]
        assert told == [event.SerializeToString() for event in clean(whole.sink.events)]


def clean(told: list[Any]) -> list[Any]:
    for event in told:
        event.at_us = 0
        if event.HasField("started"):
            event.started.detail = ""
    return told


def test_a_mark_of_another_version_ends_the_run_and_its_program() -> None:
    run = start(["/bin/agent"], prompt="x", resume=b"\x09?")
    assert run.ending[0] == "failed" and run.ending[1].code == "supervisor_lost"  # type: ignore[index]
    assert run.tools.spawner.discarded == [(RUN_ID, 1)]  # type: ignore[attr-defined]


def test_what_is_kept_reaches_the_journal() -> None:
    run = start(["/bin/agent"], prompt="x")
    run.tools.spawner.programs[0].receiver.output_received(CHANNEL_STDOUT, b"a", 77)  # type: ignore[attr-defined]
    run.execution.kept(run.sink.marks[-1])
    assert run.tools.spawner.programs[0].calls == [("kept", 77)]  # type: ignore[attr-defined]


def test_what_a_pause_holds_goes_with_its_mark() -> None:
    run = start(["/bin/agent"], prompt="x")
    receiver = run.tools.spawner.programs[0].receiver  # type: ignore[attr-defined]
    run.execution.pauseProducing()
    receiver.output_received(CHANNEL_STDOUT, b"a", 10)
    receiver.output_received(CHANNEL_STDOUT, b"b", 20)
    run.execution.resumeProducing()
    assert Place.of(run.sink.marks[-1]).offset == 20 and run.sink.text() == "ab"


def test_what_a_stopped_program_says_while_it_is_held_back_waits_in_its_journal() -> None:
    run = start(["/bin/agent"], prompt="x")
    program = run.tools.spawner.programs[0]  # type: ignore[attr-defined]
    run.execution.pauseProducing()
    run.execution.stop(Cancelled())
    assert program.calls == ["pause", "stop"]
    run.execution.resumeProducing()
    assert program.calls == ["pause", "stop", "resume"]


def test_from_what_a_stopped_and_held_program_says_nothing_is_left_out_in_the_middle() -> None:
    run = start(["/bin/agent"], prompt="x")
    receiver = run.tools.spawner.programs[0].receiver  # type: ignore[attr-defined]
    receiver.output_received(CHANNEL_STDOUT, b"one ", 4)
    run.execution.pauseProducing()
    run.execution.stop(Cancelled())
    receiver.output_received(CHANNEL_STDOUT, b"two ", 8)
    receiver.output_received(CHANNEL_STDERR, b"no", 10)
    run.execution.resumeProducing()
    receiver.output_received(CHANNEL_STDOUT, b"three", 15)
    run.tools.spawner.programs[0].ends(signal=9)  # type: ignore[attr-defined]
    assert run.sink.text() == "one " and run.ending[0] == "cancelled"  # type: ignore[index]
    told = [event.truncated for event in run.sink.events if event.WhichOneof("kind") == "truncated"]
    assert [(one.channel, one.dropped_bytes) for one in told] == [(CHANNEL_STDOUT, 9), (CHANNEL_STDERR, 2)]


@pytest.mark.parametrize(("ending", "kind", "code", "exit_code", "signal"), [
    ({"exit_code": 0}, "completed", "ok", 0, None),
    ({"exit_code": 7}, "completed", "ok", 7, None),
    ({"exit_code": 1}, "failed", "program_failed", 1, None),
    ({"signal": 11}, "failed", "program_failed", None, 11),
    ({"error": "There is no such file."}, "failed", "adapter_error", None, None),
    ({"error": "Not begun.", "interrupted": True}, "failed", "node_restarted", None, None),
    ({"lost": "Its supervisor was killed."}, "unknown", "supervisor_lost", None, None),
    ({"lost": "Its supervisor was killed.", "found": 2}, "failed", "supervisor_lost", None, None),
])
def test_an_ending_keeps_exit_code_signal_and_reason_apart(ending: dict[str, Any], kind: str, code: str,
                                                           exit_code: int | None, signal: int | None) -> None:
    run = start(["/bin/agent"], settings={"ok_exit_codes": [0, 7]}, prompt="x")
    run.tools.spawner.programs[0].ends(**ending, processes_left=-1)  # type: ignore[attr-defined]
    told, outcome = run.ending  # type: ignore[misc]
    assert (told, outcome.code, outcome.processes_left) == (kind, code, -1)
    assert (outcome.exit_code if outcome.HasField("exit_code") else None) == exit_code
    assert (outcome.signal if outcome.HasField("signal") else None) == signal


def test_a_stopped_program_is_cancelled_also_when_it_exits_with_0() -> None:
    run = start(["/bin/agent"], prompt="x")
    run.execution.stop(Cancelled())
    run.tools.spawner.programs[0].ends(exit_code=0, steps=("SIGINT",), processes_left=0)  # type: ignore[attr-defined]
    kind, outcome = run.ending  # type: ignore[misc]
    assert (kind, outcome.exit_code, list(outcome.steps), outcome.processes_left) == ("cancelled", 0, ["SIGINT"], 0)


def test_a_pause_reaches_the_pipes() -> None:
    run = start(["/bin/agent"], prompt="x")
    run.execution.pauseProducing()
    run.execution.resumeProducing()
    assert run.tools.spawner.programs[0].calls == ["pause", "resume"]  # type: ignore[attr-defined]


def test_more_input_reaches_a_program_that_keeps_it_open() -> None:
    run = start(["/bin/agent", "{prompt}"], settings={"input": "open"}, prompt="x")
    assert spawned(run).keep_input
    run.execution.write(b"more", False)
    run.execution.write(b"", True)
    assert run.tools.spawner.programs[0].calls == [b"more", "close_input"]  # type: ignore[attr-defined]
    with pytest.raises(InvalidRequest):
        run.execution.write(b"late", False)
    with pytest.raises(InvalidRequest):
        start(["/bin/agent", "{prompt}"], prompt="x").execution.write(b"x", False)


@pytest.mark.parametrize(("settings", "words"), [
    ({"argv": []}, ["argv"]),
    ({"argv": ["./run"]}, ["argv", "absolute"]),
    ({"argv": ["{prompt}"]}, ["argv", "placeholder"]),
    ({"argv": ["/bin/sh", "-c", "echo {prompt}"]}, ["{prompt}", "whole element"]),
    ({"argv": ["/bin/a\x00"]}, ["NUL"]),
    ({"argv": "echo"}, ["argv"]),
    ({"argv": ["/bin/a"], "prompt": "argument"}, ["prompt", "argument", "stdin"]),
    ({"argv": ["/bin/a", "{prompt}"], "prompt": "stdin"}, ["prompt", "stdin"]),
    ({"argv": ["/bin/a"], "prompt": "file"}, ["prompt", "argument", "stdin"]),
    ({"argv": ["/bin/a"], "cwd": "here"}, ["cwd", "absolute"]),
    ({"argv": ["/bin/a"], "ok_exit_codes": [300]}, ["ok_exit_codes", "255"]),
    ({"argv": ["/bin/a"], "int_s": 0}, ["int_s"]),
    *(({"argv": ["/bin/a"], "env": {name: "x"}}, ["env", name]) for name in (
        "LD_PRELOAD", "PYTHONPATH", "NODE_OPTIONS", "BASH_ENV", "ENV", "GIT_SSH", "GIT_SSH_COMMAND", "IOP_RUN_ID", "a=b")),
])
def test_wrong_settings_name_the_key_and_what_is_allowed(settings: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        cli.factory.settings(target("t", **settings))
    for word in words:
        assert word in caught.value.message


def test_requirements_state_the_program_with_its_placeholders() -> None:
    settings = cli.factory.settings(target("t", argv=["/bin/a", "{prompt}"], cwd="/srv", env={"A": "b"}))
    [program] = cli.factory.requirements(settings)
    assert (program.argv, program.cwd, program.env) == (("/bin/a", "{prompt}"), "/srv", {"A": "b"})
    assert json.dumps(dict(program.env))
