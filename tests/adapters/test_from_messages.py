"""A request of the Messages API told as a chat: tables of what becomes of each thing that clients send."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from iop.adapters.wire.from_messages import needs_translation, to_chat
from iop.errors import InvalidRequest

busy = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])     # the machine, not the code, may be slow
PNG = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
HI = [{"role": "user", "content": "hi"}]
WEATHER = {"name": "weather", "description": "Tells it.", "input_schema": {"type": "object", "properties": {"city": {}}}}


def chat(**body: Any) -> dict[str, Any]:
    return to_chat({"model": "claude-local", "max_tokens": 10, "messages": HI} | body, "backend").body


def messages(*told: dict[str, Any], **body: Any) -> list[dict[str, Any]]:
    return chat(messages=list(told), **body)["messages"]


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": value} | more


def test_the_least_request_is_the_least_chat() -> None:
    assert chat() == {"model": "backend", "max_tokens": 10, "messages": HI}


def test_samplers_and_fields_of_others_travel_on() -> None:
    asked = {"temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1, "seed": 7, "stream": True}
    assert chat(**asked, metadata={"user_id": "u-1"}, stop_sequences=["END"], service_tier="auto", context_management={}) == (
        chat() | asked | {"user": "u-1", "stop": ["END"]})


@pytest.mark.parametrize(("system", "told"), [
    ("Be kind.", "Be kind."),
    ([text("a", cache_control={"type": "ephemeral"}), text("b")], "a\n\nb"),
    ([text("x-anthropic-billing-header: cc_version=2.1.197; cch=1a2b3;"), text("You are.")], "You are.")])
def test_the_system_prompt_is_one_message_without_what_would_spoil_the_cache(system: Any, told: str) -> None:
    assert chat(system=system)["messages"] == [{"role": "system", "content": told}, *HI]


def test_an_empty_system_prompt_is_none() -> None:
    assert chat(system="")["messages"] == chat(system=[])["messages"] == HI


def test_blocks_of_text_are_a_text_and_images_are_parts() -> None:
    assert messages(user(text("a"), text("b", cache_control={"type": "ephemeral"}))) == [{"role": "user", "content": "a\nb"}]
    assert messages(user(text("see"), {"type": "image", "source": PNG},
                         {"type": "image", "source": {"type": "url", "url": "https://x.test/y.png"}})) == [
        {"role": "user", "content": [text("see"), {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                                     {"type": "image_url", "image_url": {"url": "https://x.test/y.png"}}]}]


def test_documents_are_told_as_far_as_chats_can() -> None:
    told = messages(user({"type": "document", "title": "T", "source": {"type": "text", "data": "d"}},
                         {"type": "document", "source": {"type": "content", "content": [text("c")]}},
                         {"type": "document", "source": PNG | {"media_type": "application/pdf"}},
                         {"type": "search_result", "title": "S", "source": "https://s.test", "content": [text("found")]}))
    assert told[0]["content"] == [
        text("T\nd"), text("c"),
        {"type": "file", "file": {"filename": "document", "file_data": "data:application/pdf;base64,AAAA"}},
        text("S (https://s.test)"), text("found")]


def test_a_turn_with_parallel_calls_and_their_results() -> None:
    told = messages(
        {"role": "user", "content": "weather?"},
        assistant({"type": "thinking", "thinking": "Two cities.", "signature": "s"},
                  {"type": "redacted_thinking", "data": "x"}, text("Looking."),
                  {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Oslo"}},
                  {"type": "tool_use", "id": "t2", "name": "weather", "input": {}}),
        user({"type": "tool_result", "tool_use_id": "t1", "content": "rain"},
             {"type": "tool_result", "tool_use_id": "t2", "is_error": True, "content": [text("no"), text("city")]},
             text("Go on.")))
    assert told == [
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": "Looking.", "reasoning_content": "Two cities.", "tool_calls": [
            {"id": "t1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Oslo"}'}},
            {"id": "t2", "type": "function", "function": {"name": "weather", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "t1", "content": "rain"},
        {"role": "tool", "tool_call_id": "t2", "content": "no\ncity"},
        {"role": "user", "content": "Go on."}]


def test_results_stand_in_the_order_of_their_calls() -> None:
    calls = [{"type": "tool_use", "id": name, "name": "n", "input": {}} for name in "abc"]
    results = [{"type": "tool_result", "tool_use_id": name, "content": name} for name in "xcba"]
    told = messages(*HI, assistant(*calls), user(*results[:2]), user(*results[2:]), assistant(text("done")), *HI)
    assert [message.get("tool_call_id") for message in told] == [None, None, "a", "b", "c", "x", None, None]


def test_an_image_in_a_result_follows_as_the_users() -> None:
    told = messages(*HI, assistant({"type": "tool_use", "id": "t1", "name": "shot", "input": {}}),
                    user({"type": "tool_result", "tool_use_id": "t1",
                          "content": [text("shot"), {"type": "image", "source": PNG}]}))
    assert [message["role"] for message in told] == ["user", "assistant", "tool", "user"]
    assert told[2]["content"] == "shot" and told[3]["content"][0]["image_url"]["url"].startswith("data:image/png")


def test_results_alone_leave_no_empty_message_behind() -> None:
    told = messages(*HI, assistant({"type": "tool_use", "id": "t", "name": "n", "input": {}}),
                    user({"type": "tool_result", "tool_use_id": "t"}))
    assert told[-1] == {"role": "tool", "tool_call_id": "t", "content": ""} and len(told) == 3


def test_turns_of_one_role_become_one() -> None:
    assert messages({"role": "user", "content": "a"}, user(text("b")), {"role": "assistant", "content": "c"},
                    assistant({"type": "tool_use", "id": "t", "name": "n", "input": {}})) == [
        {"role": "user", "content": "a\nb"},
        {"role": "assistant", "content": "c", "tool_calls": [
            {"id": "t", "type": "function", "function": {"name": "n", "arguments": "{}"}}]}]
    assert messages({"role": "user", "content": "a"}, user({"type": "image", "source": PNG}))[0]["content"][0] == text("a")


def test_roles_that_only_clients_know_are_the_users() -> None:
    assert messages({"role": "ctx", "content": "a"}, {"role": "msg", "content": "b"}) == [{"role": "user", "content": "a\nb"}]


def test_a_system_message_in_the_middle_becomes_a_reminder() -> None:
    told = messages({"role": "system", "content": "s1"}, *HI, {"role": "system", "content": [text("s2")]}, system="s0")
    assert told == [{"role": "system", "content": "s0\n\ns1"},
                    {"role": "user", "content": "hi\n<system-reminder>\ns2\n</system-reminder>"}]


# --- tools

def test_tools_become_functions_of_the_chat() -> None:
    told = chat(tools=[WEATHER | {"cache_control": {}}, {"type": "custom", "name": "bare", "strict": True}])
    assert told["tools"] == [
        {"type": "function", "function": {"name": "weather", "description": "Tells it.",
                                          "parameters": WEATHER["input_schema"]}},
        {"type": "function", "function": {"name": "bare", "strict": True,
                                          "parameters": {"type": "object", "properties": {}}}}]
    assert "tool_choice" not in told


@pytest.mark.parametrize(("choice", "told"), [
    ({"type": "auto"}, {"tool_choice": "auto"}), ({"type": "any"}, {"tool_choice": "required"}),
    ({"type": "none"}, {"tool_choice": "none"}),
    ({"type": "tool", "name": "weather"}, {"tool_choice": {"type": "function", "function": {"name": "weather"}}}),
    ({"type": "auto", "disable_parallel_tool_use": True}, {"tool_choice": "auto", "parallel_tool_calls": False})])
def test_how_tools_are_chosen(choice: dict[str, Any], told: dict[str, Any]) -> None:
    found = chat(tools=[WEATHER], tool_choice=choice)
    assert {name: found[name] for name in ("tool_choice", "parallel_tool_calls") if name in found} == told


def test_what_only_anthropic_has_is_left_out_with_a_warning() -> None:
    body = {"messages": [*HI, assistant({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}), *HI],
            "tools": [{"type": "web_search_20250305", "name": "web_search"}, {"type": "bash_20250124", "name": "bash"}],
            "tool_choice": {"type": "tool", "name": "bash"}, "mcp_servers": [{"url": "https://x.test"}]}
    told = to_chat(body, "m")
    assert "tools" not in told.body and "tool_choice" not in told.body and "mcp_servers" not in told.body
    assert [warning.split(" was ")[0] for warning in told.warnings] == [
        "A block of the type 'server_tool_use'", "The tool 'web_search'", "The tool 'bash'", "`mcp_servers`"]
    told = to_chat(body | {"tools": [*body["tools"], WEATHER]}, "m")
    assert len(told.body["tools"]) == 1 and "tool_choice" not in told.body
    assert "`tool_choice` was left out" in told.warnings[3]


# --- thinking and format

@pytest.mark.parametrize(("asked", "told"), [
    ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, {"reasoning_effort": "low"}),
    ({"thinking": {"type": "enabled", "budget_tokens": 10_000}}, {"reasoning_effort": "medium"}),
    ({"thinking": {"type": "enabled", "budget_tokens": 31_999}}, {"reasoning_effort": "high"}),
    ({"thinking": {"type": "adaptive"}}, {}),
    ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}, {"reasoning_effort": "low"}),
    ({"output_config": {"effort": "max"}}, {"reasoning_effort": "high"}),
    ({"thinking": {"type": "disabled"}}, {"chat_template_kwargs": {"enable_thinking": False}}),
    ({"thinking": {"type": "disabled"}, "chat_template_kwargs": {"enable_thinking": True, "a": 1}},
     {"chat_template_kwargs": {"enable_thinking": True, "a": 1}}),
    ({"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}}, {"response_format": {
        "type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": True}}})])
def test_how_to_think_and_the_form_of_the_answer(asked: dict[str, Any], told: dict[str, Any]) -> None:
    assert chat(**asked) == chat() | told


# --- what a backend that has the API would pass over or refuse

@pytest.mark.parametrize(("body", "needed"), [
    ({}, False), ({"system": "s", "tools": [WEATHER, WEATHER | {"type": "custom"}]}, False),
    ({"system": [text("s", cache_control={})]}, False),
    ({"messages": [user(text("a"), {"type": "image", "source": PNG}, {"type": "tool_result", "tool_use_id": "t"}),
                   assistant({"type": "thinking", "thinking": "t"}, {"type": "tool_use", "id": "t"})]}, False),
    ({"messages": ["x", user("y")], "tools": ["x"], "system": 7}, False),
    ({"system": [text("x-anthropic-billing-header: cc_version=2.1.197;")]}, True),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, True),
    ({"messages": [*HI, {"role": "system", "content": "s"}]}, True), ({"messages": [{"role": ["x"], "content": "s"}]}, True),
    ({"messages": [user({"type": "document", "source": {}})]}, True), ({"messages": [user({"type": ["x"]})]}, True)])
def test_what_needs_to_be_told_as_a_chat_everywhere(body: dict[str, Any], needed: bool) -> None:
    assert needs_translation({"messages": HI} | body) is needed


# --- refusals

@pytest.mark.parametrize(("body", "place"), [
    ({"messages": None}, "messages"), ({"messages": []}, "messages"), ({"messages": "hi"}, "messages"),
    ({"messages": [7]}, "messages.0"), ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role"),
    ({"messages": [{"role": "user"}]}, "messages.0.content"), ({"messages": [user("text")]}, "messages.0.content.0"),
    ({"messages": [user({"type": "text"})]}, "messages.0.content.0.text"),
    ({"messages": [user({"text": "untyped"})]}, "messages.0.content.0.type"),
    ({"messages": [user({"type": "image"})]}, "messages.0.content.0.source"),
    ({"messages": [user({"type": "image", "source": {"type": "file", "file_id": "f"}})]}, "messages.0.content.0.source"),
    ({"messages": [user({"type": "image", "source": PNG | {"media_type": "a;b"}})]},
     "messages.0.content.0.source.media_type"),
    ({"messages": [user({"type": "tool_result", "content": "x"})]}, "messages.0.content.0.tool_use_id"),
    ({"messages": [user({"type": "tool_result", "tool_use_id": "t", "content": 5})]}, "messages.0.content.0.content"),
    ({"messages": [assistant({"type": "tool_use", "id": "t", "name": "n", "input": "{}"})]}, "messages.0.content.0.input"),
    ({"messages": [assistant({"type": "thinking"})]}, "messages.0.content.0.thinking"),
    ({"system": 5}, "system"), ({"system": ["x"]}, "system.0"), ({"system": [{"type": "text"}]}, "system.0.text"),
    ({"tools": {}}, "tools"), ({"tools": ["x"]}, "tools.0"), ({"tools": [{"input_schema": {}}]}, "tools.0.name"),
    ({"tools": [{"name": "n", "input_schema": "x"}]}, "tools.0.input_schema"),
    ({"tools": [WEATHER], "tool_choice": "auto"}, "tool_choice"),
    ({"tools": [WEATHER], "tool_choice": {"type": ["any"]}}, "tool_choice.type"),
    ({"stop_sequences": "END"}, "stop_sequences"), ({"metadata": "u"}, "metadata"), ({"thinking": "yes"}, "thinking"),
    ({"output_config": "x"}, "output_config"), ({"output_config": {"format": {"type": "xml"}}}, "output_config.format")])
def test_what_is_no_request_is_refused_with_its_place(body: dict[str, Any], place: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        chat(**body)
    assert refusal.value.message.startswith(place + ": ")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["text", "tool_use", "image"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.sampled_from(["type", "role", "content", "text", "source", "input", "name", "id", "tool_use_id"]), inner),
    max_leaves=15)


@busy
@given(st.dictionaries(st.sampled_from(["messages", "system", "tools", "tool_choice", "thinking", "metadata",
                                        "stop_sequences", "output_config", "mcp_servers"]), json_values))
def test_whatever_comes_is_told_or_refused(body: dict[str, Any]) -> None:
    try:
        told = to_chat(body, "m")
    except InvalidRequest:
        return
    assert json.loads(json.dumps(told.body))["model"] == "m"


@busy
@given(st.lists(json_values, max_size=3))
def test_whatever_a_message_holds_is_told_or_refused(blocks: list[Any]) -> None:
    try:
        chat(messages=[{"role": "user", "content": blocks}])
        chat(messages=[{"role": "assistant", "content": blocks}])
    except InvalidRequest:
        pass
