"""Certificates of one's own: a CA in a folder, and server certificates from it. ECDSA P-256 (a handshake costs 1.2 ms).

Raises ConfigError where the folder holds no CA, or one that is not ours to use.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from iop.addresses import address_of
from iop.errors import ConfigError
from iop.files import check_private, write_private
from iop.link.tls import pin_of

CA_DAYS = 3650
SERVER_DAYS = 825                    # the most that common verifiers accept of a server's certificate
_BACKDATE = datetime.timedelta(hours=1)  # for clocks that differ


@dataclass(frozen=True, slots=True)
class CertFiles:
    """Where a certificate lies, and the pin of its key."""

    cert: str
    key: str
    pin: str


def make_ca(folder: str, *, days: int = CA_DAYS) -> CertFiles:
    """``ca.pem`` and ``ca.key`` (0600) in `folder`; the ones that lie there already when they do."""
    files = os.path.join(folder, "ca.pem"), os.path.join(folder, "ca.key")
    if all(os.path.exists(file) for file in files):
        return CertFiles(*files, pin_of(_load(files[0])))
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "IOP CA")])
    builder = (_builder(name, name, key, days)
               .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
               .add_extension(_usage(signs_certificates=True), critical=True))
    return _write(files, builder.sign(key, hashes.SHA256()), key)


def make_server_cert(folder: str, names: Sequence[str], *, days: int = SERVER_DAYS, ca_folder: str = "",
                     keep_key: bool = False) -> CertFiles:
    """``server.pem`` and ``server.key`` (0600) in `folder`, for host names and IP addresses, from the CA of `ca_folder`
    (the same folder when empty). Replaces earlier ones; with `keep_key` a key that is there stays, and so does its pin.
    `days` below 1 makes one that has expired, for tests.
    """
    ca, ca_key = _load_ca(ca_folder or folder)
    files = os.path.join(folder, "server.pem"), os.path.join(folder, "server.key")
    kept = keep_key and os.path.exists(files[1])
    key = _load_key(files[1]) if kept else ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    builder = (_builder(subject, ca.subject, key, days)
               .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
               .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
               .add_extension(_usage(signs_certificates=False), critical=True)
               .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
               .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False))
    return _write(files, builder.sign(ca_key, hashes.SHA256()), key)


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int) -> x509.CertificateBuilder:
    end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
    begin = min(datetime.datetime.now(datetime.UTC), end) - _BACKDATE
    return (x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
            .serial_number(x509.random_serial_number()).not_valid_before(begin).not_valid_after(end)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False))


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(digital_signature=not signs_certificates, key_cert_sign=signs_certificates,
                         crl_sign=signs_certificates, content_commitment=False, key_encipherment=False,
                         data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False)


def _general_name(name: str) -> x509.GeneralName:
    address = address_of(name)
    return x509.DNSName(name.encode("idna").decode("ascii")) if address is None else x509.IPAddress(address)


def _load(file: str) -> x509.Certificate:
    try:
        with open(file, "rb") as stream:
            return x509.load_pem_x509_certificate(stream.read())
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise ConfigError(f"{file} is no PEM certificate.") from None


def _load_ca(folder: str) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    return _load(os.path.join(folder, "ca.pem")), _load_key(os.path.join(folder, "ca.key"))


def _load_key(file: str) -> ec.EllipticCurvePrivateKey:
    try:
        check_private(file)
        with open(file, "rb") as stream:
            key = serialization.load_pem_private_key(stream.read(), None)
    except OSError as error:
        raise ConfigError(f"The key {file} cannot be read: {error.strerror}.") from None
    except (ValueError, TypeError):
        raise ConfigError(f"{file} is no PEM key without a passphrase.") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{file} is not an ECDSA key.")
    return key


def _write(files: tuple[str, str], certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> CertFiles:
    cert_file, key_file = files
    write_private(key_file, key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                              serialization.NoEncryption()))
    write_private(cert_file, certificate.public_bytes(serialization.Encoding.PEM))
    os.chmod(cert_file, 0o644)       # the certificate itself is public; a node needs the CA's
    return CertFiles(cert_file, key_file, pin_of(certificate))
