"""The calls people make: text, streams, objects, tools, steps, and the seam for the runtime."""

from __future__ import annotations

import asyncio
import dataclasses
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import date
from decimal import Decimal
from typing import Any

import pydantic
import pytest

from gateway.support import fake_providers, make_gateway
from holdfast.errors import BadReply, OutcomeUnknown, UnknownModel, UsageError
from holdfast.gateway import (
    Fail,
    Gateway,
    Reply,
    Say,
    ScriptedModel,
    Tool,
    assistant,
    generate_object,
    generate_text,
    stream_text,
    through,
    tool_result,
    user,
)
from holdfast.gateway.messages import ReasoningPart, TextPart
from holdfast.gateway.reply import Completion, End, PartStart, Usage
from holdfast.session import Caller, CurrentStep, set_caller
from holdfast.testing.providers import FakeProvider


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    gateway = make_gateway()
    with through(gateway):
        yield gateway
    await gateway.close()


async def test_a_reply_tells_what_it_cost_and_how_it_came(gateway: Gateway) -> None:
    with ScriptedModel("m", [Say("hello", usage=Usage(5, 2))]) as model:
        reply = await generate_text("scripted/m", system="be kind", prompt="hi", max_tokens=9)
    assert (reply.text, reply.finish, reply.model) == ("hello", "stop", "scripted/m")
    assert (reply.usage, reply.cost) == (Usage(5, 2), Decimal(0))
    assert reply.served_by == "scripted/m" and reply.latency > 0
    assert [attempt.provider for attempt in reply.attempts] == ["scripted"]
    asked = model.requests[0]
    assert [message.role for message in asked.messages] == ["system", "user"]
    assert asked.max_tokens == 9


async def test_a_stream_gives_pieces_then_the_whole(gateway: Gateway) -> None:
    with ScriptedModel("m", [Say("one two three four", reasoning="hm", chunk=5)]):
        async with stream_text("scripted/m", prompt="hi") as stream:
            pieces = [piece async for piece in stream]
        reply = await stream.reply()
    assert pieces == ["one t", "wo th", "ree f", "our"]
    assert (reply.text, reply.reasoning) == ("one two three four", "hm")
    assert reply.first_token is not None and 0 < reply.first_token <= reply.latency


async def test_a_streams_events_have_everything(gateway: Gateway) -> None:
    with ScriptedModel("m", [Say("t", reasoning="r", tools=[("f", {"a": 1})])]):
        events = [event async for event in stream_text("scripted/m", prompt="hi").events()]
    kinds = [event.part.type for event in events if isinstance(event, PartStart)]
    assert kinds == ["reasoning", "text", "tool_call"]
    assert isinstance(events[-1], End) and events[-1].finish == "tool_calls"


async def test_a_stream_left_early_is_recorded_as_interrupted(gateway: Gateway) -> None:
    with ScriptedModel("m", [Say("x" * 1000, chunk=1, delay=0.01)]):
        async with stream_text("scripted/m", prompt="hi") as stream:
            async for _ in stream:
                break
    (call,) = await gateway.ledger.calls()
    assert call.status == "interrupted"


async def test_a_streams_error_reaches_its_reader(gateway: Gateway) -> None:
    with ScriptedModel("m", [Fail("cut")]):
        seen = ""
        with pytest.raises(BadReply):
            async for piece in stream_text("scripted/m", prompt="hi"):
                seen += piece
    assert seen.startswith("This answer")


@pytest.mark.parametrize("fails", [False, True])
async def test_a_slow_reader_loses_nothing(gateway: Gateway, fails: bool) -> None:
    words = "".join(chr(97 + n % 26) for n in range(500))
    answer = Fail("cut", text=words, after=480) if fails else Say(words, chunk=1)
    with ScriptedModel("m", [answer]):
        stream = stream_text("scripted/m", prompt="hi")
        seen = ""
        try:
            async for piece in stream:
                await asyncio.sleep(0)
                seen += piece
        except BadReply:
            assert fails
    assert seen == (words[:480] if fails else words)


async def test_streams_reuse_their_connection() -> None:
    with FakeProvider(lambda _: "hi") as fake:
        gateway = make_gateway(providers=fake_providers(fake.url, "chat"))
        for _ in range(5):
            await stream_text("fake-chat/m", prompt="hi", gateway=gateway).reply()
            while gateway.backends.client._reading:
                await asyncio.sleep(0.01)
        [(connections, _)] = gateway.backends.client._pools.values()
        [idle] = connections._idle.values()
        assert len(idle) == 1
        await gateway.close()


async def test_tools_from_functions_and_their_results(gateway: Gateway) -> None:
    def weather(city: str, days: int = 1) -> str:
        """The weather of a city."""
        raise NotImplementedError

    script = [Say(tools=[("weather", {"city": "Oslo"})]), "It rains."]
    with ScriptedModel("m", script) as model:
        first = await generate_text("scripted/m", prompt="hi", tools=[weather], tool_choice="auto")
        (call,) = first.tool_calls
        assert call.input == {"city": "Oslo"}
        messages = [user("hi"), first.message, tool_result(call.id, "rain")]
        second = await generate_text("scripted/m", messages=messages, tools=[weather])
    assert second.text == "It rains."
    tool = model.requests[0].tools[0]
    assert (tool.name, tool.description) == ("weather", "The weather of a city.")
    assert tool.schema["required"] == ["city"]
    assert Tool.of(weather) == tool


