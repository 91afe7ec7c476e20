"""A response outlives its reader and its edge: the same events, under the same numbers, from the history."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import openai

from tests.e2e.up import Up, eventually
from tests.real.scripted import Reply, Scripted, run_command, say

WORDS = " ".join(f"word{number}" for number in range(120))


def client_of(up: Up) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{up.ready['http']}/v1", api_key=up.ready["api_key"], timeout=30, max_retries=0)


def text(events: list[Any]) -> str:
    return "".join(event.delta for event in events if event.type == "response.output_text.delta")


def test_a_stream_is_taken_up_behind_a_kill_of_its_edge(bring_up: Callable[..., Up]) -> None:
    with Scripted(say(WORDS, pause_s=0.05)) as backend:
        up = bring_up("--openai", f"fake={backend.url}")
        seen: list[Any] = []
        with client_of(up).responses.create(model="fake", input="hi", background=True, stream=True) as stream:
            for event in stream:
                seen.append(event)
                if len(seen) == 30:
                    break
        killed = up.ready["edge_pid"]
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: up.ready["edge_pid"] != killed and up.is_ready(), "the edge is up again")
        responses = client_of(up).responses
        name = seen[0].response.id
        rest = list(responses.retrieve(name, stream=True, starting_after=seen[-1].sequence_number))
        assert text(seen + rest) == WORDS, "nothing is missing, nothing comes twice"
        assert [event.sequence_number for event in seen + rest] == list(range(len(seen) + len(rest)))
        assert responses.retrieve(name).output_text == WORDS and rest[-1].response.status == "completed"
        assert len(backend.asked) == 1


def test_a_backend_without_the_api_is_asked_as_a_chat(bring_up: Callable[..., Up]) -> None:
    tool = {"type": "function", "name": "shell", "strict": False,
            "parameters": {"type": "object", "properties": {"command": {"type": "string"}}}}
    with Scripted(run_command("ls", "Two files.", "Let me look.")) as backend:
        up = bring_up("--openai", f"fake={backend.url}")
        responses = client_of(up).responses
        first = responses.create(model="fake", input="what is here?", tools=[tool], instructions="Be brief.")
        thought, call = first.output
        assert (thought.content[0].text.strip(), call.name, call.arguments) == (
            "Let me look.", "shell", '{"command": "ls"}')
        told = [{"type": "function_call_output", "call_id": call.call_id, "output": "a b"}]
        with responses.stream(model="fake", input=told, tools=[tool], previous_response_id=first.id) as stream:
            assert stream.until_done().get_final_response().output_text == "Two files."
        assert backend.paths == ["/v1/responses", "/v1/chat/completions", "/v1/chat/completions"], "asked once, then known"
        assert [message["role"] for message in backend.asked[1]["messages"]] == ["user", "assistant", "tool"]
        bad = openai.BadRequestError
        odd = [{"type": "function_call"}]
        assert _raised(bad, lambda: responses.create(model="fake", input=odd)).code == "invalid_request"
        backend.play = lambda body: Reply("The prompt exceeds the available context size.", status=400)
        assert _raised(bad, lambda: responses.create(model="fake", input="x")).code == "context_length_exceeded"


def _raised(kind: type[openai.APIStatusError], work: Callable[[], object]) -> openai.APIStatusError:
    try:
        work()
    except kind as error:
        return error
    raise AssertionError("it did not fail")
