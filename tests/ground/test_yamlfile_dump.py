"""What is written as YAML is read back as it was."""

from hypothesis import given
from hypothesis import strategies as st

from iop import yamlfile

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)
VALUES = st.recursive(TEXT | st.sampled_from(["1e3", "no", "012", "12:30", "null", "~", "", "true", "-1", "- a", "*x", "&x"])
                      | st.integers(-10**9, 10**9) | st.booleans() | st.none(),
                      lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT.filter(bool), inner, max_size=3),
                      max_leaves=8)


@given(st.dictionaries(st.from_regex(r"[a-z0-9]{1,6}", fullmatch=True), VALUES, min_size=1, max_size=4))
def test_a_dumped_value_is_read_back(value):
    assert yamlfile.parse(yamlfile.dump(value).encode(), "f").value == value


def test_a_list_that_stands_twice_is_written_out():
    twice = ["a"]
    assert "*" not in yamlfile.dump({"x": twice, "y": twice})
