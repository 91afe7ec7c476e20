"""Keys: shown once, kept as hashes, compared in constant time, never shown by accident."""

from __future__ import annotations

import os
import pickle

import pytest

from iop import keys
from iop.errors import AuthFailed, ConfigError


def test_a_key_is_verified_and_its_secret_is_stored_nowhere(tmp_path):
    key, text = keys.make_key("api", "anna", ["models"])
    file = str(tmp_path / "keys.yaml")
    keys.save_keys(file, [key])
    assert os.stat(file).st_mode & 0o777 == 0o600
    assert text[-43:] not in open(file).read()
    assert keys.KeyRing(keys.load_keys(file)).verify("api", text) == key


@pytest.mark.parametrize("owner", ["1e3", "no", "null", "012"])
def test_an_owner_that_looks_like_something_else_is_kept(tmp_path, owner):
    key, _ = keys.add_key(tmp_path / "keys.yaml", "api", owner)
    assert keys.load_keys(tmp_path / "keys.yaml") == [key]


@pytest.mark.parametrize("spoil", [
    lambda text: text[:-1] + ("a" if text[-1] != "a" else "b"),
    lambda text: text.replace("iopo_", "iopn_"),
    lambda text: "", lambda text: "é" * 70, lambda text: "\udc80", lambda text: text + "\n",
    lambda text: "iopo_aaaaaaaaaaaaaaaa_" + text[-43:],
    lambda text: "' OR 1=1 --",
])
def test_anything_else_than_the_key_is_refused(spoil):
    key, text = keys.make_key("api", "anna")
    with pytest.raises(AuthFailed):
        keys.KeyRing([key]).verify("api", spoil(text))


def test_a_key_ends_when_its_time_is_over():
    key, text = keys.make_key("node", "box", not_after=100)
    assert keys.KeyRing([key], lambda: 99.0).verify("node", text) == key
    with pytest.raises(AuthFailed):
        keys.KeyRing([key], lambda: 100.0).verify("node", text)


def test_a_node_token_is_no_api_key():
    key, text = keys.make_key("node", "box")
    with pytest.raises(AuthFailed):
        keys.KeyRing([key]).verify("api", text)


def test_a_secret_does_not_show_itself():
    secret = keys.Secret("hunter2")
    assert "hunter2" not in f"{secret} {secret!r} {str(secret)} {secret:>20}"
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    assert secret.reveal() == "hunter2"


def test_a_file_of_keys_that_cannot_be_looked_at_is_an_error_and_not_an_empty_one(tmp_path):
    assert keys.load_keys(tmp_path / "keys.yaml") == []
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be read: Not a directory"):
        keys.load_keys(tmp_path / "file" / "keys.yaml")
