"""Inputs and outputs as pages show them: fields by name, text with its lines, code in colours.

What is long is cut, and says how much there is; what looks like a secret is masked. Pure but
for the mask, which is handed in.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from markupsafe import Markup

from holdfast.server.inspector import code_html
from holdfast.store.inspection import Payload

SHOWN_BYTES = 64 * 1024
"""Of a payload; the rest is a link away."""
SHOWN_TEXT = 16_000
"""Characters of one field."""
SHOWN_FIELDS = 60

Mask = Callable[[str], str]
CODE_FIELDS = ("code", "tests", "source", "script", "solution")


@dataclass(frozen=True)
class Field:
    """A named part of a payload."""

    name: str
    kind: str
    """text, code, value (one short line) or json"""
    html: Markup | str
    cut: int = 0
    """Characters left out."""
    wide: bool = False


@dataclass(frozen=True)
class Shown:
    """A payload, ready to be shown."""

    fields: list[Field]
    size: int
    is_whole: bool
    seq: int
    empty: bool = False


def show(found: Payload, seq: int, mask: Mask) -> Shown:
    """A payload as fields; where it is cut, as the text there is."""
    text = mask(found.data.decode(errors="replace"))
    if found.size == 0:
        return Shown([], 0, True, seq, empty=True)
    if not found.is_whole:
        fields = [Field("", "text", text[:SHOWN_TEXT], max(len(text) - SHOWN_TEXT, 0), wide=True)]
        return Shown(fields, found.size, False, seq)
    try:
        value: Any = json.loads(text)
    except ValueError:
        return Shown([Field("", "text", text, wide=True)], found.size, True, seq)
    fields = fields_of(value)
    whole = not any(field.cut for field in fields)
    return Shown(fields, found.size, whole, seq, empty=value is None or value == {})


def masked_value(value: Any, mask: Mask) -> Any:
    """A value with what looks like a secret masked, wherever it is in it."""
    return json.loads(mask(json.dumps(value, ensure_ascii=False)))


def fields_of(value: Any) -> list[Field]:
    """A value's fields; a value without names is one field."""
    if not isinstance(value, dict):
        return [field("", value)]
    named = cast("dict[str, Any]", value)
    language = language_in(named)
    found = [field(name, part, language) for name, part in list(named.items())[:SHOWN_FIELDS]]
    if len(named) > SHOWN_FIELDS:
        found.append(Field("…", "value", f"{len(named) - SHOWN_FIELDS} more fields", 1))
    return found


def language_in(named: dict[str, Any]) -> str:
    """The language of the code in a value: by its file name, or as it says itself."""
    filename = named.get("filename")
    if isinstance(filename, str) and code_html.language_of(filename):
        return code_html.language_of(filename)
    language = named.get("language")
    return language if isinstance(language, str) else "python"


def json_in(text: str) -> Any:
    """The object or list that a text is the JSON of, as tools and models hand them on; or None."""
    if text[:1] not in ("{", "[") or len(text) > SHOWN_TEXT:
        return None
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast("Any", found) if isinstance(found, dict | list) and found else None


def field(name: str, value: Any, language: str = "python") -> Field:
    """A part of a payload, shown as what it is."""
    if isinstance(value, str):
        inside = json_in(value)
        if inside is not None:
            return field(name, inside, language)
        text = value[:SHOWN_TEXT]
        cut = len(value) - len(text)
        if name in CODE_FIELDS and "\n" in text:
            return Field(name, "code", code_html.highlight(text, language), cut, wide=True)
        wide = "\n" in text or len(text) > 72
        return Field(name, "text" if wide else "value", text, cut, wide)
    if isinstance(value, dict | list) and value:
        text = json.dumps(value, ensure_ascii=False, indent=2)
        if len(text) <= 72 and "\n" not in text.strip("[]{}\n "):
            text = json.dumps(value, ensure_ascii=False)
            return Field(name, "json", code_html.highlight(text, "json"))
        shown = text[:SHOWN_TEXT]
        html = code_html.highlight(shown, "json")
        return Field(name, "json", html, len(text) - len(shown), wide=True)
    return Field(name, "value", json.dumps(value, ensure_ascii=False))
