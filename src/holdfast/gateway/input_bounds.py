"""How many input tokens a request can have: by its size, and what makes its size no bound.

Every tokenizer in use falls back to bytes, so a text never has more tokens than UTF-8 bytes: that
is the bound. Roughly four bytes make a token in English: that is the estimate to show. A
conversation kept at the provider, a file or document it fetches or keeps, a tool it runs by
itself: under a budget such a request needs a bound declared by its caller, or is refused.
"""

from __future__ import annotations

from typing import Any, cast

from holdfast.errors import BudgetExceeded

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
    blob = fields.get("inlineData")
    if isinstance(blob, dict) and _is_picture(cast("dict[str, Any]", blob)):
        return _length(cast("dict[str, Any]", blob).get("data")), 1
    if isinstance(image := fields.get("image"), dict):  # Bedrock's
        source = cast("dict[str, Any]", image).get("source")
        inner = cast("dict[str, Any]", source) if isinstance(source, dict) else {}
        return _length(inner.get("bytes")), 1
    found = [_pictures(fields[name]) for name in _NESTED if name in fields]
    return sum(data for data, _ in found), sum(number for _, number in found)


def _length(value: object) -> int:
    return len(value) if isinstance(value, str) and not value.startswith("http") else 0


def _is_picture(blob: dict[str, Any]) -> bool:
    return str(blob.get("mimeType")).startswith("image/")


_STATE = (
    "previous_response_id", "conversation", "prompt", "container", "background", "cachedContent",
    "promptVariables",
)  # fmt: skip
_SERVICES = ("mcp_servers", "web_search_options", "plugins")
_PARTS = ("file", "input_file", "document", "item_reference", "container_upload")
_BLOCKS = ("fileData", "document", "audio", "video", "searchResult")
"""Parts that are named by their only field, as Gemini and Bedrock have them."""
_NESTED = ("messages", "input", "content", "output", "system", "contents", "parts", "toolResult")
_FUNCTIONS = ("name", "function", "functionDeclarations", "toolSpec", "cachePoint")
"""Fields of tools without a type that the client runs."""
_OURS = (
    "function",
    "custom",
    "local_shell",
    "shell",
    "apply_patch",
    "namespace",
    "computer_use_preview",
)
_OURS_BEGIN = ("bash_", "text_editor_", "computer_", "memory_")
"""Tools that the client runs, whose answers it sends: Anthropic's carry a date."""


def unbounded(body: dict[str, Any]) -> str | None:
    """The first field of a request whose cost its size does not bound; None: there is none."""
    for name in (*_STATE, *_SERVICES):
        if body.get(name):
            return name
    config = body.get("toolConfig")
    more = cast("dict[str, Any]", config).get("tools") if isinstance(config, dict) else None
    for n, tool in enumerate((*_list(body.get("tools")), *_list(more))):
        if (kind := _foreign_tool(tool)) is not None:
            return f"tools[{n}] ({kind})"
    for name in ("messages", "input", "system", "contents"):
        if (found := _part(body.get(name), name)) is not None:
            return found
    return None


def _foreign_tool(value: object) -> str | None:
    """The kind of a tool that the provider runs; None for one that the client does."""
    if not isinstance(value, dict):
        return None
    tool = cast("dict[str, Any]", value)
    kind = tool.get("type")
    if kind is not None:
        return None if kind in _OURS or str(kind).startswith(_OURS_BEGIN) else str(kind)
    if "functionDeclarations" in tool:
        return next((name for name in tool if name != "functionDeclarations"), None)
    return None if tool.keys() & set(_FUNCTIONS) else next(iter(tool), None)


def refusal(what: str) -> BudgetExceeded:
    """The error for such a request under a budget."""
    return BudgetExceeded(
        f"{what} makes the provider read more than the request holds: nothing bounds what it costs",
        hint="declare a bound: input_bound=, or the header x-holdfast-input-bound, in tokens",
    )


def _part(value: object, path: str) -> str | None:
    if isinstance(value, list):
        for n, one in enumerate(cast("list[Any]", value)):
            if (found := _part(one, f"{path}[{n}]")) is not None:
                return found
        return None
    if not isinstance(value, dict):
        return None
    part = cast("dict[str, Any]", value)
    kind = part.get("type")
    if kind in _PARTS and not _is_text(part):
        return f"{path} ({kind})"
    if kind is None:
        for name in _BLOCKS:
            if isinstance(part.get(name), dict):
                return f"{path} ({name})"
        blob = part.get("inlineData")
        if isinstance(blob, dict) and not _is_picture(cast("dict[str, Any]", blob)):
            return f"{path} (inlineData)"
    for name in ("source", "image"):
        source = part.get(name)
        if isinstance(source, dict) and cast("dict[str, Any]", source).get("type") == "file":
            return f"{path}.{name} (file)"
    if kind == "input_image" and part.get("file_id"):
        return f"{path}.file_id"
    for name in _NESTED:
        if (found := _part(part.get(name), f"{path}.{name}")) is not None:
            return found
    return None


def _is_text(part: dict[str, Any]) -> bool:
    """A document that is plain text, in the request itself: its bytes bound it."""
    source = part.get("source")
    return isinstance(source, dict) and cast("dict[str, Any]", source).get("type") in (
        "text",
        "content",
    )


def _list(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
