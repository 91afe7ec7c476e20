"""What stands in the history's search column, whichever API asked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from iop.edge.submit import PROMPT_CHARS, prompt_text
from iop.proto.run_pb2 import RunRequest

PARTS = [{"type": "input_text", "text": "one"}, {"type": "input_image", "image_url": "x"},
         {"type": "input_text", "text": "two"}]


@pytest.mark.parametrize(("body", "text"), [
    ({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]}, "Be brief.\nhi"),
    ({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}]}, "a"),
    ({"prompt": "hi"}, "hi"), ({"input": "hi"}, "hi"), ({"input": ["one", "two"]}, "one\ntwo"), ({"prompt": [1, 2]}, ""),
    ({"input": [{"role": "user", "content": PARTS}, {"type": "function_call"}, {"role": "user", "content": "x"}]},
     "one\ntwo\nx"),
    ({"input": "x" * 9000}, "x" * PROMPT_CHARS), ({"input": {"odd": 1}}, ""), ({}, "")])
def test_a_body_is_searched_for_by_its_text(body: dict[str, Any], text: str) -> None:
    assert prompt_text(RunRequest(body=json.dumps(body).encode())) == text


def test_what_is_no_json_has_no_text() -> None:
    assert prompt_text(RunRequest(body=b"\xff{")) == "" and prompt_text(RunRequest(prompt="hi")) == "hi"