@pytest.mark.parametrize(
    "arguments", [{}, {"prompt": "a", "messages": [user("b")]}, {"messages": []}]
)
async def test_what_cant_be_meant_is_refused(gateway: Gateway, arguments: Any) -> None:
    with pytest.raises(UsageError):
        await generate_text("scripted/echo", **arguments)


# --- objects -----------------------------------------------------------------------------------


class City(pydantic.BaseModel):
    name: str
    founded: date | None = None


@dataclasses.dataclass
class Point:
    x: int
    y: int


async def test_objects_are_typed(gateway: Gateway) -> None:
    script = ['{"name": "Oslo", "founded": "1048-01-01"}', '{"x": 1, "y": 2}', '{"value": [1, 2]}']
    with ScriptedModel("m", script) as model:
        city = await generate_object("scripted/m", schema=City, prompt="a city")
        point = await generate_object("scripted/m", schema=Point, prompt="a point")
        numbers = await generate_object("scripted/m", schema=list[int], prompt="numbers")
    assert city.object == City(name="Oslo", founded=date(1048, 1, 1))
    assert point.object == Point(1, 2)
    assert numbers.object == [1, 2]
    wanted = [request.output for request in model.requests]
    assert [output.strict for output in wanted if output] == [False, True, True]
    assert all(o and o.schema and o.schema["additionalProperties"] is False for o in wanted)


async def test_a_wrong_object_is_asked_for_again(gateway: Gateway) -> None:
    with ScriptedModel("m", ['{"x": "one"}', '```json\n{"x": 1, "y": 2}\n```']) as model:
        answer = await generate_object("scripted/m", schema=Point, prompt="a point")
    assert (answer.object, answer.asked) == (Point(1, 2), 2)
    assert "not valid" in model.requests[1].messages[-1].text


async def test_an_object_that_stays_wrong_is_an_error(gateway: Gateway) -> None:
    with (
        ScriptedModel("m", ["no", "still no", "never"]),
        pytest.raises(BadReply, match="did not answer with a valid Point"),
    ):
        await generate_object("scripted/m", schema=Point, prompt="a point", repairs=2)


# --- in a step ---------------------------------------------------------------------------------


def step(attempt: int = 1, key: str = "idem-1") -> CurrentStep:
    return CurrentStep("run_1", "w", "s", "0.1", attempt, key)


async def test_a_call_in_a_step_belongs_to_it(gateway: Gateway) -> None:
    set_caller(Caller(step=step()))
    await generate_text("scripted/echo", prompt="hi")
    (call,) = await gateway.ledger.calls(run_id="run_1")
    found = call.start
    assert (found.workflow, found.step, found.step_key, found.attempt) == ("w", "s", "0.1", 1)


async def test_a_step_run_again_after_its_worker_died_pays_once(gateway: Gateway) -> None:
    with ScriptedModel("m", ["one", "two", "three"]) as model:
        set_caller(Caller(step=step()))
        first = [await generate_text("scripted/m", prompt="same") for _ in range(2)]
        set_caller(Caller(step=step()))  # the same attempt, on another worker
        second = [await generate_text("scripted/m", prompt="same") for _ in range(2)]
        assert [reply.text for reply in first] == [reply.text for reply in second] == ["one", "two"]
        assert [reply.replayed for reply in second] == [True, True]
        assert len(model.requests) == 2
        set_caller(Caller(step=step(attempt=2)))  # the step failed: perhaps because of the answer
        assert (await generate_text("scripted/m", prompt="same")).text == "three"


async def test_a_replayed_stream_is_whole(gateway: Gateway) -> None:
    part = ReasoningPart("deep", signature="sig", origin="anthropic")
    answer = Completion((part, TextPart("whole")), "stop", "m", Usage(3, 4), "id-1")
    with ScriptedModel("m", [answer]):
        set_caller(Caller(step=step()))
        first = await stream_text("scripted/m", prompt="hi").reply()
        set_caller(Caller(step=step()))
        async with stream_text("scripted/m", prompt="hi") as stream:
            assert [piece async for piece in stream] == ["whole"]
        again = await stream.reply()
    assert (again.parts, again.usage, again.replayed) == (first.parts, first.usage, True)
    assert again.message.parts[0] == part


