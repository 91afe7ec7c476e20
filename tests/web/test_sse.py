"""The framing of Server-Sent Events."""

from hypothesis import given
from hypothesis import strategies as st

from iop.cli.client import parse_events
from iop.events import json_encode
from iop.web.sse import data_frame, data_frames


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_is_one_frame_and_comes_back(text):
    frame = data_frame(json_encode({"text": text}))
    assert frame.count(b"\n") == 2
    assert b"\r" not in frame
    assert [event.data["text"] for event in parse_events(iter(frame.splitlines(keepends=True)))] == [text]


def test_line_ends_between_tokens_are_spaces():
    assert data_frame(b'{"a":\r\n1\n}') == b'data: {"a":  1 }\n\n'


@given(st.lists(st.sampled_from([b"{}", b'{"a":1}', b'{"a":\n1}', b"\r{}", b"{}\n\n", b"\n"])))
def test_many_frames_are_the_frames_of_each(pieces):
    assert data_frames(pieces) == b"".join([data_frame(piece) for piece in pieces])
