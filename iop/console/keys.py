"""Who may log in, and how the console proves itself: authorized_keys and the host key, both files only their owner reads."""

from __future__ import annotations

import os
import shlex
import struct
from dataclasses import dataclass

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from twisted.conch.ssh import common
from twisted.conch.ssh.keys import BadKeyError, FingerprintFormats, Key

from iop.errors import ConfigError
from iop.files import check_private, write_private
from iop.keys import SCOPES

# Signatures that a login may use. SHA-1 (ssh-rsa), DSA and the NIST curves above 256 bits are left out.
SIGNATURES = (b"ssh-ed25519", b"ecdsa-sha2-nistp256", b"rsa-sha2-512", b"rsa-sha2-256")
_KEY_TYPES = {b"ssh-ed25519": b"ssh-ed25519", b"ecdsa-sha2-nistp256": b"ecdsa-sha2-nistp256", b"rsa-sha2-512": b"ssh-rsa",
              b"rsa-sha2-256": b"ssh-rsa"}
_LARGEST_FILE = 262_144   # bytes


@dataclass(frozen=True)
class AuthorizedKey:
    """One line of authorized_keys: a key, whose it is, and what it may do (``iop-scopes="runs:read,nodes:read"``)."""

    blob: bytes
    comment: str
    scopes: frozenset[str]

    @property
    def fingerprint(self) -> str:
        """As ssh-keygen -l prints it."""
        text = Key.fromString(self.blob).fingerprint(FingerprintFormats.SHA256_BASE64)
        return "SHA256:" + text.rstrip("=")

    @property
    def principal(self) -> str:
        """Who this is, in events and in the audit trail."""
        return f"{self.fingerprint} {self.comment}".strip()


def read_authorized(file: str) -> list[AuthorizedKey]:
    """The keys of a file like ssh's authorized_keys; none when there is no such file.

    Raises ConfigError when others may write or read it, or for a line that is no key, with its number.
    """
    if not os.path.exists(file):
        return []
    check_private(file)
    with open(file, "rb") as stream:
        data = stream.read(_LARGEST_FILE + 1)
    if len(data) > _LARGEST_FILE:
        raise ConfigError(f"{file} is larger than {_LARGEST_FILE} bytes.")
    lines = data.decode("utf-8", "replace").splitlines()
    stripped = ((number, line.strip()) for number, line in enumerate(lines, 1))
    return [_read_line(file, number, line) for number, line in stripped if line and not line.startswith("#")]


def _read_line(file: str, number: int, line: str) -> AuthorizedKey:
    scopes = frozenset(("admin",))
    try:
        if not line.startswith(("ssh-", "ecdsa-")):
            words = shlex.split(line)
            options, line = words[0], line.split(None, 1)[1]
            scopes = _scopes(options)
        kind, encoded, *comment = line.split(None, 2)
        key = Key.fromString(f"{kind} {encoded}".encode("ascii"))
    except (BadKeyError, ValueError, IndexError) as error:
        reason = str(error) if isinstance(error, _BadOption) else "the line is no public key as ssh-keygen writes it"
        raise ConfigError(f"{file}, line {number}: {reason}.") from None
    if key.sshType() not in _KEY_TYPES.values() or not key.isPublic():
        raise ConfigError(f"{file}, line {number}: the key must be ed25519, ecdsa nistp256 or rsa.")
    return AuthorizedKey(key.blob(), " ".join(comment), scopes)


class _BadOption(ValueError):
    pass


def _scopes(options: str) -> frozenset[str]:
    name, _, value = options.partition("=")
    scopes = frozenset(filter(None, value.split(",")))
    if name != "iop-scopes" or not scopes <= set(SCOPES):
        raise _BadOption(f'the only option is iop-scopes="…", with scopes among {", ".join(SCOPES)}')
    return scopes


def right_signature(key: Key, algorithm: bytes, signature: bytes, data: bytes) -> bool:
    """Whether `signature` is this key's over `data`, made with the algorithm it names, one of SIGNATURES. Never raises."""
    try:
        if _KEY_TYPES.get(algorithm) != key.sshType() or common.getNS(signature)[0] != algorithm:
            return False
        return bool(key.verify(signature, data))
    except (struct.error, ValueError, TypeError, IndexError):  # malformed
        return False


def host_key(file: str) -> Key:
    """The console's own ed25519 key; made, 0600, when there is none. Raises ConfigError when others may read it."""
    if not os.path.exists(file):
        made = ed25519.Ed25519PrivateKey.generate()
        try:
            write_private(file, made.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH,
                                                   serialization.NoEncryption()))
        except OSError as error:
            raise ConfigError(f"The console's host key {file} cannot be made: {error.strerror}.") from None
    check_private(file)
    return _load(file)


def _load(file: str) -> Key:
    try:
        key = Key.fromFile(file)
    except (BadKeyError, ValueError, OSError):
        raise ConfigError(f"The console's host key {file} is no ed25519 key; remove it to have one made.") from None
    if key.isPublic() or key.sshType() != b"ssh-ed25519":
        raise ConfigError(f"The console's host key {file} is no ed25519 key; remove it to have one made.")
    return key
