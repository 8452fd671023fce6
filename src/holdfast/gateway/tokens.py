"""Counting tokens without a tokenizer: an upper bound to reserve by, and an estimate to show.

Every tokenizer in use falls back to bytes, so a text never has more tokens than UTF-8 bytes:
that is the bound. Roughly four bytes make a token in English: that is the estimate.
"""

from __future__ import annotations

from typing import Any, cast

HIDDEN = 1000
"""Tokens a provider may add of its own: the prompt that explains tools, template marks."""
IMAGE = 6000
"""More than any provider counts for one picture."""


def estimate(text_bytes: int) -> int:
    """About how many tokens so many bytes of text are."""
    return (text_bytes + 3) // 4


def input_bound(body: object, size: int) -> int:
    """No request body of this size has more input tokens; pictures count by piece."""
    data, pictures = _pictures(body)
    return size - data + pictures * IMAGE + HIDDEN


def _pictures(value: object) -> tuple[int, int]:
    """Bytes of picture data in the body, and the number of pictures."""
    if isinstance(value, list):
        found = [_pictures(one) for one in cast("list[Any]", value)]
        return sum(data for data, _ in found), sum(number for _, number in found)
    if not isinstance(value, dict):
        return 0, 0
    fields = cast("dict[str, Any]", value)
    kind = fields.get("type")
    if kind == "image_url" and isinstance(image := fields.get("image_url"), dict):
        return _length(cast("dict[str, Any]", image).get("url")), 1
    if kind == "input_image":
        return _length(fields.get("image_url")), 1
    if kind == "image" and isinstance(source := fields.get("source"), dict):
        return _length(cast("dict[str, Any]", source).get("data")), 1
    nested = ("messages", "input", "content", "output", "system")
    found = [_pictures(fields[name]) for name in nested if name in fields]
    return sum(data for data, _ in found), sum(number for _, number in found)


def _length(value: object) -> int:
    return len(value) if isinstance(value, str) and not value.startswith("http") else 0
