"""Which runs belong together, and which may wait."""

import json

import pytest

from iop.edge.models.affinity import PREFIX_BYTES, affinity_of, chat_prefix, priority_of
from iop.errors import InvalidRequest

SYSTEM, FIRST = {"role": "system", "content": "You are kind."}, {"role": "user", "content": "hi"}
TURNS = [SYSTEM, FIRST, {"role": "assistant", "content": "hello"}, {"role": "user", "content": "and?"}]
CHAT = "/v1/chat/completions"


def of(principal="anna", cache_key=None, prefix=(), **headers):
    return affinity_of(principal, lambda name: headers.get(name.replace("-", "_")), cache_key, prefix)


def test_the_turns_of_one_chat_belong_together():
    assert of(prefix=chat_prefix(TURNS)) == of(prefix=chat_prefix(TURNS[:2])) != ""
    assert of(prefix=chat_prefix(TURNS)) != of(prefix=chat_prefix([SYSTEM, {"role": "user", "content": "ho"}]))


def test_a_named_conversation_is_one_whatever_is_said_in_it():
    named = of(x_claude_code_session_id="s1", prefix=["a"])
    assert named == of(x_claude_code_session_id="s1", prefix=["b"]) == of(cache_key="s1")
    for header in ("session_id", "x_session_id", "x_session_affinity", "x_openwebui_chat_id"):
        assert of(**{header: "s1"}) == named
    assert of(cache_key=7, prefix=["a"]) == of(prefix=["a"])


def test_principals_share_no_affinity():
    assert of("anna", cache_key="k") != of("bob", cache_key="k")


def test_nothing_to_tell_by_is_no_affinity():
    assert of() == of(prefix=[]) == ""


def test_only_the_beginning_of_a_long_prompt_counts():
    assert of(prefix=["x" * PREFIX_BYTES + "a"]) == of(prefix=["x" * PREFIX_BYTES, "b"])


def test_no_prompt_can_break_it():
    assert of(prefix=["\ud800", {"a": [1]}, None, 7])
    assert of(session_id="\xff")


@pytest.mark.parametrize(("word", "priority"), [("main", 0), ("subagent", -10), ("workflow", -10), ("compaction", -20),
                                                ("auxiliary", -20), ("something", 0)])
def test_what_nobody_waits_for_is_less_urgent(word, priority):
    assert priority_of({"x-claude-code-request-class": word}.get) == priority


@pytest.mark.parametrize(("text", "priority"), [("-5", -5), ("5", 5), ("1000", 1000), ("0", 0)])
def test_a_client_can_say_it_itself(text, priority):
    assert priority_of({"x-iop-priority": text, "x-claude-code-request-class": "compaction"}.get) == priority


@pytest.mark.parametrize("text", ["", "x", "1.5", "--1", "1001", "\u0661", "9" * 5000, "0000000009999999999"])
def test_a_bad_priority_is_refused(text):
    with pytest.raises(InvalidRequest):
        priority_of({"x-iop-priority": text}.get)


def test_a_run_carries_both_to_its_placement(world):
    world.asking(CHAT, json.dumps({"model": "tiny", "messages": TURNS}).encode(), x_iop_priority="-7")
    first = world.edge.last.request
    world.asking(CHAT, {"model": "tiny", "messages": TURNS[:2]}, x_iop_priority="7")
    second = world.edge.last.request
    assert first.affinity == second.affinity != ""
    assert (first.priority, second.priority) == (-7, 7)
    world.call("POST", CHAT, {"model": "tiny", "messages": TURNS}, key=world.models, x_iop_priority="x")
    assert len(world.edge.runs_by_id) == 2
