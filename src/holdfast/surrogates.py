"""Half characters: JSON can hold one half of a UTF-16 pair, UTF-8 can't.

Models that write byte by byte do cut an emoji in two, and providers hand the halves on. Two
halves that meet become the character; one that stays alone becomes U+FFFD, so that what is read,
shown and stored is text. Clean text costs one look.
"""

from __future__ import annotations

from typing import Any, cast


def joined(text: str) -> str:
    """The text with its halves joined, and lone ones replaced."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def joined_data(value: Any) -> Any:
    """Data as JSON has it, every text in it joined."""
    if isinstance(value, str):
        return joined(value)
    if isinstance(value, list):
        return [joined_data(one) for one in cast("list[Any]", value)]
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value).items()
        return {joined(name): joined_data(one) for name, one in pairs}
    return value


def ends_in_half(text: str) -> bool:
    """Whether the text ends in the first half of a pair, whose other half may yet come."""
    return "\ud800" <= text[-1:] <= "\udbff"
