"""Values cross by their type hints, or are refused where they were handed in."""

import json
import math
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Literal
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from holdfast import CodecError, RunFailed, Settings, start, step, workflow
from holdfast.errors import PayloadTooLarge
from holdfast.runtime.codec import Signature, codec_for
from holdfast.testing import Harness


class Colour(Enum):
    RED = "red"


class Person(BaseModel):
    name: str
    born: datetime


@dataclass
class Node:
    data: bytes
    children: list["Node"] = field(default_factory=list)
    tags: frozenset[str] = frozenset()


VALUES: list[tuple[Any, Any]] = [
    (int, 5),
    (float, math.inf),
    (str, "ünï\x00code"),
    (bytes, bytes(range(256))),
    (None, None),
    (datetime, datetime(2026, 11, 15, 12, tzinfo=UTC)),
    (timedelta, timedelta(days=3, microseconds=7)),
    (Decimal, Decimal("1.10")),
    (UUID, UUID(int=7)),
    (Colour, Colour.RED),
    (Literal["a", "b"], "b"),
    (Person, Person(name="Ada", born=datetime(1815, 12, 10, tzinfo=UTC))),
    (Node, Node(b"\xff\x00", [Node(b"x", tags=frozenset("ab"))])),
    (list[Node] | None, [Node(b"")]),
    (dict[int, tuple[str, ...]], {1: ("a", "b")}),
    (set[int], {3, 1, 2}),
    (Person | Node, Node(b"either")),
    (Any, {"plain": [1, 2.5, None, True, "x"]}),
]


@pytest.mark.parametrize(("hint", "value"), VALUES, ids=[str(hint) for hint, _ in VALUES])
def test_a_value_comes_back_as_what_it_was(hint: Any, value: Any):
    codec = codec_for(hint)
    assert codec.decode(codec.encode(value, "$"), "$") == value


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(json_values)
def test_any_plain_value_needs_no_hint(value: Any):
    codec = codec_for(Any)
    again = codec.decode(codec.encode(value, "$"), "$")
    assert again == value
    assert type(again) is type(value)


REFUSED: list[tuple[Any, Callable[[], Any], str]] = [
    (
        Any,
        lambda: {"items": [1, {"client": socket.socket()}]},
        r"\$\.r\.items\[1\]\.client: a socket",
    ),
    (Any, lambda: (1, 2), r"\$\.r: a tuple without a type hint would come back"),
    (Any, lambda: {"a": {1: 2}}, r"\$\.r\.a\.1: a int without a type hint"),
    (Any, lambda: Node(b"x"), r"\$\.r: a Node without a type hint would come back as a dict"),
    (Any, lambda: math.nan, r"a float without a type hint would come back as a str"),
    (str, lambda: 5, r"\$\.r: a int can't be stored as str"),
    (list[int], lambda: ["x"], r"\$\.r: a list can't be stored as list\[int\]"),
]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize(("hint", "make", "message"), REFUSED)
def test_what_cannot_be_stored_is_refused_by_its_path(
    hint: Any, make: Callable[[], Any], message: str
):
    with pytest.raises(CodecError, match=message):
        codec_for(hint).encode(make(), "$.r")


def test_what_was_stored_must_fit_the_hint_when_it_is_read():
    with pytest.raises(CodecError, match=r"\$\.result\[1\]\.data: Field required"):
        codec_for(list[Node]).decode(b'[{"data":""},{}]', "$.result")


def test_arguments_are_stored_by_name_with_defaults_and_read_back():
    def function(
        a: int, b: Node = Node(b"d"), *rest: bytes, c: set[str], **more: float
    ) -> None: ...

    signature = Signature(function)
    text = signature.encode_arguments((1,), {"c": {"x"}})
    assert (
        text == b'{"a":1,"b":{"data":"ZA==","children":[],"tags":[]},"rest":[],"c":["x"],"more":{}}'
    )
    args, kwargs = signature.decode_arguments(
        signature.encode_arguments((1, Node(b"q"), b"r"), {"c": set(), "z": 2.5})
    )
    assert (args, kwargs) == ((1, Node(b"q"), b"r"), {"c": set(), "z": 2.5})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"{}", r"\$\.a: Field required"),
        (b'{"a":1,"x":2}', r"\$\.x"),
        (b"[", "JSON"),
        (b'{"a":"one"}', r"\$\.a"),
    ],
)
def test_wrong_input_is_refused_by_name(text: bytes, message: str):
    def function(a: int) -> None: ...

    with pytest.raises(CodecError, match=message):
        Signature(function).decode_arguments(text)


