"""Reasoning of one format, carried through a client of another.

A client that speaks responses may be answered by Anthropic, and sends the reasoning back with
its next turn: the signature Anthropic needs to see again travels in the field the client treats
as opaque (`encrypted_content`, `signature`), and is unpacked on its way back.
"""

from __future__ import annotations

import base64
import binascii
import json

from holdfast.gateway.messages import Origin, ReasoningPart

_MARK = "holdfast.1."


def pack(part: ReasoningPart, client: Origin) -> str | None:
    """The opaque text for a client of another format; None if there is nothing to keep."""
    if part.origin is None or part.origin == client:
        return None
    if not (part.signature or part.encrypted or part.item):
        return None
    kept = [part.origin, part.text, part.signature, part.encrypted, part.item]
    return _MARK + base64.urlsafe_b64encode(json.dumps(kept).encode()).decode()


def unpack(opaque: object) -> ReasoningPart | None:
    """The reasoning packed here before; None for the provider's own opaque text."""
    if not isinstance(opaque, str) or not opaque.startswith(_MARK):
        return None
    try:
        origin, text, signature, encrypted, item = json.loads(
            base64.urlsafe_b64decode(opaque.removeprefix(_MARK))
        )
    except (ValueError, binascii.Error):
        return None
    return ReasoningPart(str(text), signature, encrypted, item, origin)
