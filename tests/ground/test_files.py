"""Who may read a file of secrets."""

import errno
import os

import pytest

from iop.errors import ConfigError
from iop.files import check_private, make_private, read_secret, take_lock, write_private


@pytest.fixture
def secret(tmp_path):
    write_private(str(tmp_path / "token"), b"iopn_x\n")
    return tmp_path / "token"


def test_a_written_secret_is_private_and_whole(secret):
    check_private(str(secret))
    assert read_secret(str(secret)) == "iopn_x"
    assert [path.name for path in secret.parent.iterdir()] == ["token"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_secret_open_to_others_is_refused(secret, mode):
    secret.chmod(mode)
    with pytest.raises(ConfigError, match="chmod 600"):
        check_private(str(secret))


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a file of root, as systemd does")
@pytest.mark.parametrize(("mode", "allowed"), [(0o440, True), (0o444, False), (0o460, False)])
def test_a_credential_of_systemd_is_readable_through_its_access_list(secret, monkeypatch, mode, allowed):
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(secret.parent))
    secret.chmod(mode)
    if allowed:
        check_private(str(secret))
    else:
        with pytest.raises(ConfigError):
            check_private(str(secret))


def test_a_secret_elsewhere_gains_nothing_from_credentials(secret, monkeypatch, tmp_path):
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "elsewhere"))
    secret.chmod(0o440)
    with pytest.raises(ConfigError):
        check_private(str(secret))


def test_a_token_file_that_is_missing_is_one_sentence(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_secret(str(tmp_path / "none"))


def test_a_folder_open_to_others_is_refused(tmp_path):
    (tmp_path / "state").mkdir(mode=0o755)
    with pytest.raises(ConfigError, match="chmod 700"):
        make_private(tmp_path / "state")


def test_a_folder_that_cannot_be_made_is_one_sentence(secret):
    with pytest.raises(ConfigError, match="cannot be made"):
        make_private(secret / "state")


def test_a_lock_is_held_by_one(tmp_path):
    held = take_lock(tmp_path / "lock")
    assert held is not None and take_lock(tmp_path / "lock") is None
    os.close(held)
    again = take_lock(tmp_path / "lock")
    assert again is not None
    os.close(again)


def test_a_write_that_fails_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch):
    file = str(tmp_path / "keys.yaml")
    write_private(file, b"old")
    monkeypatch.setattr(os, "fsync", lambda descriptor: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError):
        write_private(file, b"new")
    assert open(file, "rb").read() == b"old"
    assert os.listdir(tmp_path) == ["keys.yaml"]


def test_a_write_that_the_disk_does_not_take_names_the_file(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=f"{tmp_path}/ready.json"):
        write_private(tmp_path / "ready.json", b"x")
    assert os.listdir(tmp_path) == []
