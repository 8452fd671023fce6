"""What makes a provider read or do more than the request holds, so that its size bounds nothing.

A conversation kept at the provider, a file or document it fetches or keeps, a tool it runs by
itself: under a budget such a request needs a bound declared by its caller, or is refused.
"""

from __future__ import annotations

from typing import Any, cast

from holdfast.errors import BudgetExceeded

_STATE = ("previous_response_id", "conversation", "prompt", "container", "background")
_SERVICES = ("mcp_servers", "web_search_options", "plugins")
_PARTS = ("file", "input_file", "document", "item_reference", "container_upload")
_NESTED = ("messages", "input", "content", "output", "system")
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
    for n, tool in enumerate(_list(body.get("tools"))):
        kind = cast("dict[str, Any]", tool).get("type") if isinstance(tool, dict) else None
        runs_here = kind is None or kind in _OURS or str(kind).startswith(_OURS_BEGIN)
        if not runs_here:
            return f"tools[{n}] ({kind})"
    for name in ("messages", "input", "system"):
        if (found := _part(body.get(name), name)) is not None:
            return found
    return None


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
