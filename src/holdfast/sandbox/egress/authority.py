"""A certificate authority of one process, for the hosts whose requests get headers added.

To set a header on an encrypted request it must be decrypted on the way, so such hosts are served
with certificates of our own, which only sandboxes with such a rule trust. The authority's key
lives in this process's memory and is made anew with it. P-256 and DER by hand, since the
standard library can use certificates but not make them; speed and side channels don't matter
here, as nobody but us and a sandbox is on that connection.
"""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
import ssl
import tempfile
from datetime import UTC, datetime, timedelta

_P = 2**256 - 2**224 + 2**192 + 2**96 - 1
_N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
Point = tuple[int, int] | None


def _add(a: Point, b: Point) -> Point:
    if a is None or b is None:
        return b if a is None else a
    if a[0] == b[0]:
        if (a[1] + b[1]) % _P == 0:
            return None
        slope = (3 * a[0] * a[0] - 3) * pow(2 * a[1], -1, _P) % _P
    else:
        slope = (b[1] - a[1]) * pow(b[0] - a[0], -1, _P) % _P
    x = (slope * slope - a[0] - b[0]) % _P
    return x, (slope * (a[0] - x) - a[1]) % _P


def _multiply(scalar: int, point: Point) -> tuple[int, int]:
    result: Point = None
    while scalar:
        if scalar & 1:
            result = _add(result, point)
        point = _add(point, point)
        scalar >>= 1
    assert result is not None
    return result


def _tlv(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    size = len(content)
    if size < 128:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content


def _integer(value: int) -> bytes:
    return _tlv(2, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _oid(*arcs: int) -> bytes:
    body = bytes([arcs[0] * 40 + arcs[1]])
    for arc in arcs[2:]:
        digits = [arc & 0x7F]
        while arc := arc >> 7:
            digits.append(arc & 0x7F | 0x80)
        body += bytes(reversed(digits))
    return _tlv(6, body)


_SEQUENCE, _SET, _BITS, _OCTETS, _TRUE = 0x30, 0x31, 3, 4, b"\x01\x01\xff"
_SIGNED_WITH = _tlv(_SEQUENCE, _oid(1, 2, 840, 10045, 4, 3, 2))  # ecdsa-with-SHA256
_CURVE = _oid(1, 2, 840, 10045, 3, 1, 7)  # prime256v1
_KEY_KIND = _tlv(_SEQUENCE, _oid(1, 2, 840, 10045, 2, 1), _CURVE)


class Key:
    """A private key on P-256."""

    def __init__(self) -> None:
        self._secret = 1 + secrets.randbelow(_N - 1)
        x, y = _multiply(self._secret, _G)
        self.public = b"\x04" + x.to_bytes(32, "big") + y.to_bytes(32, "big")

    def sign(self, message: bytes) -> bytes:
        """An ECDSA signature of the message's SHA-256."""
        digest = int.from_bytes(hashlib.sha256(message).digest(), "big")
        while True:
            nonce = 1 + secrets.randbelow(_N - 1)
            r = _multiply(nonce, _G)[0] % _N
            s = pow(nonce, -1, _N) * (digest + r * self._secret) % _N
            if r and s:
                return _tlv(_SEQUENCE, _integer(r), _integer(s))

    @property
    def info(self) -> bytes:
        return _tlv(_SEQUENCE, _KEY_KIND, _tlv(_BITS, b"\0" + self.public))

    @property
    def identifier(self) -> bytes:
        return hashlib.sha1(self.public, usedforsecurity=False).digest()

    def pem(self) -> str:
        body = _tlv(
            _SEQUENCE,
            _integer(1),
            _tlv(_OCTETS, self._secret.to_bytes(32, "big")),
            _tlv(0xA0, _CURVE),
            _tlv(0xA1, _tlv(_BITS, b"\0" + self.public)),
        )
        return _pem("EC PRIVATE KEY", body)


def _pem(kind: str, data: bytes) -> str:
    text = base64.encodebytes(data).decode()
    return f"-----BEGIN {kind}-----\n{text}-----END {kind}-----\n"


def _name(common: str) -> bytes:
    value = _tlv(0x0C, common.encode())
    return _tlv(_SEQUENCE, _tlv(_SET, _tlv(_SEQUENCE, _oid(2, 5, 4, 3), value)))


def _extension(number: int, content: bytes, *, critical: bool = False) -> bytes:
    flag = _TRUE if critical else b""
    return _tlv(_SEQUENCE, _oid(2, 5, 29, number), flag, _tlv(_OCTETS, content))


def _certificate(
    subject: str, key: Key, issuer: str, issuer_key: Key, extensions: list[bytes]
) -> bytes:
    now = datetime.now(UTC)
    times = [
        _tlv(0x17, moment.strftime("%y%m%d%H%M%SZ").encode())
        for moment in (now - timedelta(days=1), now + timedelta(days=30))
    ]
    identity = [
        _extension(14, _tlv(_OCTETS, key.identifier)),
        _extension(35, _tlv(_SEQUENCE, _tlv(0x80, issuer_key.identifier))),
    ]
    body = _tlv(
        _SEQUENCE,
        _tlv(0xA0, _integer(2)),
        _integer(int.from_bytes(os.urandom(15), "big")),
        _SIGNED_WITH,
        _name(issuer),
        _tlv(_SEQUENCE, *times),
        _name(subject),
        key.info,
        _tlv(0xA3, _tlv(_SEQUENCE, *identity, *extensions)),
    )
    return _tlv(_SEQUENCE, body, _SIGNED_WITH, _tlv(_BITS, b"\0" + issuer_key.sign(body)))


class Authority:
    """Issues certificates for names, to be trusted by sandboxes alone."""

    _SUBJECT = "Holdfast sandbox egress"

    def __init__(self) -> None:
        self._key = Key()
        constraints = _tlv(_SEQUENCE, _TRUE, _integer(0))
        usage = _tlv(_BITS, b"\x01\x06")  # sign certificates and revocation lists
        self.certificate = _pem(
            "CERTIFICATE",
            _certificate(
                self._SUBJECT,
                self._key,
                self._SUBJECT,
                self._key,
                [_extension(19, constraints, critical=True), _extension(15, usage, critical=True)],
            ),
        )
        self._contexts: dict[str, ssl.SSLContext] = {}

    def context(self, name: str) -> ssl.SSLContext:
        """What to serve the name with."""
        if name not in self._contexts:
            self._contexts[name] = self._issue(name)
        return self._contexts[name]

    def _issue(self, name: str) -> ssl.SSLContext:
        key = Key()
        names = _tlv(_SEQUENCE, _tlv(0x82, name.encode()))
        server = _tlv(_SEQUENCE, _oid(1, 3, 6, 1, 5, 5, 7, 3, 1))
        leaf = _certificate(
            name[:64],
            key,
            self._SUBJECT,
            self._key,
            [
                _extension(19, _tlv(_SEQUENCE), critical=True),
                _extension(15, _tlv(_BITS, b"\x07\x80"), critical=True),  # sign
                _extension(37, server),
                _extension(17, names),
            ],
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        # The ssl module reads keys from files only; this one is gone before anybody else runs.
        with tempfile.NamedTemporaryFile("w", prefix="holdfast-") as file:
            file.write(key.pem() + _pem("CERTIFICATE", leaf))
            file.flush()
            context.load_cert_chain(file.name)
        return context
