"""A request of the Responses API told as a chat: what comes out, what is left out, and what is refused."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iop.adapters.wire.from_responses import needs_translation, to_chat
from iop.errors import InvalidRequest

WEATHER = {"type": "function", "name": "weather", "description": "The weather", "strict": True,
           "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
PATCH = {"type": "custom", "name": "apply_patch", "description": "Edits files.",
         "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"}}
SPAWN = {"type": "function", "name": "spawn", "parameters": {"type": "object", "properties": {}}}
AGENTS = {"type": "namespace", "name": "agents", "description": "Agents.", "tools": [SPAWN]}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}


def chat(**body):
    return to_chat({"model": "alias", "input": "hi"} | body, "backend").body


def messages(*items, **body):
    return chat(input=list(items), **body)["messages"]


def warnings(**body):
    return to_chat({"input": "hi"} | body, "m").warnings


def user(text):
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def call(number, name="weather", **more):
    return {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": name,
            "arguments": '{"city":"Oslo"}', **more}


def output(number, text="rain"):
    return {"type": "function_call_output", "call_id": f"call_{number}", "output": text}


def called(number, name="weather", arguments='{"city":"Oslo"}'):
    return {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


# --- the input

def test_a_text_is_the_users_message_behind_the_instructions():
    assert chat(instructions="Be brief.") == {"model": "backend", "messages": [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]}


def test_items_without_a_type_are_messages():
    assert messages({"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}) == [
        {"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]


def test_developers_are_the_system_message_at_first_and_marked_later():
    """Most chat templates know one system message, the first."""
    developer = {"role": "developer", "content": [{"type": "input_text", "text": "Two."}]}
    assert messages(developer, {"role": "system", "content": "Three."}, user("hi"), developer, instructions="One.") == [
        {"role": "system", "content": "One.\n\nTwo.\n\nThree."},
        {"role": "user", "content": "hi\n\n<developer>\nTwo.\n</developer>"}]


def test_messages_of_one_role_that_follow_each_other_are_one():
    """Codex sends two of the user; many chat templates want them to alternate."""
    picture = {"type": "input_image", "image_url": "u"}
    assert messages(user("one"), user("two"), {"role": "user", "content": [picture]}, {"role": "assistant", "content": "a"},
                    THOUGHT, {"role": "assistant", "content": "b"}, call(1)) == [
        {"role": "user", "content": [
            {"type": "text", "text": "one\n\ntwo"}, {"type": "image_url", "image_url": {"url": "u"}}]},
        {"role": "assistant", "content": "a\n\nb", "reasoning_content": "Hm.", "tool_calls": [called(1)]}]


def test_parallel_calls_are_one_message_and_each_result_is_its_own():
    assert messages(user("hi"), {"type": "message", "role": "assistant", "content": [
        {"type": "output_text", "text": "Let me see."}]}, call(1), call(2), output(1), output(2, "sun"), user("go on")) == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "Let me see.", "tool_calls": [called(1), called(2)]},
        {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
        {"role": "tool", "tool_call_id": "call_2", "content": "sun"},
        {"role": "user", "content": "go on"}]


def test_a_thought_goes_with_what_the_model_did_next():
    summary = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "So."}], "encrypted_content": "x"}
    sealed = {"type": "reasoning", "summary": [], "content": None, "encrypted_content": "x"}
    assert messages(user("hi"), THOUGHT, call(1), output(1), summary, {"role": "assistant", "content": "a"}, sealed) == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": [called(1)]},
        {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
        {"role": "assistant", "content": "a", "reasoning_content": "So."}]


@pytest.mark.parametrize(("before", "told"), [
    ([], {"content": ""}), ([{"role": "assistant", "content": "a"}], {"content": "a"}),
    ([call(1)], {"content": None, "tool_calls": [called(1)]})])
def test_a_thought_at_the_end_is_the_assistants(before, told):
    assert messages(user("hi"), *before, THOUGHT)[1] == {"role": "assistant", "reasoning_content": "Hm.", **told}


@pytest.mark.parametrize(("item", "result", "name", "arguments"), [
    ({"type": "custom_tool_call", "name": "apply_patch", "input": "*** Begin"},
     {"type": "custom_tool_call_output", "output": "ok"}, "apply_patch", {"input": "*** Begin"}),
    ({"type": "function_call", "namespace": "agents", "name": "spawn", "arguments": "{}"},
     {"type": "function_call_output", "output": "ok"}, "agents__spawn", {}),
    ({"type": "local_shell_call", "action": {"type": "exec", "command": ["ls"]}, "status": "completed"},
     {"type": "local_shell_call_output", "output": "ok"}, "local_shell", {"type": "exec", "command": ["ls"]}),
    ({"type": "tool_search_call", "execution": "client", "arguments": {"query": "mail"}},
     {"type": "tool_search_output", "tools": [SPAWN]}, "tool_search", {"query": "mail"})])
def test_each_kind_of_call_and_its_output_is_told(item, result, name, arguments):
    told = messages(user("hi"), item | {"call_id": "call_1"}, result | {"call_id": "call_1"})
    made = told[1]["tool_calls"][0]
    assert (made["id"], made["function"]["name"], json.loads(made["function"]["arguments"])) == ("call_1", name, arguments)
    assert told[2]["role"] == "tool" and told[2]["tool_call_id"] == "call_1"
    assert told[2]["content"] == ("ok" if "output" in result else "These tools can be called now: spawn")


def test_pictures_are_parts_and_those_of_tools_follow_the_results():
    picture = {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "high"}
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "high"}}
    assert messages({"role": "user", "content": [{"type": "input_text", "text": "look"}, picture]})[0]["content"] == [
        {"type": "text", "text": "look"}, part]
    told = messages(user("hi"), call(1), call(2), output(1, [picture, {"type": "input_text", "text": "seen"}]), output(2))
    assert [message["role"] for message in told] == ["user", "assistant", "tool", "tool", "user"]
    assert told[2]["content"] == "seen" and told[4]["content"] == [part]


def test_what_a_chat_does_not_know_is_left_out_with_a_warning():
    given = [user("hi"), {"type": "web_search_call", "id": "ws_1", "status": "completed"},
             {"type": "item_reference", "id": "x"},
             {"role": "user", "content": [{"type": "input_image", "file_id": "f"}, {"type": "input_text", "text": "b"}]}]
    told = to_chat({"input": given, "conversation": "c", "prompt": None}, "m")
    assert told.body["messages"] == [{"role": "user", "content": "hi\n\nb"}]
    assert [word for word in ("web_search_call", "item_reference", "input_image", "conversation")
            if not any(word in warning for warning in told.warnings)] == []
    assert len(told.warnings) == 4
    assert len(warnings(include=["message.output_text.logprobs"], top_logprobs=2)) == 2
    assert not warnings(top_logprobs=0, prompt=None, conversation="", include=["reasoning.encrypted_content"])


# --- tools

def test_tools_become_functions_and_the_rest_is_skipped_with_a_warning():
    told = to_chat({"input": "hi", "tools": [WEATHER, PATCH, AGENTS, {"type": "web_search"}, {"type": "local_shell"}],
                    "parallel_tool_calls": True}, "m")
    functions = {tool["function"]["name"]: tool["function"] for tool in told.body["tools"]}
    assert list(functions) == ["weather", "apply_patch", "agents__spawn"]
    assert functions["weather"] == {name: WEATHER[name] for name in ("name", "description", "parameters", "strict")}
    assert functions["apply_patch"]["parameters"]["required"] == ["input"]
    assert "start: x" in functions["apply_patch"]["description"], "the grammar is told, where it cannot be enforced"
    assert len(told.warnings) == 2 and "web_search" in told.warnings[0] and "local_shell" in told.warnings[1]
    assert told.body["parallel_tool_calls"] is True


def test_tools_that_a_search_found_can_be_called():
    search = {"type": "tool_search", "execution": "client", "description": "Finds.", "parameters": {"type": "object"}}
    body = chat(tools=[search], input=[user("hi"), {"type": "tool_search_output", "call_id": "c", "tools": [AGENTS]}])
    assert [tool["function"]["name"] for tool in body["tools"]] == ["tool_search", "agents__spawn"]


def test_without_a_tool_left_nothing_is_said_of_tools():
    body = chat(tools=[{"type": "web_search"}], tool_choice="auto", parallel_tool_calls=False)
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & body.keys()


@pytest.mark.parametrize(("choice", "told"), [
    ("required", "required"), ("none", "none"),
    ({"type": "function", "name": "weather"}, {"type": "function", "function": {"name": "weather"}}),
    ({"type": "custom", "name": "apply_patch"}, {"type": "function", "function": {"name": "apply_patch"}}),
    ({"type": "web_search"}, None), ({"type": "allowed_tools", "tools": 3}, None), ({"name": ["x"]}, None)])
def test_the_choice_of_a_tool_is_told_in_the_chats_words(choice, told):
    assert chat(tools=[WEATHER, PATCH], tool_choice=choice).get("tool_choice") == told


def test_allowed_tools_narrow_what_is_offered():
    body = chat(tools=[WEATHER, PATCH], tool_choice={"type": "allowed_tools", "mode": "required",
                                                     "tools": [{"type": "function", "name": "weather"}]})
    assert [tool["function"]["name"] for tool in body["tools"]] == ["weather"] and body["tool_choice"] == "required"


# --- the other fields

SCHEMA = {"type": "object", "properties": {}}


@pytest.mark.parametrize(("asked", "told"), [
    ({"max_output_tokens": 7}, {"max_completion_tokens": 7}),
    ({"reasoning": {"effort": "low", "summary": "auto"}}, {"reasoning_effort": "low"}),
    ({"text": {"format": {"type": "text"}, "verbosity": "low"}}, {"verbosity": "low"}),
    ({"text": {"format": {"type": "json_object"}}}, {"response_format": {"type": "json_object"}}),
    ({"text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}}},
     {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}}}),
    ({"temperature": 0, "top_p": 0.5, "stream": True, "prompt_cache_key": "k", "user": "u", "chat_template_kwargs": {"a": 1}},
     {"temperature": 0, "top_p": 0.5, "stream": True, "prompt_cache_key": "k", "user": "u",
      "chat_template_kwargs": {"a": 1}}),
    ({"include": ["message.output_text.logprobs"], "top_logprobs": 2, "max_tool_calls": 3}, {}),
    ({"store": False, "background": True, "metadata": {"a": "b"}, "include": ["reasoning.encrypted_content"],
      "client_metadata": {}, "previous_response_id": None, "truncation": "auto", "top_logprobs": None}, {})])
def test_fields_are_told_in_the_chats_words(asked, told):
    body = chat(**asked)
    assert {name: value for name, value in body.items() if name not in ("model", "messages")} == told


@pytest.mark.parametrize(("body", "named"), [
    ({"input": None}, "input"), ({"input": 1}, "input"), ({"input": []}, "input"), ({"input": [1]}, "input[0]"),
    ({"input": [{}]}, "input[0].type"), ({"input": [{"type": 3}]}, "input[0].type"),
    ({"input": [{"type": ["message"]}]}, "input[0].type"),
    ({"input": [{"role": "user"}]}, "input[0].content"), ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role"),
    ({"input": [{"role": ["user"], "content": "x"}]}, "input[0].role"),
    ({"input": [user("x"), {"role": "user", "content": ["x"]}]}, "input[1].content[0]"),
    ({"input": [{"type": "function_call", "call_id": "c", "name": "f"}]}, "input[0].arguments"),
    ({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "input[0].call_id"),
    ({"input": [{"type": "custom_tool_call", "call_id": "c", "name": 3, "input": ""}]}, "input[0].name"),
    ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id"),
    ({"instructions": 3}, "instructions"), ({"tools": {}}, "tools"), ({"reasoning": "high"}, "reasoning"),
    ({"text": []}, "text"), ({"text": {"format": "json"}}, "text.format"),
    ({"tool_choice": 1, "tools": [WEATHER]}, "tool_choice"),
    ({"max_output_tokens": "9"}, "max_output_tokens"), ({"stream": "yes"}, "stream")])
def test_what_is_no_request_is_refused_by_the_name_of_its_field(body, named):
    with pytest.raises(InvalidRequest, match=named.replace("[", r"\[").replace("]", r"\]")):
        to_chat({"input": "hi"} | body, "m")


@pytest.mark.parametrize("tools", [[None], [{}], [{"type": "function"}], [{"type": "function", "name": ""}], ["x"],
                                   [{"type": "namespace", "name": "n", "tools": [AGENTS]}], [{"type": ["x"]}]])
def test_what_is_no_tool_is_left_out(tools):
    told = to_chat({"input": "hi", "tools": tools}, "m")
    assert "tools" not in told.body and told.warnings


@pytest.mark.parametrize(("body", "needs"), [
    ({"input": "hi"}, False), ({"input": [{"role": "user", "content": "hi"}], "tools": [WEATHER]}, False),
    ({"input": [user("hi"), THOUGHT, call(1), output(1)]}, False), ({"input": 3, "tools": 4}, False), ({"input": [3]}, False),
    ({"tools": [WEATHER, PATCH]}, True), ({"tools": [AGENTS]}, True), ({"tools": [{"type": "web_search"}]}, True),
    ({"tools": ["x"]}, True), ({"input": [{"type": ["x"]}]}, True),
    ({"input": [user("hi"), call(1, namespace="agents")]}, True),
    ({"input": [{"type": "custom_tool_call", "call_id": "c", "name": "n", "input": "x"}]}, True),
    ({"input": [{"type": "reasoning", "summary": []}]}, True), ({"input": [{"type": "item_reference", "id": "x"}]}, True)])
def test_what_only_openai_understands_needs_to_be_told_otherwise(body, needs):
    assert needs_translation(body) is needs


WORDS = st.sampled_from(["function", "custom", "namespace", "tool_search", "message", "reasoning", "function_call", "client",
                         "function_call_output", "custom_tool_call", "local_shell_call", "input_text", "input_image", "user",
                         "assistant", "developer", "json_schema", "allowed_tools", "additional_tools", "x", ""])
NAMES = st.sampled_from([
    "type", "role", "content", "name", "namespace", "arguments", "call_id", "output", "tools", "tool_choice", "input", "text",
    "format", "reasoning", "effort", "summary", "execution", "parameters", "action", "image_url", "detail", "mode",
    "instructions", "include", "definition", "schema"])
JSON = st.recursive(st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.floats(-1, 1), WORDS),
                    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=4)),
                    max_leaves=20)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(NAMES, JSON, max_size=6))
def test_whatever_is_asked_is_told_or_refused(body):
    needs_translation(body)
    try:
        told = to_chat(body, "m")
    except InvalidRequest:
        return
    assert json.loads(json.dumps(told.body))["messages"]
    assert all(isinstance(tool["function"]["name"], str) for tool in told.body.get("tools", ()))
