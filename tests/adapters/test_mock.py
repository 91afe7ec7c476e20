"""The mock adapter plays its script on the clock it was given."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.task import Clock

from iop.adapters import mock
from iop.errors import ConfigError
from iop.proto.run_pb2 import CHANNEL_STDERR
from tests.adapters.kit import Started, Tools, target


def play(clock: Clock, **settings: Any) -> Started:
    return Started(mock.factory, Tools(clock), target("t", **settings), prompt="hi")


def test_steps_come_when_they_are_due_and_on_their_channel() -> None:
    clock = Clock()
    run = play(clock, script=[{"text": "a", "delay_s": 2}, {"text": "b", "channel": "stderr"}, {"text": "c", "delay_s": 1}])
    clock.advance(0)
    clock.advance(1.9)
    assert run.sink.kinds == ["started"]
    clock.advance(0.1)
    assert [[event.output for event in batch] for batch in run.sink.batches[1:]] == [["a", "b"]]
    assert run.sink.events[2].channel == CHANNEL_STDERR
    clock.advance(1)
    assert run.sink.text() == "abc" and run.ending is not None


def test_it_echoes_and_repeats_in_bounded_batches() -> None:
    clock = Clock()
    run = play(clock, echo=True, script=[{"text": " {n}", "repeat": 200}])
    for _ in range(8):
        clock.advance(0)
    assert run.sink.text() == "hi" + "".join(f" {number}" for number in range(2, 202))
    assert max(map(len, run.sink.batches)) == 64


def test_it_fails_with_the_code_it_is_told() -> None:
    clock = Clock()
    run = play(clock, script=[{"text": "a"}], fail="program_failed")
    clock.advance(0)
    clock.advance(0)
    kind, outcome = run.ending  # type: ignore[misc]
    assert (kind, outcome.code, run.sink.text()) == ("failed", "program_failed", "a")


@pytest.mark.parametrize(("settings", "words"), [
    ({"script": [{"delay_s": -1}]}, ["delay_s"]), ({"script": [{"channel": "x"}]}, ["channel", "stderr"]),
    ({"script": [{"say": "x"}]}, ["say", "text"]), ({"fail": "Not A Code"}, ["fail"]),
])
def test_wrong_scripts_are_named(settings: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        mock.factory.settings(target("t", **settings))
    for word in words:
        assert word in caught.value.message
