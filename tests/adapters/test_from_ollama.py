"""Requests of Ollama's API, and of the older completions, in OpenAI's words."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iop.adapters.wire import from_completions, from_ollama
from iop.adapters.wire.ollama_embed import embed_body
from iop.adapters.wire.to_ollama import from_openai, unsaid
from iop.errors import InvalidRequest

USER = [{"role": "user", "content": "hi"}]


def chat(**more: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    told = from_ollama.to_openai("api/chat", {"model": "a", "messages": USER} | more, "m")
    assert told.api == "chat/completions" and told.body.pop("model") == "m"
    return told.body, told.warnings


@pytest.mark.parametrize(("asked", "told"), [
    ({}, {"stream": True}), ({"stream": False}, {"stream": False}), ({"stream": None}, {"stream": True}),
    ({"format": "json"}, {"response_format": {"type": "json_object"}}),
    ({"format": {"type": "object"}},
     {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}}}),
    ({"format": ""}, {}), ({"think": True}, {"chat_template_kwargs": {"enable_thinking": True}}),
    ({"think": "low"}, {"reasoning_effort": "low"}),
    ({"options": {"num_predict": -1, "temperature": 0, "top_k": 4, "stop": ["x"]}},
     {"temperature": 0, "top_k": 4, "stop": ["x"]}),
    ({"options": {"num_predict": 7, "repeat_penalty": 1.1}},
     {"max_tokens": 7, "repeat_penalty": 1.1, "repetition_penalty": 1.1}),
    ({"tools": [{"type": "function"}]}, {"tools": [{"type": "function"}]}), ({"tools": []}, {}),
    ({"logprobs": True, "top_logprobs": 2}, {"logprobs": True, "top_logprobs": 2}),
])
def test_what_a_chat_wishes_is_told(asked: dict[str, Any], told: dict[str, Any]) -> None:
    body, warnings = chat(**asked)
    assert body == {"messages": USER, "stream": True} | told and not warnings


@pytest.mark.parametrize(("asked", "words"), [
    ({"keep_alive": 0}, ["keep_alive"]), ({"options": {"num_ctx": 9, "mirostat": 1}}, ["num_ctx", "mirostat"])])
def test_what_only_ollama_has_is_a_warning(asked: dict[str, Any], words: list[str]) -> None:
    body, warnings = chat(**asked)
    assert body == {"messages": USER, "stream": True}
    assert [word for word, warning in zip(words, warnings, strict=True) if word in warning] == words


def test_calls_and_their_answers_find_each_other() -> None:
    call = {"function": {"name": "f", "arguments": {"a": 1}}}
    body, _ = chat(messages=[
        *USER,
        {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": [call, call, {"function": {"name": "g"}}]},
        {"role": "tool", "tool_name": "g", "content": "7"}, {"role": "tool", "tool_name": "f", "content": "1"},
        {"role": "tool", "tool_name": "f", "content": "2"}, {"role": "tool", "content": "nobody's"}])
    _, said, *answers = body["messages"]
    assert said["reasoning_content"] == "hm"
    assert [(one["id"], one["function"]["name"], json.loads(one["function"]["arguments"])) for one in said["tool_calls"]] == [
        ("call_0", "f", {"a": 1}), ("call_1", "f", {"a": 1}), ("call_2", "g", {})]
    assert [one["tool_call_id"] for one in answers] == ["call_2", "call_0", "call_1", "call_unknown"]


@pytest.mark.parametrize(("begin", "kind"), [("iVBORw0", "png"), ("/9j/4A", "jpeg"), ("R0lGOD", "gif"), ("UklGRg", "webp"),
                                             ("AAAA", "png")])
def test_images_are_told_with_their_kind(begin: str, kind: str) -> None:
    body, _ = chat(messages=[{"role": "user", "content": "", "images": [begin]}])
    url = f"data:image/{kind};base64,{begin}"
    assert body["messages"][0]["content"] == [{"type": "image_url", "image_url": {"url": url}}]


def test_generate_is_told_as_a_chat() -> None:
    told = from_ollama.to_openai("api/generate", {"model": "a", "prompt": "hi", "system": "be brief", "context": [1, 2],
                                                  "options": {"seed": 3}}, "m")
    assert told.body == {"model": "m", "messages": [{"role": "system", "content": "be brief"}, *USER], "stream": True,
                         "seed": 3}
    assert told.api == "chat/completions" and len(told.warnings) == 1 and "context" in told.warnings[0]


@pytest.mark.parametrize(("asked", "told"), [({"raw": True}, {}), ({"suffix": "}"}, {"suffix": "}"})])
def test_a_text_without_a_template_is_told_as_a_completion(asked: dict[str, Any], told: dict[str, Any]) -> None:
    found = from_ollama.to_openai("api/generate", {"model": "a", "prompt": "hi"} | asked, "m")
    assert (found.api, found.body) == ("completions", {"model": "m", "prompt": "hi", "stream": True} | told)


@pytest.mark.parametrize(("api", "body"), [
    ("api/chat", {"messages": "x"}), ("api/chat", {"messages": []}), ("api/chat", {"messages": USER, "options": 1}),
    ("api/chat", {"messages": [{"role": "user", "images": [1]}]}),
    ("api/chat", {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": 1}}]}]}),
    ("api/chat", {"messages": [{"role": "assistant", "tool_calls": ["x"]}]}),
    ("api/generate", {}), ("api/generate", {"prompt": ""}), ("api/embed", {}), ("api/embed", {"input": [1]})])
def test_what_is_no_request_is_refused(api: str, body: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        from_ollama.to_openai(api, body, "m")


json_values = st.recursive(st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
                           lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
                               st.sampled_from(["role", "content", "images", "tool_calls", "function", "name", "arguments"]),
                               inner, max_size=3), max_leaves=8)


@given(st.sampled_from(["api/chat", "api/generate", "api/embed"]), st.dictionaries(
    st.sampled_from(["messages", "prompt", "input", "options", "format", "think", "tools", "images", "system"]), json_values,
    max_size=5))
def test_whatever_comes_is_told_or_refused(api: str, body: dict[str, Any]) -> None:
    try:
        json.dumps(from_ollama.to_openai(api, body, "m").body)
    except InvalidRequest:
        pass


def test_what_is_told_to_openai_and_back_is_the_same() -> None:
    body = {"messages": [
        {"role": "system", "content": "s"}, {"role": "user", "content": "see", "images": ["iVBORw0"]},
        {"role": "assistant", "content": "", "thinking": "hm",
         "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]},
        {"role": "tool", "content": "42", "tool_name": "f"}], "stream": False, "format": {"type": "object"}, "think": False,
        "options": {"temperature": 0.5, "num_predict": 9, "seed": 1, "stop": ["x"], "top_k": 3},
        "tools": [{"type": "function"}]}
    told = from_ollama.to_openai("api/chat", {"model": "a"} | body, "b")
    assert not told.warnings and from_openai(told.body, "m", {}, None) == {"model": "m"} | body


@pytest.mark.parametrize(("body", "words"), [
    ({"prompt": "hi"}, []), ({"prompt": ["hi"], "max_tokens": 3, "x": 1}, []),
    ({"prompt": "hi", "echo": True, "best_of": 2, "suffix": "}", "logprobs": 0}, ["suffix", "echo", "best_of"])])
def test_a_completion_is_told_as_a_chat(body: dict[str, Any], words: list[str]) -> None:
    told = from_completions.to_chat(body, "m")
    kept = {name: value for name, value in body.items() if name in ("max_tokens", "x")}
    assert told.body == {"model": "m", "messages": USER} | kept
    assert len(told.warnings) == 1 + len(words)
    assert all(word in warning for word, warning in zip(words, told.warnings[1:], strict=True))


@pytest.mark.parametrize("prompt", [None, 7, [], ["a", "b"], [1, 2], [[1]]])
def test_a_prompt_that_is_not_one_text_cannot_be_a_chat(prompt: Any) -> None:
    with pytest.raises(InvalidRequest):
        from_completions.to_chat({"prompt": prompt}, "m")


@given(st.dictionaries(st.sampled_from(
    ["messages", "n", "stop", "tools", "tool_choice", "response_format", "reasoning_effort", "chat_template_kwargs", "stream",
     "temperature", "max_tokens", "logit_bias"]), json_values, max_size=6))
def test_whatever_chat_comes_is_told_to_ollama_or_refused(body: dict[str, Any]) -> None:
    try:
        json.dumps(from_openai(body, "m", {"num_ctx": 9}, "5m"))
        assert all(isinstance(sentence, str) for sentence in unsaid(body))
    except InvalidRequest:
        pass


@given(st.dictionaries(st.sampled_from(["input", "encoding_format", "dimensions"]), json_values, max_size=3))
def test_whatever_is_to_be_embedded_is_told_to_ollama_or_refused(body: dict[str, Any]) -> None:
    try:
        json.dumps(embed_body(body, "m", {"num_ctx": 9}, "5m"))
    except InvalidRequest:
        pass
