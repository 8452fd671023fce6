"""The table of providers in the guide says what the code does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import UsageError
from holdfast.gateway.messages import (
    FilePart,
    Message,
    OutputSchema,
    ProviderTool,
    ReasoningPart,
    Request,
    TextPart,
    ToolCallPart,
    assistant,
    user,
)
from holdfast.gateway.providers import KNOWN, Candidate, Provider
from holdfast.gateway.upstream import encode

GUIDE = Path(__file__).parents[2] / "docs/guides/providers.md"


def says(provider: Provider, *wanted: str, **asked: Any) -> bool:
    """Whether a request with this reaches the provider with these words in it."""
    request = Request("m", asked.pop("messages", (user("x"),)), **asked)
    try:
        body = json.dumps(encode(Candidate(provider, "m"), request, provider.formats[0]))
    except UsageError:
        return False
    return all(word in body for word in wanted)


def marks(provider: Provider) -> bool:
    said = (Message("user", (TextPart("x", cache="5m"),)),)
    return says(provider, "cache", messages=said)


def sends_reasoning_back(provider: Provider) -> bool:
    part = ReasoningPart("thought", "sig", None, None, provider.formats[0])
    call = ToolCallPart("c__sig_c2ln", "f", "{}")  # Gemini's way, by either of its formats
    said = (user("x"), assistant(part, call), user("y"))
    return says(provider, messages=said) and (
        says(provider, "sig", messages=said) or says(provider, "thought", messages=said)
    )


ABILITIES: dict[str, Callable[[Provider], bool]] = {
    "PDF": lambda p: says(p, "JVBERg", messages=(user(FilePart.of(b"%PDF", "application/pdf")),)),
    "sound": lambda p: says(p, "UklGRg", messages=(user(FilePart.of(b"RIFF", "audio/wav")),)),
    "schema": lambda p: says(
        p, "wanted_field",
        output=OutputSchema({"type": "object", "properties": {"wanted_field": {}}}),
    ) and p.quirks.json_schema,
    "marks": marks,
    "reasoning sent back": sends_reasoning_back,
    "web search": lambda p: says(p, "earch", provider_tools=(ProviderTool("web_search"),)),
    "code execution": lambda p: says(
        p, "ode", provider_tools=(ProviderTool("code_execution"),)
    ),
}  # fmt: skip


def rows() -> list[dict[str, str]]:
    lines = [line for line in GUIDE.read_text().splitlines() if line.startswith("|")]
    start = next(n for n, line in enumerate(lines) if "reasoning sent back" in line)
    names = [cell.strip() for cell in lines[start].strip("|").split("|")]
    found: list[dict[str, str]] = []
    for line in lines[start + 2 :]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != len(names):
            break
        found.append(dict(zip(names, cells, strict=True)))
    return found


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["provider"].strip("`"))
def test_a_row_of_the_table_is_true(row: dict[str, str]) -> None:
    provider = KNOWN[row["provider"].strip("`")]
    assert row["format"] == ", ".join(provider.formats)
    for name, can in ABILITIES.items():
        assert row[name] == ("yes" if can(provider) else "no"), name


def test_every_hosted_provider_has_a_row() -> None:
    listed = {row["provider"].strip("`") for row in rows()}
    hosted = {name for name, one in KNOWN.items() if one.kind == "http" and not one.free}
    assert hosted - listed <= {"together", "fireworks", "holdfast"}
