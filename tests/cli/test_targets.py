"""What a person types to `iop up`, and what comes of it."""

import sys

import pytest

from iop.cli import targets
from iop.errors import ConfigError


def test_a_program_is_found_on_path_and_split_without_a_shell():
    target = targets.program("hello=echo 'two words' {prompt}")
    assert target.settings["argv"][0].endswith("/echo") and target.settings["argv"][0].startswith("/")
    assert target.settings["argv"][1:] == ["two words", "{prompt}"]
    assert target.programs == [target.settings["argv"][0]]


def test_an_absolute_path_stays_as_given():
    assert targets.program(f"py={sys.executable} -V").settings["argv"] == [sys.executable, "-V"]


@pytest.mark.parametrize("text", ["hello", "=echo", "hello=", "hello='echo", "hello=no-such-program-here", "a b=echo",
                                  "hello=echo x{prompt}"])
def test_what_cannot_be_a_program_is_one_sentence(text):
    with pytest.raises(ConfigError, match="--cli"):
        targets.program(text)


def test_a_model_keeps_its_own_name_behind_the_hash():
    target = targets.model("openai", "small=http://127.0.0.1:8080/v1#org/Model:7b")
    assert (target.name, target.settings["model"]) == ("small", "org/Model:7b")
    assert target.upstreams == ["127.0.0.1:8080"]


def test_a_model_without_a_hash_has_the_target_s_name():
    assert targets.model("ollama", "llama=http://127.0.0.1:11434").settings["model"] == "llama"


@pytest.mark.parametrize("text", ["small", "small=127.0.0.1:8080", "small=file:///etc/passwd",
                                  "small=http://h:99999", "small=http://me:secret@h/v1", "a b=http://h"])
def test_what_cannot_be_a_model_is_one_sentence(text):
    with pytest.raises(ConfigError, match="--openai"):
        targets.model("openai", text)


def test_one_name_for_two_targets_is_refused():
    with pytest.raises(ConfigError, match="declared twice"):
        targets.adapters([targets.program("x=echo"), targets.model("openai", "x=http://127.0.0.1:1/v1")])


def test_the_policy_allows_exactly_what_was_typed():
    policy = targets.policy([targets.program("x=echo {prompt}"), targets.model("openai", "m=http://10.0.0.1:1/v1")])
    assert [path.rsplit("/")[-1] for path in policy["executables"]] == ["echo"]
    assert policy["upstreams"] == ["10.0.0.1:1"] and policy["mode"] == "guided"
