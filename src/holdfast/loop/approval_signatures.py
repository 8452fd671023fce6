"""What binds a decision to what was decided: hashes of arguments, and signatures.

The hash is of the title, the tool and the arguments, in one form; it is shown to whoever decides
and checked again before anything is done. Tokens and decisions are signed (HMAC-SHA256) with a
secret that the store makes when it is first needed. A token is for one approval of one run about
one set of arguments until one moment; a signature is for one decision by one person on top.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import urlsafe_b64encode
from typing import Any

from holdfast.records.approvals import Approval

SECRET = "approvals"  # noqa: S105 - its name, not its value


def hash_of(title: str, tool: str | None, arguments: Any) -> str:
    """What a decision is about, as 64 hexadecimal digits."""
    said = {"title": title, "tool": tool, "arguments": arguments}
    text = json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def token_of(secret: bytes, approval: Approval) -> str:
    """The token that lets its holder decide this approval, and no other."""
    parts = ("token", *_about(approval))
    return urlsafe_b64encode(_mac(secret, parts)).rstrip(b"=").decode()


def signature_of(secret: bytes, approval: Approval, status: str, by: str, at: float) -> str:
    """The signature of a decision."""
    return _mac(secret, ("decision", *_about(approval), status, by, repr(at))).hex()


def same(one: str, other: str) -> bool:
    """Whether two secrets are the same, without telling by the time it takes."""
    return hmac.compare_digest(one.encode(), other.encode())


def _about(approval: Approval) -> tuple[str, ...]:
    # The hash of what the row holds now, not the one it claims: a changed row does not fit.
    actual = hash_of(approval.title, approval.tool, approval.arguments)
    return (approval.id, approval.run_id, actual, repr(approval.expires_at))


def _mac(secret: bytes, parts: tuple[str, ...]) -> bytes:
    return hmac.digest(secret, json.dumps(parts).encode(), "sha256")