async def test_an_unknown_outcome_is_not_paid_again_by_itself(tmp_path: Any) -> None:
    from holdfast.records.calls import CallStart
    from holdfast.store.sqlite.ledger import SqliteLedger

    store = tmp_path / "store.db"
    with FakeProvider(lambda _: "fresh") as fake:
        gateway = make_gateway(store, providers=fake_providers(fake.url, "chat"))
        set_caller(Caller(step=step()))
        await generate_text("fake-chat/m", prompt="hi", gateway=gateway)
        known = (await gateway.ledger.calls())[0].start
        await gateway.ledger.supersede(known.id)
        dead = SqliteLedger(store)
        lost = CallStart("call_lost", "fake-chat/m", "holdfast", 1.0, known.key, known.request_hash)
        await dead.begin(lost, scopes=[], usd=0, tokens=0)
        dead._database.close()  # type: ignore[attr-defined]
        dead._owner.close()  # type: ignore[attr-defined]
        set_caller(Caller(step=step()))
        with pytest.raises(OutcomeUnknown):
            await generate_text("fake-chat/m", prompt="hi", gateway=gateway)
        assert fake.hits == 1
        bold = make_gateway(store, providers=fake_providers(fake.url, "chat"), on_unknown="again")
        set_caller(Caller(step=step()))
        assert (await generate_text("fake-chat/m", prompt="hi", gateway=bold)).text == "fresh"
        assert fake.hits == 2
        await gateway.close()
        await bold.close()


async def test_a_steps_model_can_be_configured() -> None:
    gateway = make_gateway(steps={"s": "scripted/other"})
    set_caller(Caller(step=step()))
    with ScriptedModel("other", ["from the other"]):
        reply = await generate_text("scripted/echo", prompt="hi", gateway=gateway)
    assert reply.text == "from the other"
    await gateway.close()


# --- the runtime's seam --------------------------------------------------------------------------


async def test_in_a_workflow_body_a_call_is_handed_to_the_runtime(gateway: Gateway) -> None:
    journal: list[tuple[str, bytes]] = []

    async def durable(name: str, function: Callable[[Any], Awaitable[Any]], argument: Any) -> Any:
        hints = function.__annotations__
        assert "Reply" in str(hints["return"])
        set_caller(Caller())  # the step's body runs without it
        result = await function(argument)
        encoded = pydantic.TypeAdapter(Reply).dump_json(result)
        journal.append((name, encoded))
        set_caller(Caller(interceptor=durable))  # type: ignore[arg-type]
        return pydantic.TypeAdapter(Reply).validate_json(encoded)

    set_caller(Caller(interceptor=durable))  # type: ignore[arg-type]
    script = [Say("hi", reasoning="r", tools=[("f", {})]), Say("streamed")]
    with ScriptedModel("m", script):
        reply = await generate_text("scripted/m", prompt="hi", tags=["t"])
        async with stream_text("scripted/m", prompt="hi") as stream:
            pieces = [piece async for piece in stream]
    set_caller(Caller())
    assert (reply.text, reply.reasoning, reply.tool_calls[0].name) == ("hi", "r", "f")
    assert pieces == ["streamed"]
    assert [name for name, _ in journal] == ["generate_text scripted/m"] * 2


async def test_an_unknown_model_is_named_with_a_way_out(gateway: Gateway) -> None:
    for name in ("nobody/m", "anthropc/claude", "fast", "", "x" * 300, "../etc/passwd"):
        with pytest.raises(UnknownModel):
            await generate_text(name, prompt="hi")
    with pytest.raises(UnknownModel, match="ANTHROPIC_API_KEY is not set"):
        await generate_text("claude-sonnet-4-5", prompt="hi")


async def test_the_gateway_works_from_more_than_one_event_loop() -> None:
    with FakeProvider(lambda _: "hi") as fake:
        gateway = make_gateway(providers=fake_providers(fake.url, "chat"))

        def run() -> str:
            return asyncio.run(_text(gateway))

        texts = [await asyncio.to_thread(run) for _ in range(3)]
        assert texts == ["hi"] * 3
        await gateway.close()


async def _text(gateway: Gateway) -> str:
    return (await generate_text("fake-chat/m", prompt="hi", gateway=gateway)).text


SCRIPT = """
import asyncio, warnings
warnings.simplefilter("error")
from holdfast.gateway import ScriptedModel, generate_text
print(asyncio.run(generate_text("fake/m", prompt="hi")).text)
"""


def test_a_plain_script_works_and_leaves_nothing_behind(tmp_path: Any) -> None:
    with FakeProvider(["hi"]) as fake:
        (tmp_path / "holdfast.toml").write_text(
            f'[gateway.providers.fake]\nbase_url = "{fake.url}"\n'
        )
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", SCRIPT],
            capture_output=True, text=True, check=True, cwd=tmp_path,
        )  # fmt: skip
    assert (done.stdout, done.stderr) == ("hi\n", "")
    assert (tmp_path / ".holdfast" / "holdfast.db").exists()


def test_importing_is_silent_and_pulls_in_nothing_heavy() -> None:
    code = (
        "import sys, holdfast.gateway, holdfast.gateway.calls, holdfast.gateway.service.app;"
        "print([m for m in ('aiohttp', 'pydantic', 'genai_prices', 'uvicorn', 'xllamacpp')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_assistant_messages_can_be_built() -> None:
    assert assistant("a", TextPart("b")).text == "ab"
