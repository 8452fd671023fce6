"""Which certificates programs in a sandbox trust, and how each of them is told.

The system's, those a rule names, and, where headers are added to encrypted requests, our own
authority's too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.sandbox.namespace.view import HOME

if TYPE_CHECKING:
    from holdfast.sandbox.egress.authority import Authority

_SYSTEM = "/etc/ssl/certs/ca-certificates.crt"
_BUNDLE = f"{HOME}/.holdfast/certificates.pem"
_BUNDLE_VARIABLES = (
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
)


def files(authority: Authority | None, extra: Iterable[str] = ()) -> dict[str, str | bytes]:
    """What to write into the sandbox; `extra` are files of certificates of the host's."""
    known = os.path.realpath(_SYSTEM)
    places = dict.fromkeys(os.path.realpath(path) for path in extra)
    own = [Path(path).read_text() for path in places if path != known]
    if authority is not None:
        own.append(authority.certificate)
    if not own:
        return {}
    return {_BUNDLE: "\n".join([_system(), *own])}


def variables(own: bool) -> dict[str, str]:
    """What to set for its commands; `own`: whether there is more to trust than the system does."""
    found: dict[str, str] = {}
    for name in _BUNDLE_VARIABLES:
        found[name] = _BUNDLE if own else _SYSTEM
    if own or Path(_SYSTEM).is_file():
        # node has certificates of its own, to which it adds what we name.
        found["NODE_EXTRA_CA_CERTS"] = _BUNDLE if own else _SYSTEM
    return found


def _system() -> str:
    return Path(_SYSTEM).read_text() if Path(_SYSTEM).is_file() else ""
