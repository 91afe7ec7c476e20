"""TLS of links: who the dialer trusts, and the exact reason when it does not. With certs.py, all that knows OpenSSL.

A refusal is decided while OpenSSL verifies, so it ends the handshake: not a byte of ours has been sent by then.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from OpenSSL import SSL, crypto
from service_identity import VerificationError
from service_identity.exceptions import CertificateError
from service_identity.hazmat import DNS_ID, IPAddress_ID, verify_service_identity
from service_identity.pyopenssl import extract_patterns
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator
from twisted.internet.ssl import CertificateOptions, TLSVersion
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from iop.addresses import address_of
from iop.errors import ConfigError

_PIN = re.compile(r"sha256:([0-9a-fA-F]{64})")
_OTHER_CA = "comes from a CA that is not the one configured here"
# X509_V_ERR_* of OpenSSL's x509_vfy.h, completing "the certificate of the edge ...".
_REASONS = {
    2: _OTHER_CA,
    7: "bears a wrong signature: another CA of the same name made it",
    9: "is not valid yet (compare the clocks of both machines)",
    10: "has expired",
    18: "is signed by itself, not by the CA configured here",
    19: _OTHER_CA,
    20: _OTHER_CA,
    21: _OTHER_CA,
    23: "has been revoked",
    26: "is not made for servers",
    30: _OTHER_CA,
    79: "comes from a certificate that is no CA",
}
_NO_TLS = frozenset(("wrong version number", "packet length too long", "record layer failure", "unknown protocol",
                     "http request", "https proxy request", "unexpected message", "bad record type", "not ssl record layer"))


def server_options(cert_file: str, key_file: str) -> CertificateOptions:
    """What a listener needs: a PEM certificate (its chain behind it) and its key. TLS 1.2 and later. Raises ConfigError."""
    try:
        with open(cert_file, "rb") as stream:
            chain = x509.load_pem_x509_certificates(stream.read())
        with open(key_file, "rb") as stream:
            key = load_pem_private_key(stream.read(), None)
        options = CertificateOptions(privateKey=key, certificate=chain[0], extraCertChain=chain[1:],
                                     raiseMinimumTo=TLSVersion.TLSv1_2)
        options.getContext().check_privatekey()
    except OSError as error:
        raise ConfigError(f"{error.filename} cannot be read: {error.strerror}.") from None
    except (ValueError, TypeError, UnsupportedAlgorithm, SSL.Error) as error:
        raise ConfigError(f"{cert_file} and {key_file} are no certificate and key that belong together (PEM): "
                          f"{_first_line(error)}.") from None
    return options


def client_options(name: str, ca_file: str = "", pin: str = "") -> ClientOptions:
    """Whom a dialer trusts. Raises ConfigError.

    `pin` (``sha256:`` and 64 hex digits of the public key's SubjectPublicKeyInfo) trusts that key and asks for nothing else:
    neither name, dates nor issuer. Otherwise the certificate must be for `name` (a host name or an IP address) and come from
    `ca_file`, or from one of the system's CAs when that is empty.
    """
    return ClientOptions(name, ca_file, pin)


def pin_of(certificate: x509.Certificate) -> str:
    """The pin of a certificate's public key."""
    info = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return f"sha256:{hashlib.sha256(info).hexdigest()}"


@implementer(IOpenSSLClientConnectionCreator)
class ClientOptions:
    """Makes a dialer's TLS connections, one at a time; `refusal` completes "the certificate of the edge" for the latest."""

    log = Logger()

    def __init__(self, name: str, ca_file: str, pin: str) -> None:
        self.refusal = ""
        self._name = name
        self._pin = _read_pin(pin)
        self._context = SSL.Context(SSL.TLS_CLIENT_METHOD)
        self._context.set_min_proto_version(SSL.TLS1_2_VERSION)
        self._context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, self._verify)
        if not pin:
            _trust(self._context, ca_file)
        try:
            is_address = address_of(name) is not None
            self._server_name = b"" if is_address else name.encode("idna")
            self._identity = IPAddress_ID(name) if is_address else DNS_ID(self._server_name.decode("ascii"))
        except ValueError:
            raise ConfigError(f"{name!r} is no host name; name the one that stands in the edge's certificate.") from None

    def clientConnectionForTLS(self, tlsProtocol: Any) -> SSL.Connection:
        self.refusal = ""
        connection = SSL.Connection(self._context, None)
        connection.set_app_data(tlsProtocol)
        if self._server_name:
            connection.set_tlsext_host_name(self._server_name)
        return connection

    def _verify(self, connection: SSL.Connection, certificate: crypto.X509, number: int, depth: int, ok: int) -> bool:
        """OpenSSL's callback for each certificate of the chain; what it raises would be lost, so it raises nothing."""
        try:
            refusal = self._judge(certificate, number, depth, bool(ok))
        except Exception:
            self.log.failure("a certificate could not be judged")
            refusal = "could not be judged; the log has the details"
        self.refusal = self.refusal or refusal
        return not refusal

    def _judge(self, certificate: crypto.X509, number: int, depth: int, ok: bool) -> str:
        if self._pin:
            return self._judge_pin(certificate) if depth == 0 else ""
        if not ok:
            return _REASONS.get(number, f"is refused by OpenSSL (error {number} of x509_vfy.h)")
        return self._judge_name(certificate) if depth == 0 else ""

    def _judge_pin(self, certificate: crypto.X509) -> str:
        pin = pin_of(certificate.to_cryptography())
        if hmac.compare_digest(pin.encode("ascii"), self._pin.encode("ascii")):
            return ""
        return f"has another public key ({pin}) than the pinned one"

    def _judge_name(self, certificate: crypto.X509) -> str:
        try:
            verify_service_identity(extract_patterns(certificate), [self._identity], [])
        except (VerificationError, CertificateError):
            return f"is not for {self._name} (it is for {_names(certificate)})"
        return ""


