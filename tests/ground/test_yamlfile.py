"""Configuration files: every fault is one sentence with file, line and what is allowed; what is written is read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iop import config, yamlfile
from iop.errors import ConfigError

EDGE = """\
edge: {id: home}
nodes:
  - id: box
    adapters:
      cli:
        concurrency: 2
        targets:
          hi: {argv: [/bin/echo, "{prompt}"], retry: safe, aliases: [hello]}
"""

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)
VALUES = st.recursive(TEXT | st.sampled_from(["1e3", "no", "012", "12:30", "null", "~", "", "true", "-1", "- a", "*x", "&x"])
                      | st.integers(-10**9, 10**9) | st.booleans() | st.none(),
                      lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT.filter(bool), inner, max_size=3),
                      max_leaves=8)


def load(tmp_path, text, reader=config.load_edge):
    file = tmp_path / "x.yaml"
    file.write_text(text)
    return reader(str(file))


def fault(tmp_path, text, reader=config.load_edge):
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, reader)
    return caught.value.message.replace(str(tmp_path) + "/", "")


def test_a_whole_file_is_read_as_messages(tmp_path):
    edge = load(tmp_path, EDGE)
    adapter = edge.nodes[0].adapters[0]
    assert (adapter.adapter, adapter.concurrency) == ("cli", 2)
    assert adapter.targets[0].settings == b'{"argv":["/bin/echo","{prompt}"]}'
    assert adapter.targets[0].retry_safe is True
    assert list(adapter.targets[0].aliases) == ["hello"]


@pytest.mark.parametrize("text, sentence", [
    ("edge:\n  idd: a\n", "x.yaml, line 2: edge.idd is not known; allowed here: id, link_window_bytes, lost_after_s, "
                          "run_window_bytes, state, tail_bytes."),
    ("listen:\n  http:\n    port: 99999\n", "x.yaml, line 3: listen.http.port must be a whole number from 0 to 65535."),
    ("edge:\n  id: a\n  id: b\n", "x.yaml, line 3: edge.id stands here twice."),
    ("nodes:\n- id: n\n  adapters:\n    cli:\n      target: {}\n",
     "x.yaml, line 5: nodes[0].adapters.cli.target is not known; allowed here: concurrency, targets."),
    ("nodes:\n- id: n\n  adapters:\n    cli:\n      targets:\n        x: {retry: maybe}\n",
     "x.yaml, line 6: nodes[0].adapters.cli.targets.x.retry must be one of safe, never."),
    ("nodes:\n- id: n\n- id: n\n", "x.yaml, line 3: the node n stands here twice."),
    ("nodes:\n- labels: {}\n", "x.yaml, line 2: nodes[0] needs `id`."),
    ("a: &x 1\n", "x.yaml, line 1: anchors and aliases are not allowed; write the value out."),
    ("edge: [\n", "x.yaml, line 2: this is not YAML: expected the node content, but found '<stream end>'."),
    ("edge: {id: true}\n", "x.yaml, line 1: edge.id must be text: letters, digits and . _ -, at most 64."),
    ("edge: {id: a b}\n", "x.yaml, line 1: edge.id must be text: letters, digits and . _ -, at most 64."),
    ("edge:\n  lost_after_s: soon\n", "x.yaml, line 2: edge.lost_after_s must be a number from 0 to 31536000."),
    ("nodes: {id: n}\n", "x.yaml, line 1: nodes must be a list, each entry a mapping of names."),
    ("listen: {link: {tls: yes}}\n", "x.yaml, line 1: listen.link.tls must be a mapping of cert, key."),
    ("listen: {http: {names: [a, 1]}}\n", "x.yaml, line 1: listen.http.names[1] must be text."),
    ("nodes:\n- id: n\n  labels: {a: 1}\n",
     "x.yaml, line 3: nodes[0].labels must be a mapping of names, each value text."),
    ("nodes:\n- id: n\n  adapters:\n    cli:\n      concurrency: many\n",
     "x.yaml, line 5: nodes[0].adapters.cli.concurrency must be a whole number from 0 to 100000."),
    ("listen: {console: {manhole: no}}\n", "x.yaml, line 1: listen.console.manhole must be true or false."),
])
def test_a_fault_names_file_line_and_what_is_allowed(tmp_path, text, sentence):
    assert fault(tmp_path, text) == sentence


def test_trusting_needs_a_second_word_from_the_owner(tmp_path):
    text = "node: {id: n}\nedge: {}\npolicy:\n  mode: trusting\n"
    assert "line 4" in fault(tmp_path, text, config.load_node)
    load(tmp_path, text + "  trust_edge_commands: true\n", config.load_node)


def test_yaml_1_1_holds_no_surprises():
    value = yamlfile.parse(b"a: no\nb: 12:30:00\nc: 012\nd: 12\ne: 1.5\nf: true\ng: ~\n", "x").value
    assert value == {"a": "no", "b": "12:30:00", "c": "012", "d": 12, "e": 1.5, "f": True, "g": None}


def test_a_file_that_is_too_deep_or_too_large_is_refused():
    for data in (b"[" * 40 + b"]" * 40, b"[" * 5000, b"a: " + b"x" * yamlfile.MAX_BYTES):
        with pytest.raises(ConfigError):
            yamlfile.parse(data, "x")


@given(st.binary(max_size=200) | st.text(alphabet="ab:-[]{}&*!#'\"\n ,?|>%@`~0", max_size=60).map(str.encode))
def test_whatever_the_bytes_only_a_config_error_is_raised(data):
    try:
        yamlfile.parse(data, "x")
    except ConfigError:
        pass


@given(st.dictionaries(st.from_regex(r"[a-z0-9]{1,6}", fullmatch=True), VALUES, min_size=1, max_size=4))
def test_a_dumped_value_is_read_back(value):
    assert yamlfile.parse(yamlfile.dump(value).encode(), "f").value == value


def test_a_list_that_stands_twice_is_written_out():
    twice = ["a"]
    assert "*" not in yamlfile.dump({"x": twice, "y": twice})
