"""Token counts as chat completions tell them."""

from __future__ import annotations

from holdfast.gateway.formats.json_fields import Json, count, details, fields
from holdfast.gateway.reply import Usage


def decode_usage(value: object) -> Usage | None:
    """The usage block, or None if there is none worth the name."""
    if not isinstance(value, dict):
        return None
    usage = fields(value, "usage")  # pyright: ignore[reportUnknownArgumentType]
    if "prompt_tokens" not in usage and "completion_tokens" not in usage:
        return None
    inward = details(usage.get("prompt_tokens_details"))
    outward = details(usage.get("completion_tokens_details"))
    cached = count(inward.get("cached_tokens")) or count(usage.get("prompt_cache_hit_tokens"))
    given, made = count(usage.get("prompt_tokens")), count(usage.get("completion_tokens"))
    # Gemini and Grok leave the tokens of thinking out of the completion; the total has them.
    apart = max(count(usage.get("total_tokens")) - given - made, 0)
    return Usage(
        input=given,
        output=made + apart,
        cached=cached,
        cache_write=count(inward.get("cache_write_tokens")),
        reasoning=max(count(outward.get("reasoning_tokens")), apart),
    )


def encode_usage(usage: Usage) -> Json:
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }
