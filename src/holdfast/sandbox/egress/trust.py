"""Which certificates programs in a sandbox trust, and how each of them is told.

The system's, and, where headers are added to encrypted requests, our own authority's too.
"""

from __future__ import annotations

from pathlib import Path

from holdfast.sandbox.egress.authority import Authority
from holdfast.sandbox.namespace.view import HOME

_SYSTEM = "/etc/ssl/certs/ca-certificates.crt"
_AUTHORITY = f"{HOME}/.holdfast/authority.pem"
_BUNDLE = f"{HOME}/.holdfast/certificates.pem"
_BUNDLE_VARIABLES = (
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
)


def files(authority: Authority | None) -> dict[str, str | bytes]:
    """What to write into the sandbox."""
    if authority is None:
        return {}
    system = Path(_SYSTEM).read_text() if Path(_SYSTEM).is_file() else ""
    return {_BUNDLE: system + authority.certificate, _AUTHORITY: authority.certificate}


def variables(authority: Authority | None) -> dict[str, str]:
    """What to set for its commands."""
    if authority is None:
        return dict.fromkeys(_BUNDLE_VARIABLES, _SYSTEM)
    return {**dict.fromkeys(_BUNDLE_VARIABLES, _BUNDLE), "NODE_EXTRA_CA_CERTS": _AUTHORITY}
