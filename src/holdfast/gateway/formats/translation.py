"""What crosses from a client of one format to a provider of another: tools, fields, reasoning.

Function tools are everywhere. Others run at one provider (its web search), or are that provider's
way of grouping tools; coding agents offer them beside functions of their own. Where
the client leaves the choice to the model, the model is not offered them, and the client is told. A
client that has no other tools, or insists on one, is refused: it would get an answer to another
question. So is one that sets a field which changes the answer and which the other format lacks.

Reasoning comes back with the next turn: the signature that Anthropic needs to see again travels in
the field that a client of responses treats as opaque (`encrypted_content`), and the other way
round (`signature`); it is unpacked on its way back.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable
from typing import cast

from holdfast.errors import UsageError
from holdfast.gateway.formats.json_fields import Json, WireError, fields, items
from holdfast.gateway.messages import Origin, ReasoningPart, Request, Tool

_PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""What may be told back in a header."""


def portable(
    body: Json,
    *,
    functions: str,
    decode: Callable[[Json, str], Tool],
    free: bool,
) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
    """The function tools, and what was left out.

    `functions`: the type they have, which may be missing; `free`: whether the model may choose.
    """
    given = [fields(raw, f"tools[{n}]") for n, raw in enumerate(items(body.get("tools"), "tools"))]
    tools: list[Tool] = []
    others: list[str] = []
    for n, raw in enumerate(given):
        kind = raw.get("type") or functions
        if kind == functions:
            tools.append(decode(raw, f"tools[{n}]"))
        else:
            others.append(kind if isinstance(kind, str) and _PLAIN.fullmatch(kind) else "other")
            if not free:
                raise _refusal(n, kind, functions)
    if others and not tools:
        raise _refusal(0, others[0], functions)
    return tuple(tools), tuple(others)


UNTRANSLATABLE: dict[str, dict[str, tuple[object, ...]]] = {
    "chat": {
        "n": (1,), "logprobs": (False,), "top_logprobs": (0,), "functions": ([],),
        "function_call": ("none",), "modalities": (["text"],), "audio": (), "logit_bias": ({},),
        "web_search_options": (), "frequency_penalty": (0,), "presence_penalty": (0,),
        "repetition_penalty": (1,), "top_k": (-1,), "min_p": (0,),
    },
    "responses": {"top_logprobs": (0,), "max_tool_calls": ()},
    "anthropic": {"mcp_servers": ([],), "container": (), "top_k": ()},
    "gemini": {"cachedContent": ()},
    "gemini settings": {
        "candidateCount": (1,), "responseLogprobs": (False,), "logprobs": (), "topK": (),
        "frequencyPenalty": (0,), "presencePenalty": (0,), "responseModalities": (["TEXT"],),
        "speechConfig": (), "imageConfig": (),
    },
    "bedrock": {"guardrailConfig": (), "promptVariables": ({},)},
    "cohere": {
        "documents": ([],), "logprobs": (False,), "k": (0,), "frequency_penalty": (0,),
        "presence_penalty": (0,), "safety_mode": ("CONTEXTUAL",),
    },
}  # fmt: skip
"""Fields of a format that change what the answer is and have no like elsewhere, with the values
that ask for nothing. Others (a service tier, metadata) are left out without harm."""


def check_translatable(format: str, body: Json) -> None:
    """Raise WireError for a field that a provider of another format could not honour."""
    for name, harmless in UNTRANSLATABLE[format].items():
        value = body.get(name)
        if value is not None and value not in harmless:
            raise WireError(
                f"{name} can't be translated: only a provider of the {format} format knows it"
            )
    settings = body.get("generationConfig")
    if format == "gemini" and isinstance(settings, dict):
        check_translatable("gemini settings", cast(Json, settings))


def check_target(request: Request, format: str) -> None:
    """Raise UsageError for what a provider of this format can't be asked for."""
    if format == "responses" and request.stop:
        raise UsageError(
            "stop can't be translated: the responses format has no stop sequences",
            hint="leave it out, or use a model whose provider speaks chat or anthropic",
        )


def _refusal(n: int, kind: object, functions: str) -> WireError:
    return WireError(f"tools[{n}]: only {functions} tools can be translated, not {kind!r}")


_SIGNED = "__sig_"


def with_signature(identity: str, signature: object) -> str:
    """A call's id that carries its signature: Gemini wants it back with the call, and no client of
    another format has a field for it."""
    if not isinstance(signature, str) or not signature:
        return identity
    return identity + _SIGNED + base64.urlsafe_b64encode(signature.encode()).decode().rstrip("=")


def without_signature(identity: str) -> tuple[str, str | None]:
    """The id as its provider knows it, and the signature that it carries, if any."""
    plain, mark, packed = identity.partition(_SIGNED)
    if not mark:
        return identity, None
    try:
        return plain, base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)).decode()
    except (ValueError, binascii.Error):
        return identity, None


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
