"""Requests and answers as JSON text: what calls are hashed, kept and replayed by."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.gateway.canonical_json import completion_from_text, completion_text, request_text
from holdfast.gateway.messages import (
    ImagePart,
    Message,
    OutputSchema,
    Part,
    ReasoningPart,
    RefusalPart,
    ReplyPart,
    Request,
    TextPart,
    Tool,
    ToolCallPart,
    ToolChoice,
    ToolResultPart,
)
from holdfast.gateway.reply import Completion, Usage

words = st.text(st.characters(codec=None), max_size=8)  # lone surrogates too: models write them
text_parts = st.builds(TextPart, words, st.none() | st.just("5m"))
tool_calls = st.builds(ToolCallPart, words, words, words)
reasoning = st.builds(ReasoningPart, words, st.none() | words, origin=st.just("anthropic"))
results = st.builds(ToolResultPart, words, st.tuples(text_parts), st.booleans())
images = st.builds(ImagePart, words, words)
data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
parts: st.SearchStrategy[Part] = text_parts | tool_calls | reasoning | results | images
messages = st.builds(
    Message, st.sampled_from(["user", "assistant"]), st.lists(parts, max_size=3).map(tuple)
)
requests = st.builds(
    Request,
    words,
    st.lists(messages, max_size=3).map(tuple),
    tools=st.lists(
        st.builds(Tool, words, words, st.dictionaries(words, data, max_size=2)), max_size=2
    ).map(tuple),
    tool_choice=st.none() | st.just(ToolChoice("required")),
    parallel_tools=st.none() | st.booleans(),
    max_tokens=st.none() | st.integers(0, 9999),
    temperature=st.none() | st.floats(0, 2),
    stop=st.lists(words, max_size=2).map(tuple),
    output=st.none() | st.just(OutputSchema({"type": "object"})),
    stream=st.booleans(),
    extra=st.dictionaries(words, st.dictionaries(words, data, max_size=2), max_size=2),
)
answered: st.SearchStrategy[ReplyPart] = text_parts | tool_calls | reasoning
completions = st.builds(
    Completion,
    st.lists(answered | st.builds(RefusalPart, words), max_size=3).map(tuple),
    st.sampled_from(["stop", "length"]),
    words,
    st.none() | st.builds(Usage, st.integers(0, 9), st.integers(0, 9), estimated=st.booleans()),
    st.none() | words,
)


def slim(value: Any) -> Any:
    """A record without what has its default, by the plainest of means."""
    if isinstance(value, tuple | list):
        return [slim(one) for one in cast("list[Any]", value)]
    if not dataclasses.is_dataclass(value):
        return value
    found: dict[str, Any] = {}
    for field in dataclasses.fields(value):
        one, default = getattr(value, field.name), field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if field.name == "type" or one != default:
            found[field.name] = slim(one)
    return found


@settings(deadline=None)
@given(requests)
def test_a_request_has_the_text_that_json_gives_it(request: Request) -> None:
    """Keys of calls are made of it: another text would be another call after an upgrade."""
    plain = slim(dataclasses.replace(request, stream=False))
    expected = json.dumps(plain, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    assert request_text(request) == expected


@settings(deadline=None)
@given(completions)
def test_an_answer_reads_back_as_it_was(completion: Completion) -> None:
    text = completion_text(completion)
    assert text == json.dumps(slim(completion), ensure_ascii=False, separators=(",", ":"))
    assert completion_from_text(text) == completion
