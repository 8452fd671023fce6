"""A certificate authority of one process, for the hosts whose requests get headers added.

To set a header on an encrypted request it must be decrypted on the way, so such hosts are served
with certificates of our own, which only sandboxes with such a rule trust. The authority's key
lives in this process's memory and is made anew with it. Loaded only where a rule adds headers,
since `cryptography` takes a moment to load.
"""

from __future__ import annotations

import ssl
import tempfile
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_SUBJECT = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Holdfast sandbox egress")])
_MOST_COMMON = 64
"""Characters a common name may have; the name that counts is the alternative one."""


class Authority:
    """Issues certificates for names, to be trusted by sandboxes alone."""

    def __init__(self) -> None:
        self._key = _new_key()
        own = _unsigned(_SUBJECT, self._key, self._key)
        own = own.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        own = own.add_extension(_usage(signs_certificates=True), critical=True)
        self.certificate = _pem(own.sign(self._key, hashes.SHA256()))
        self._contexts: dict[str, ssl.SSLContext] = {}

    def context(self, name: str) -> ssl.SSLContext:
        """What to serve the name with."""
        if name not in self._contexts:
            self._contexts[name] = self._issue(name)
        return self._contexts[name]

    def _issue(self, name: str) -> ssl.SSLContext:
        key = _new_key()
        common = x509.NameAttribute(NameOID.COMMON_NAME, name[:_MOST_COMMON])
        leaf = _unsigned(x509.Name([common]), key, self._key)
        leaf = leaf.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        leaf = leaf.add_extension(_usage(signs_certificates=False), critical=True)
        server = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        leaf = leaf.add_extension(server, critical=False)
        names = x509.SubjectAlternativeName([x509.DNSName(name)])
        signed = leaf.add_extension(names, critical=False).sign(self._key, hashes.SHA256())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        # The ssl module reads keys from files only; this one is gone before anybody else runs.
        with tempfile.NamedTemporaryFile("wb", prefix="holdfast-") as file:
            secret = key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            file.write(secret + _pem(signed).encode())
            file.flush()
            context.load_cert_chain(file.name)
        return context


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _unsigned(
    subject: x509.Name, key: ec.EllipticCurvePrivateKey, issuer: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    """A certificate of this authority but for what it is for."""
    now = datetime.now(UTC)
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(_SUBJECT)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=30))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(signer, critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
