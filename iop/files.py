"""Files and folders of one owner: who may read them, how they are written whole or not at all, and who holds a lock."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from contextlib import suppress

from iop.errors import ConfigError
from iop.events import json_encode

StrPath = str | os.PathLike[str]


def check_private(path: StrPath, *, folder: bool = False) -> None:
    """Refuse a file or folder of secrets that others may read or that is not ours (as ssh does). Raises ConfigError."""
    status = os.stat(path)
    if status.st_uid not in (os.geteuid(), 0):
        raise ConfigError(f"{path} belongs to another user; it must belong to the user that runs this process.")
    # A service's credential is root's, and readable through an access list that shows as the group's bit (systemd.exec(5)).
    credentials = os.environ.get("CREDENTIALS_DIRECTORY", "")
    handed = credentials and os.path.dirname(os.path.abspath(path)) == credentials and status.st_uid == 0
    if status.st_mode & (0o037 if handed else 0o077):
        raise ConfigError(f"{path} is open to other users; run `chmod {'700' if folder else '600'} {path}`.")


def make_private(folder: StrPath) -> None:
    """Make a folder of mode 0700, or check that it is one. Raises ConfigError."""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"The folder {folder} cannot be made: {error.strerror}.") from None
    check_private(folder, folder=True)


def write_private(file: StrPath, data: bytes) -> None:
    """Write a file only its owner may read: temporary file, fsync, rename, fsync of the folder."""
    folder = os.path.dirname(file) or "."
    temporary = os.path.join(folder, f".{os.path.basename(file)}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, file)
    except BaseException as error:
        os.unlink(temporary)
        if isinstance(error, OSError):   # a write that fails, as on a full disk, does not say where
            error.filename = os.fspath(file)
        raise
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_secret(file: StrPath) -> str:
    """A token from a 0600 file. Raises ConfigError with what to do."""
    try:
        check_private(file)
        with open(file, "rb") as stream:
            return stream.read().decode("ascii").strip()
    except OSError as error:
        raise ConfigError(f"The token file {file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"The token file {file} holds something else than a token.") from None


def write_ready(file: StrPath, value: dict[str, object]) -> None:
    """Say that something is ready, and where."""
    write_private(file, json_encode(value) + b"\n")


def ready_pid(file: StrPath) -> int | None:
    """The process that said so; None where nobody did. It may have ended since."""
    try:
        with open(file, "rb") as stream:
            return int(json.load(stream)["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def remove_ready(file: StrPath) -> None:
    """It is not ready, or not any more."""
    with suppress(OSError):
        os.unlink(file)


def take_lock(file: StrPath) -> int | None:
    """A descriptor that holds the lock on `file`, or None when another process does.

    The kernel lets go of it when the descriptor is closed or the process ends, however it does.
    """
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
