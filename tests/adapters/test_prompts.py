"""What a program is asked, out of the body of each model API."""

import json

import pytest

from iop.adapters.argv import prompt_of
from iop.errors import InvalidRequest
from iop.proto.run_pb2 import RunRequest

TURNS = [{"role": "system", "content": "s"}, {"role": "user", "content": "first"}, {"role": "user", "content": "last"}]
PARTS = [{"role": "user", "content": [{"type": "text", "text": "la"}, {"type": "text", "text": "st"}]}]


def asked(api, body):
    return prompt_of(RunRequest(api=api, body=json.dumps(body).encode()))


@pytest.mark.parametrize("api", ["", "chat/completions", "messages", "api/chat"])
def test_of_messages_the_users_last_one_is_the_prompt(api):
    assert asked(api, {"messages": TURNS}) == "last"
    assert asked(api, {"messages": PARTS}) == "la\nst"


@pytest.mark.parametrize(("api", "body", "prompt"), [
    ("completions", {"prompt": "once"}, "once"), ("completions", {"prompt": ["once"]}, "once"),
    ("api/generate", {"prompt": "once", "system": "s"}, "once"), ("responses", {"input": "once"}, "once"),
    ("responses", {"input": TURNS}, "last")])
def test_a_prompt_is_found_where_its_api_has_it(api, body, prompt):
    assert asked(api, body) == prompt


@pytest.mark.parametrize(("api", "body"), [
    ("completions", {"prompt": ["a", "b"]}), ("completions", {"prompt": [1, 2]}), ("chat/completions", {"messages": []}),
    ("embeddings", {"input": "x"}), ("api/chat", {"messages": [{"role": "user", "content": [{"type": "image"}]}]}),
    ("responses", []), ("messages", {"messages": "x"})])
def test_what_is_no_one_prompt_is_refused(api, body):
    with pytest.raises(InvalidRequest):
        asked(api, body)
