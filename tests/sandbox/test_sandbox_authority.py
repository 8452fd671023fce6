"""The certificates that hosts with added headers are served with."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import threading

import pytest

from holdfast.sandbox.egress.authority import Authority

NAME = "api.example.com"
LONG = ".".join(["a" * 60, "b" * 60, "example.com"])


def greet(authority: Authority, served: str, asked: str, trusted: str) -> str | None:
    """Connect to `asked` at a server for `served`; the version of TLS they agree on."""
    client = ssl.create_default_context(cadata=trusted)
    client.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    ours, theirs = socket.socketpair()

    def serve() -> None:
        try:
            with authority.context(served).wrap_socket(theirs, server_side=True) as server:
                server.recv(1)
        except (ssl.SSLError, OSError):
            theirs.close()  # the client did not like it, and says so

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(ours, server_hostname=asked) as connection:
            connection.sendall(b".")
            return connection.version()
    finally:
        ours.close()
        thread.join()


@pytest.mark.parametrize("name", [NAME, LONG])
def test_who_trusts_the_authority_trusts_its_name_strictly_checked(name: str) -> None:
    authority = Authority()
    assert greet(authority, name, name, authority.certificate) == "TLSv1.3"


def test_nobody_else_does() -> None:
    authority = Authority()
    with pytest.raises(ssl.SSLCertVerificationError):
        greet(authority, NAME, NAME, Authority().certificate)
    with pytest.raises(ssl.SSLCertVerificationError):
        greet(authority, NAME, "other.example.com", authority.certificate)


def test_what_makes_certificates_is_loaded_only_where_headers_are_added() -> None:
    code = (
        "import sys, holdfast.sandbox.sandbox, holdfast.sandbox.host\n"
        "print([name for name in sys.modules if name.startswith('cryptography')])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "[]\n"
