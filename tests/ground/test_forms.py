"""Where a form's field stands in its bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iop.errors import InvalidRequest
from iop.forms import field_text, find_field

TYPE = "multipart/form-data; boundary=XX"


def form(*parts: bytes) -> bytes:
    return b"".join(b"--XX\r\n" + part + b"\r\n" for part in parts) + b"--XX--\r\n"


def field(name: str, value: bytes, more: str = "") -> bytes:
    return f'Content-Disposition: form-data; name="{name}"{more}'.encode() + b"\r\n\r\n" + value


def test_a_field_is_found_wherever_it_stands_and_can_be_put_in_another_value():
    body = form(field("file", b"\x00\xff--XY model", '; filename="a.wav"'), field("model", b"whisper"), field("n", b"1"))
    place = find_field(body, TYPE, "model")
    assert body[place] == b"whisper"
    other = body[:place.start] + b"backend/name" + body[place.stop:]
    assert other == form(field("file", b"\x00\xff--XY model", '; filename="a.wav"'), field("model", b"backend/name"),
                         field("n", b"1"))


@pytest.mark.parametrize("content_type", ['multipart/form-data; boundary="XX"',
                                          "Multipart/Form-Data; charset=x; Boundary=XX"])
def test_the_boundary_may_be_quoted_and_stand_behind_other_words(content_type):
    assert field_text(form(field("model", b"m")), content_type, "model") == "m"


def test_an_absent_field_is_none_and_an_empty_one_is_empty():
    assert field_text(form(field("a", b"1")), TYPE, "model") is None
    assert field_text(form(field("model", b"")), TYPE, "model") == ""


def test_what_looks_like_a_field_within_a_files_bytes_is_none():
    inner = field("model", b"evil").replace(b"\r\n", b"\n")
    assert field_text(form(field("file", inner, '; filename="x"')), TYPE, "model") is None


@pytest.mark.parametrize("body", [
    b"", b"--XX", b"--XX\r\n", form(field("a", b"\r\n--XXY\r\n" + field("model", b"a"))),
    form(field("model", b"a"), field("model", b"b")), form(b"no head"),
    form(b'Content-Disposition: form-data; name="model"; name="other"\r\n\r\nx'), form(field("model", b"x" * 5000)),
    form(field("model", b"\xff")), form(field("model", b"a"))[:-8], b"--XY\r\n" + field("model", b"a") + b"\r\n--XY--"])
def test_what_could_be_read_in_two_ways_is_refused(body):
    with pytest.raises(InvalidRequest):
        field_text(body, TYPE, "model")


@pytest.mark.parametrize("content_type", ["", "application/json", "multipart/form-data", "multipart/form-data; boundary=",
                                          "multipart/form-data; boundary=XX; boundary=YY"])
def test_a_body_without_a_boundary_is_no_form(content_type):
    with pytest.raises(InvalidRequest):
        field_text(form(field("model", b"m")), content_type, "model")


@given(st.binary(max_size=300))
def test_no_bytes_break_the_search(noise):
    for body in (noise, b"--XX\r\n" + noise, form(field("file", noise), field("model", b"m"))):
        try:
            place = find_field(body, TYPE, "model")
        except InvalidRequest:
            continue
        assert place is None or 0 <= place.start <= place.stop <= len(body)
