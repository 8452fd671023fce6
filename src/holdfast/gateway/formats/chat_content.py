"""What providers add to chat completions: content in parts, and signatures of tool calls.

Mistral's reasoning models answer with a list of parts, of which some are thinking. Gemini signs
its tool calls and refuses to go on without the signature: it travels in the call's id, which every
client and every other format hands back unchanged, and is taken out again on its way to a provider
that speaks chat.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any, cast

from holdfast.gateway.formats.json_fields import Json, fields, items, text
from holdfast.gateway.messages import ReasoningPart, ReplyPart, TextPart

_MARK = "__sig_"


def content_pieces(content: object, path: str) -> Iterator[tuple[type[ReplyPart], str]]:
    """The content of an answer, a text or a list of parts, as kinds and words."""
    if not content:
        return
    if isinstance(content, str):
        yield TextPart, content
        return
    for n, raw in enumerate(items(content, path)):
        part = fields(raw, f"{path}[{n}]")
        if part.get("type") == "thinking":
            for inner in _texts(part.get("thinking")):
                yield ReasoningPart, inner
        elif part.get("text"):
            yield TextPart, text(part["text"], f"{path}[{n}].text")


def _texts(thinking: object) -> Iterator[str]:
    if isinstance(thinking, str):
        yield thinking
        return
    for one in items(thinking, "thinking"):
        words = fields(one, "thinking").get("text")
        if isinstance(words, str) and words:
            yield words


def signed_id(identity: str, call: Json) -> str:
    """The call's id, with its signature if it has one."""
    signature = _of(_of(call.get("extra_content")).get("google")).get("thought_signature")
    if not isinstance(signature, str) or not signature:
        return identity
    return identity + _MARK + base64.urlsafe_b64encode(signature.encode()).decode().rstrip("=")


def signed_call(identity: str) -> Json:
    """The id, and the signature that was put into it, as the provider sent them."""
    plain, mark, packed = identity.partition(_MARK)
    if not mark:
        return {"id": identity}
    try:
        signature = base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)).decode()
    except (ValueError, binascii.Error):
        return {"id": identity}
    return {"id": plain, "extra_content": {"google": {"thought_signature": signature}}}


def plain_id(identity: str) -> str:
    """The id as the provider knows it."""
    return str(signed_call(identity)["id"])


def _of(value: Any) -> Json:
    return cast(Json, value) if isinstance(value, dict) else {}
