"""What is stored comes back equal and of the same type, or is refused with its path."""

from __future__ import annotations

import math
import os
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from holdfast import CodecError, RunFailed, Settings, continue_as_new, start, step, workflow
from holdfast.runtime.codec import Signature, codec_for
from holdfast.testing import Harness

EXAMPLES = 20_000 if os.environ.get("HOLDFAST_FUZZ") else 150


@dataclass
class Animal:
    name: str


@dataclass
class Dog(Animal):
    owner: str = "nobody"


class Shape(BaseModel):
    colour: str


class Square(Shape):
    side: int


class Text(str):
    __slots__ = ()


@dataclass
class Box:
    content: Any
    items: list[Any] = field(default_factory=list)
    table: dict[str, Any] = field(default_factory=dict)


CHANGED: list[tuple[Any, Any, str]] = [
    (dict, {"a": math.nan}, r"\$\.r\.a: a float"),
    (dict, {1: "x"}, r"\$\.r\.1: a int"),
    (dict[str, Any], {"at": datetime(2026, 1, 1, tzinfo=UTC)}, r"\$\.r\.at: a datetime"),
    (list, [1, [b"x"]], r"\$\.r\[1\]\[0\]: a bytes"),
    (list[Any], [(1, 2)], r"\$\.r\[0\]: a tuple"),
    (Box, Box(Decimal("1.5")), r"\$\.r\.content: a Decimal"),
    (Box, Box(1, [UUID(int=1)]), r"\$\.r\.items\[0\]: a UUID"),
    (Box, Box(1, [], {"x": {2: 3}}), r"\$\.r\.table\.x\.2: a int"),
    (bytes | str, "abcd", r"\$\.r: a str"),
    (str | datetime, "2026-01-01T00:00:00Z", r"\$\.r"),
    (Animal, Dog("Rex", "Ann"), r"\$\.r: a Dog stored as Animal"),
    (list[Animal], [Animal("a"), Dog("b")], r"\$\.r\[1\]: a Dog"),
    (Shape, Square(colour="red", side=2), r"\$\.r: a Square stored as Shape"),
    (str, Text("x"), r"\$\.r: a Text"),
    (float, 2**60 + 1, r"\$\.r"),
    (Sequence[int], (1, 2), r"\$\.r: a tuple"),
]


@pytest.mark.parametrize(("hint", "value", "message"), CHANGED, ids=[str(c[0]) for c in CHANGED])
def test_a_value_that_would_change_is_refused_by_its_path(hint: Any, value: Any, message: str):
    codec = codec_for(hint)
    try:
        text = codec.encode(value, "$.r")
    except CodecError as error:
        assert error.hint
        assert re.match(message, error.message)
    else:
        again = codec.decode(text, "$.r")
        assert (type(again), again) == (type(value), value)


def test_an_argument_that_would_change_is_refused_by_its_name():
    def function(number: int, box: dict[str, Any]) -> None: ...

    signature = Signature(function)
    with pytest.raises(CodecError, match=r"\$\.box\.at: a datetime"):
        signature.encode_arguments((1, {"at": datetime.now(UTC)}), {})
    assert signature.encode_arguments((1, {"at": 5}), {}) == b'{"number":1,"box":{"at":5}}'


SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**70), 2**70),
    str: st.text(),
    bool: st.booleans(),
    type(None): st.none(),
    float: st.floats(),
    bytes: st.binary(),
    datetime: st.datetimes(timezones=st.none() | st.just(UTC)),
    date: st.dates(),
    time: st.times(),
    timedelta: st.timedeltas(timedelta(days=-10_000), timedelta(days=10_000)),
    Decimal: st.decimals(allow_nan=False, allow_infinity=False),
    UUID: st.uuids(),
    Path: st.text("abc/.", min_size=1).map(Path),
    Animal: st.builds(Animal, st.text()) | st.builds(Dog, st.text(), st.text()),
    Shape: st.builds(Shape, colour=st.text())
    | st.builds(Square, colour=st.text(), side=st.integers()),
}
every_value = st.recursive(
    st.one_of(*SCALARS.values()),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.lists(inner, max_size=3).map(deque)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=3)
        | st.builds(Box, inner)
    ),
    max_leaves=6,
)
every_hint = st.recursive(
    st.sampled_from([*SCALARS, Any, dict, list, tuple, Box]),
    lambda inner: st.one_of(
        inner.map(lambda hint: list[hint]),
        inner.map(lambda hint: dict[str, hint]),
        inner.map(lambda hint: dict[int, hint]),
        inner.map(lambda hint: tuple[hint, ...]),
        inner.map(lambda hint: deque[hint]),
        inner.map(lambda hint: Sequence[hint]),
        st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1] if pair[0] is not Any else Any),
    ),
    max_leaves=4,
)


def alike(one: Any, other: Any) -> bool:
    """Equal and of the same type, all the way down; written apart from the codec's own check."""
    if type(one) is int and type(other) is float:
        return one == other
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return len(one) == len(other) and all(
            alike(k, j) and alike(one[k], other[j]) for k, j in zip(one, other, strict=True)
        )
    if isinstance(one, list | tuple | deque):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, Animal | Box | Shape):
        return alike(dict(vars(one)), dict(vars(other)))
    return one == other or (one != one and other != other)


@settings(max_examples=EXAMPLES, deadline=None)
@given(every_hint, every_value)
def test_what_is_stored_comes_back_or_is_refused(hint: Any, value: Any):
    codec = codec_for(hint)
    try:
        text = codec.encode(value, "$")
    except CodecError:
        return
    assert alike(value, codec.decode(text, "$"))


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.data())
def test_a_value_of_its_hints_own_type_is_taken(data: st.DataObject):
    hint = data.draw(st.sampled_from([kind for kind in SCALARS if kind not in (Animal, Shape)]))
    value = data.draw(SCALARS[hint])
    for kind, wrapped in ((hint, value), (list[hint], [value]), (dict[str, hint], {"k": value})):
        codec = codec_for(kind)
        assert alike(wrapped, codec.decode(codec.encode(wrapped, "$"), "$"))


def own_list() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("hint", [Any, list])
@pytest.mark.parametrize("levels", [201, 5_000, 100_000])
def test_a_value_too_deep_is_refused(hint: Any, levels: int):
    with pytest.raises(CodecError, match="more than 200 levels"):
        codec_for(hint).encode(nested(levels), "$.r")


@pytest.mark.parametrize("hint", [Any, list, dict])
def test_a_value_that_holds_itself_is_refused_by_its_path(hint: Any):
    value = {"a": own_list()} if hint is dict else own_list()
    with pytest.raises(CodecError, match=r"\$\.r.*: holds itself, being the same as \$\.r"):
        codec_for(hint).encode(value, "$.r")


@step
async def long_text(length: int) -> str:
    return "x" * length


@step
async def length_of(text: str) -> int:
    return len(text)


@workflow
async def returns(length: int) -> str:
    return "y" * length


@workflow
async def passes(length: int) -> int:
    return await length_of("z" * length)


@workflow
async def starts(length: int) -> str:
    return (await (await start(takes, "s" * length)).result())[:1]


@workflow
async def takes(text: str) -> str:
    return text[:1]


@workflow
async def goes_on(length: int, text: str = "") -> str:
    if not text:
        continue_as_new(length, "c" * length)
    return "c"


@pytest.mark.parametrize("flow", [returns, passes, starts, goes_on])
async def test_the_limit_of_payloads_holds_for_results_of_runs_and_arguments(flow: Any):
    async with Harness(settings=Settings(max_payload=1_000)):
        with pytest.raises(RunFailed, match="more than the limit of 1,000"):
            await (await start(flow, 2_000)).result()
        assert await (await start(flow, 500)).result() in ("y" * 500, 500, "s", "c")
