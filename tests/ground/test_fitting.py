"""What fits of foreign JSON is kept, whatever stands beside it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iop.fitting import fitted


class Inner(msgspec.Struct):
    text: str | None = None
    number: int = 0
    kept: msgspec.Raw = msgspec.Raw(b"")


class Outer(msgspec.Struct):
    inner: Inner | None = None
    row: list[Inner] = []
    maybe: list[Inner] | None = None
    names: list[str] | None = None
    any: Any = None


@pytest.mark.parametrize(("value", "expected"), [
    (3, Outer()), ([], Outer()), ({"unknown": 1}, Outer()), ({"inner": 3, "any": 4}, Outer(any=4)),
    ({"inner": {"text": "a", "number": "x"}}, Outer(inner=Inner(text="a"))),
    ({"row": [{"text": "a"}, 5, {"text": 6, "number": 7}]}, Outer(row=[Inner(text="a"), Inner(), Inner(number=7)])),
    ({"maybe": [{"text": []}], "row": {}}, Outer(maybe=[Inner()])), ({"names": ["a", 3], "any": []}, Outer(any=[])),
    ({"inner": {"number": None, "kept": {"a": [1]}}}, Outer(inner=Inner(kept=msgspec.Raw(b'{"a": [1]}'))))])
def test_each_field_that_fits_is_kept(value: Any, expected: Outer) -> None:
    assert fitted(value, Outer) == expected


names = st.sampled_from(["inner", "row", "maybe", "names", "any", "text", "number", "kept"])
values = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
                      lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4), max_leaves=12)


@given(values)
def test_whatever_it_is_something_comes_of_it(value: Any) -> None:
    assert isinstance(fitted(value, Outer), Outer)


@given(values)
def test_what_fits_as_a_whole_is_read_as_msgspec_reads_it(value: Any) -> None:
    try:
        expected = msgspec.json.decode(json.dumps(value, allow_nan=False).encode(), type=Outer)
    except (msgspec.ValidationError, ValueError):
        return
    assert fitted(value, Outer).row == expected.row
