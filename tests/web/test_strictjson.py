"""JSON from outside has one meaning or none."""

import json
from typing import Annotated, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iop.errors import InvalidRequest, TooLarge
from iop.web.strictjson import convert, loads

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
                      lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=20)


@given(VALUES)
def test_what_is_json_is_read(value):
    assert loads(json.dumps(value).encode()) == value
    assert loads(json.dumps(value, ensure_ascii=False).encode()) == value


@pytest.mark.parametrize(("body", "word"), [
    (b"", "not JSON"), (b"{", "not JSON"), (b"{'a': 1}", "not JSON"), (b"[1,]", "not JSON"), (b"1 2", "not JSON"),
    (b"NaN", "NaN"), (b"[Infinity]", "Infinity"), (b"-Infinity", "Infinity"), (b"1e999", "too large"),
    (b'{"a": 1, "b": 2, "a": 3}', "twice"), (b'[{"x": {"a": 1, "a": 1}}]', "twice"),
    (b'"\\ud800"', "surrogate"), (b'{"\\uDC00": 1}', "surrogate"), (b'"\xed\xa0\x80"', "UTF-8"), (b'"\xff"', "UTF-8"),
    (b"[" * 65 + b"]" * 65, "deeper"), (b'{"a":' * 65 + b"1" + b"}" * 65, "deeper"),
    (b"[" * 100_000 + b"]" * 100_000, "deeper"), (b"9" * 5000, "too long"), ("[1]".encode("utf-16"), "UTF-8"),
])
def test_what_is_not_is_refused_with_a_reason(body, word):
    with pytest.raises(InvalidRequest) as refused:
        loads(body)
    assert word in refused.value.message


@pytest.mark.parametrize("item", ["[]", "{}", "1", '""', '"a,b"', '{"k":[1,[2]]}', "[" * 60 + "]" * 60])
def test_a_body_of_more_values_than_can_be_read_in_one_turn_is_refused(item):
    with pytest.raises(TooLarge):
        loads(f"[{','.join([item] * 250_001)}]".encode())


@pytest.mark.parametrize("piece", ["[{,", '\\"', "\\", '\\\\",', '",', "\\\\\\\\", '"[', "é"])
def test_a_long_text_is_one_value_whatever_it_holds(piece):
    for value in (piece * 400_000, [piece * 300_000, {piece: piece * 300_000}]):
        assert loads(json.dumps(value).encode()) == value


def test_a_pair_of_surrogates_is_one_character():
    assert loads(b'"\\ud83d\\ude00"') == "😀"


def test_sixty_four_levels_are_allowed():
    assert loads(b"[" * 64 + b"]" * 64) is not None


def test_an_unknown_field_is_named():
    class Asked(msgspec.Struct, forbid_unknown_fields=True):
        a: int = 0

    with pytest.raises(InvalidRequest) as refused:
        convert({"a": 1, "b": 2}, Asked)
    assert refused.value.message == "b is not known; allowed here: a."


@pytest.mark.parametrize(("value", "sentence"), [
    ({"state": "gone"}, "state must be one of up, down."), ({"limit": "x"}, "limit must be a whole number from 1 to 9."),
    ({"limit": 10}, "limit must be a whole number from 1 to 9."), ([], "The request must be a mapping of limit, state."),
    ({"state": 3}, "state must be one of up, down."),
])
def test_what_does_not_fit_is_told_with_what_is_allowed(value, sentence):
    class Asked(msgspec.Struct):
        state: Literal["", "up", "down"] = ""
        limit: Annotated[int, msgspec.Meta(ge=1, le=9)] | None = None

    with pytest.raises(InvalidRequest) as refused:
        convert(value, Asked, strict=False)
    assert refused.value.message == sentence