def explain(failure: Failure, options: ClientOptions, address: str) -> str:
    """Why a connection ended before TLS stood, as a sentence."""
    if options.refusal:
        return f"The certificate of the edge at {address} {options.refusal}."
    reasons = _openssl_reasons(failure)
    if any(reason.lower() in _NO_TLS for reason in reasons):
        return f"What listens at {address} does not speak TLS."
    if reasons:
        return f"The TLS handshake with {address} failed: {', '.join(reasons)}."
    return f"{address} ended the connection during the TLS handshake; it may not speak TLS."


def _openssl_reasons(failure: Failure) -> list[str]:
    """The last words of OpenSSL's error queue: [(library, function, reason), ...]."""
    if not failure.check(SSL.Error) or not failure.value.args or not isinstance(failure.value.args[0], list):
        return []
    return [entry[-1] for entry in failure.value.args[0] if entry[-1]]


def _read_pin(pin: str) -> str:
    if not pin:
        return ""
    if _PIN.fullmatch(pin) is None:
        raise ConfigError("A pin is `sha256:` and 64 hex digits of the edge's public key.")
    return pin.lower()


def _trust(context: SSL.Context, ca_file: str) -> None:
    if not ca_file:
        context.set_default_verify_paths()
        return
    try:
        with open(ca_file, "rb") as stream:
            x509.load_pem_x509_certificates(stream.read())
        context.load_verify_locations(ca_file)
    except OSError as error:
        raise ConfigError(f"The CA file {ca_file} cannot be read: {error.strerror}.") from None
    except (ValueError, SSL.Error):
        raise ConfigError(f"The CA file {ca_file} holds no PEM certificate.") from None


def _names(certificate: crypto.X509) -> str:
    try:
        names = certificate.to_cryptography().extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return "no name at all"
    return ", ".join(str(name.value)[:100] for name in list(names)[:5])


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]