def test_a_type_that_cannot_be_stored_is_named():
    def function(a: socket.socket) -> None: ...

    with pytest.raises(CodecError, match="socket can't be stored"):
        Signature(function).encode_arguments((None,), {})


async def test_live_and_replay_see_the_same_decoded_value(harness: Harness):
    kept: list[Node] = []

    @step
    async def make() -> Node:
        kept.append(Node(b"x"))
        return kept[0]

    @workflow
    async def flow() -> bool:
        node = await make()
        return node == kept[0] and node is not kept[0]

    assert await (await start(flow)).result() is True


@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_an_unstorable_result_fails_the_step_at_once(harness: Harness):
    @step
    async def leak() -> dict[str, Any]:
        return {"handle": socket.socket()}

    @workflow
    async def flow() -> str:
        try:
            await leak()
        except CodecError as error:
            return str(error)
        return ""

    assert "$.result.handle: a socket can't be stored" in await (await start(flow)).result()
    assert harness.calls["leak"] == 1


async def test_an_unstorable_workflow_result_fails_the_run(harness: Harness):
    @workflow
    async def flow() -> Any:
        return object()

    with pytest.raises(RunFailed, match="a object can't be stored"):
        await (await start(flow)).result()


async def test_large_values_are_kept_apart_and_limits_are_clear():
    @step
    async def grow(size: int) -> str:
        return "x" * size

    @workflow
    async def flow(size: int) -> int:
        return len(await grow(size))

    async with Harness(settings=Settings(max_payload=500_000)) as harness:
        run = await start(flow, 400_000)
        assert await run.result() == 400_000
        blobs = harness.engine.store._database.connection.execute("SELECT count(*) FROM blobs")  # type: ignore[attr-defined]
        assert blobs.fetchone()[0] == 1
        with pytest.raises(RunFailed, match=r"600,002 bytes are more than the limit of 500,000"):
            await (await start(flow, 600_000)).result()

        @workflow
        async def echo(text: str) -> str:
            return text

        with pytest.raises(PayloadTooLarge):
            await start(echo, "x" * 500_001)


class Level(int):
    pass


QUICK = st.one_of(
    st.integers(),
    st.booleans(),
    st.text(),
    st.text(st.characters(max_codepoint=127)),
    st.sampled_from([2**63 - 1, 2**63, -(2**63), -(2**63) - 1, '\x7f\x00"\\/', "a" * 5000]),
)


@given(value=QUICK)
def test_plain_values_are_written_as_pydantic_writes_them(value: Any):
    """They take a shorter way, which nobody must be able to tell."""
    codec = codec_for(type(value))
    try:
        usual = codec.write(value, "$")
    except CodecError:
        with pytest.raises(CodecError):
            codec.encode(value, "$")
        return
    text = codec.encode(value, "$")
    assert json.loads(text) == json.loads(usual)
    decoded = codec.decode(text, "$")
    assert (type(decoded), decoded) == (type(value), value)


@given(number=QUICK, text=QUICK, flag=QUICK)
def test_a_call_of_plain_arguments_is_written_as_any_other(number: Any, text: Any, flag: Any):
    def function(number: int, text: str, flag: bool) -> None: ...

    signature = Signature(function)
    args = (number, text, flag)
    try:
        usual = signature.encode_arguments(args, {})
    except CodecError as error:
        with pytest.raises(CodecError) as raised:
            signature.encode_call(args, {})
        assert str(raised.value) == str(error)
        return
    written, plain = signature.encode_call(args, {})
    assert json.loads(written) == json.loads(usual)
    if plain is not None:  # the step is given these, not what is read back
        assert (plain, {}) == signature.decode_arguments(written)
        assert [type(each) for each in plain] == [int, str, bool]


@pytest.mark.parametrize("value", [Level(3), True, 2.0])
def test_what_only_looks_like_a_plain_value_takes_the_usual_way(value: Any):
    def function(number: int) -> None: ...

    try:
        _, plain = Signature(function).encode_call((value,), {})
    except CodecError:
        return
    assert plain is None


def test_a_plain_call_is_held_to_the_limit():
    def function(text: str) -> None: ...

    with pytest.raises(PayloadTooLarge, match=r"\$\.text"):
        Signature(function).encode_call(("a" * 50,), {}, 20)
    with pytest.raises(PayloadTooLarge):
        codec_for(str).encode("a" * 50, "$.result", 20)
