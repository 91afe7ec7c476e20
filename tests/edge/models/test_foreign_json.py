"""What backends and models wrote as JSON, or as something that is none."""

import msgspec
import pytest

from iop import events
from iop.edge.models.blocks import Blocks, Content
from iop.edge.models.deltas import CallBegin, CallPiece
from iop.edge.models.foreign_json import decode_any, read_as, read_object
from iop.edge.models.messages import MessagesStream
from tests.edge.models.conftest import entry, started

DEEP = b"[" * 100_000 + b"]" * 100_000


class Named(msgspec.Struct):
    name: str


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"7", b'{"name":7}', DEEP, b'{"other":' + DEEP + b"}"])
def test_what_cannot_be_read_as_expected_counts_as_absent(text):
    assert read_as(msgspec.json.Decoder(Named).decode, text) is None


def test_what_can_be_read_is_told_whatever_it_is():
    assert read_as(decode_any, b"0") == 0
    assert read_as(msgspec.json.Decoder(Named).decode, '{"name":"x","more":1}') == Named("x")


@pytest.mark.parametrize(("text", "value"), [("{}", {}), ('{"a":[1]}', {"a": [1]}), ("[1]", None), ("", None), (DEEP, None)])
def test_only_an_object_is_one(text, value):
    assert read_object(text) == value


def test_arguments_that_nest_too_deep_break_no_answer():
    arguments = '{"a":' + DEEP.decode() + "}"
    content, blocks = Content(), Blocks()
    for delta in (CallBegin(0, "c", "f"), CallPiece(0, arguments), CallBegin(1, "d", "g")):
        content.add(delta)
        blocks.add(delta)
    assert content.whole()[0]["input"] == {"INVALID_JSON": arguments}
    assert [event["index"] for event in blocks.finish() if event["type"] == "content_block_stop"] == [0, 1]


def test_chunks_that_nest_too_deep_break_no_stream():
    teller = MessagesStream("r1", "tiny", ["END"])
    teller.write(entry(started("chat/completions")))
    assert teller.write(entry(events.output("hi", raw=b'{"choices":[{"stop_reason":' + DEEP + b"}]}"))).count(b"event: ") == 3
    native = b'{"more":' + DEEP + b',"type":"odd"}'
    teller = MessagesStream("r1", "tiny")
    teller.write(entry(started()))
    assert teller.write(entry(events.output("", raw=native))) == b"event: message\ndata: " + native + b"\n\n"
