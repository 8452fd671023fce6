"""The loop, plain and in a workflow: tools, errors told to the model, bounds, typed answers."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Optional

import pytest
from pydantic import BaseModel

from holdfast import Unfinished, UsageError, open_engine, sleep, start, step, workflow
from holdfast.gateway import Say, ScriptedModel
from holdfast.loop import Agent, AgentResult, has_called, repeating, tool
from holdfast.runtime.settings import Settings
from holdfast.testing import Harness


@tool(idempotent=True)
async def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first.
        b: The second,
            which may be negative.
    """
    return a + b


Run = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]


@pytest.fixture(params=["plain", "in a workflow", "replayed after every event"])
async def carry_out(request: pytest.FixtureRequest) -> Any:
    """Runs something as it is, in a workflow body, and in one that is replayed all the time."""
    if request.param == "plain":

        async def plain(body: Callable[[], Awaitable[Any]]) -> Any:
            return await body()

        yield plain
        return
    async with Harness(replay_always=request.param.startswith("replayed")):

        async def durable(body: Callable[[], Awaitable[Any]]) -> Any:
            results: list[Any] = []

            @workflow
            async def flow() -> None:
                found = await body()
                results.append(found)

            await (await start(flow)).result()
            return results[-1]

        yield durable


async def test_an_agent_calls_tools_until_it_has_an_answer(carry_out: Run):
    script = [Say("I'll add.", tools=[("add", {"a": 2, "b": 3})]), "It is 5."]

    async def body() -> Any:
        return await Agent("scripted/adder", "You add.", [add]).run("2 + 3?")

    with ScriptedModel("adder", script) as model:
        result = await carry_out(body)
    assert (result.output, result.finish) == ("It is 5.", "stop")
    assert [[run.text for run in each.tools] for each in result.steps] == [["5"], []]
    roles = [message.role for message in model.requests[1].messages]
    assert roles == ["system", "user", "assistant", "tool"]
    assert len(model.requests) == 2


def test_a_tool_is_described_by_its_annotations_and_docstring():
    found = Agent("scripted/x", tools=[add])
    wire = found.tools[0].wire
    assert (wire.name, wire.description) == ("add", "Add two numbers.")
    assert wire.schema["properties"] == {
        "a": {"type": "integer", "description": "The first."},
        "b": {"type": "integer", "description": "The second, which may be negative."},
    }
    assert wire.schema["required"] == ["a", "b"]
    assert wire.schema["additionalProperties"] is False


async def test_a_tool_called_directly_is_the_function_it_was():
    assert await add(1, 2) == 3


async def test_mistakes_are_told_to_the_model(carry_out: Run):
    @tool
    async def fail(why: str) -> str:
        """Fail."""
        raise ValueError(why)

    script = [
        Say(
            tools=[
                ("add", '{"a": 1'),
                ("add", {"a": "many", "b": 1}),
                ("add", {"a": 1, "b": 1, "c": 1}),
                ("subtract", {}),
                ("fail", {"why": "no luck"}),
                ("add", {"a": 1, "b": 1}),
            ]
        ),
        "I see.",
    ]

    async def body() -> Any:
        return await Agent("scripted/clumsy", tools=[add, fail]).run("go")

    with ScriptedModel("clumsy", script) as model:
        result = await carry_out(body)
    runs = result.steps[0].tools
    assert [run.status for run in runs] == ["wrong_arguments"] * 4 + ["failed", "done"]
    assert "broken JSON" in runs[0].text
    assert runs[1].text.startswith("wrong arguments: a: ")
    assert "c: Extra inputs" in runs[2].text
    assert runs[3].text == "there is no tool 'subtract' (there are: add, fail)"
    assert runs[4].text == "ValueError: no luck"
    told = model.requests[1].messages[-1].parts
    assert [part.is_error for part in told] == [True] * 5 + [False]


async def test_a_step_and_a_workflow_are_tools(carry_out: Run):
    @step
    async def shout(word: str) -> str:
        return word.upper()

    @workflow
    async def whisper(word: str) -> str:
        return word.lower()

    script = [Say(tools=[("shout", {"word": "a"}), ("whisper", {"word": "B"})]), "done"]

    async def body() -> Any:
        return await Agent("scripted/voice", tools=[shout, whisper]).run("go")

    with ScriptedModel("voice", script):
        result = await carry_out(body)
    assert [run.text for run in result.steps[0].tools] == ["A", "b"]


async def test_each_call_is_a_step_and_none_is_repeated_after_a_crash(harness: Harness):
    did: list[str] = []

    @tool
    async def note(word: str) -> str:
        """Note a word."""
        did.append(word)
        return f"noted {word}"

    script = [
        Say(tools=[("note", {"word": "one"}), ("note", {"word": "two"})]),
        Say(tools=[("note", {"word": "three"})]),
        "done",
    ]
    with ScriptedModel("noter", script) as model:

        @workflow
        async def flow() -> str:
            pause = lambda _: sleep("1h")  # noqa: E731
            agent = Agent("scripted/noter", tools=[note], max_time="1d", on_step_finish=pause)
            return (await agent.run("go")).output

        run = await start(flow)
        for _ in range(3):
            await harness.skip("30m")
            await harness.crash()
            await harness.skip("30m")
        assert await run.result() == "done"
        names = [each.name for each in await run.steps() if each.kind == "step"]
    asked = "generate_text scripted/noter"
    assert names == [asked, "tool note", "tool note", asked, "tool note", asked]
    assert did == ["one", "two", "three"]
    assert len(model.requests) == 3


class City(BaseModel):
    name: str
    people: int


async def test_an_answer_that_does_not_fit_is_repaired(carry_out: Run):
    script = ["Oslo!", '{"name": "Oslo"}', '{"name": "Oslo", "people": 700000}']

    async def body() -> Any:
        return await Agent("scripted/cities", output=City).run("Norway's capital?")

    with ScriptedModel("cities", script) as model:
        result: AgentResult[City] = await carry_out(body)
    assert result.output == City(name="Oslo", people=700000)
    assert "people: " in model.requests[2].messages[-1].text.replace("\n", ": ")
    assert model.requests[0].output is not None


async def test_repairs_are_bounded(carry_out: Run):
    async def body() -> Any:
        return await Agent("scripted/fool", output=City, repairs=1).run("Norway's capital?")

    with ScriptedModel("fool", ["no"] * 9) as model:
        result = await carry_out(body)
    assert (result.finish, len(model.requests)) == ("invalid", 2)
    with pytest.raises(Unfinished, match="invalid"):
        _ = result.output


async def test_steps_are_bounded(carry_out: Run):
    async def body() -> Any:
        return await Agent("scripted/busy", tools=[add], max_steps=3).run("go")

    with ScriptedModel("busy", [Say(tools=[("add", {"a": 1, "b": 1})])] * 9) as model:
        result = await carry_out(body)
    assert (result.finish, len(result.steps), len(model.requests)) == ("max_steps", 3, 3)
    with pytest.raises(Unfinished, match="3 steps because of max_steps"):
        _ = result.output


@pytest.mark.parametrize("durable", [False, True])
async def test_time_is_bounded_also_in_the_middle_of_a_tool(tmp_path: Path, durable: bool):
    @tool
    async def hang() -> str:
        """Never end."""
        await asyncio.Event().wait()
        return ""

    @workflow
    async def flow() -> str:
        agent = Agent("scripted/slow", tools=[hang], max_time="200ms")
        return (await agent.run("go")).finish

    with ScriptedModel("slow", [Say(tools=[("hang", {})]), "x"]):
        if durable:
            async with open_engine(tmp_path / "store.db"):
                assert await (await start(flow)).result() == "max_time"
        else:
            assert await flow() == "max_time"


async def test_stop_when_stops(carry_out: Run):
    async def body() -> Any:
        return await Agent("scripted/adder", tools=[add], stop_when=has_called("add")).run("go")

    with ScriptedModel("adder", [Say(tools=[("add", {"a": 1, "b": 1})])] * 2) as model:
        result = await carry_out(body)
    assert (result.finish, len(model.requests)) == ("stop_when", 1)


@pytest.mark.parametrize("finish", ["length", "refusal", "content_filter"])
async def test_a_reply_that_was_cut_or_refused_ends_it_and_calls_nothing(
    carry_out: Run, finish: Any
):
    async def body() -> Any:
        return await Agent("scripted/cut", tools=[add]).run("go")

    script = [Say("well", tools=[("add", {"a": 1, "b": 1})], finish=finish)]
    with ScriptedModel("cut", script):
        result = await carry_out(body)
    assert result.finish == finish
    assert [run.status for run in result.steps[0].tools] == ["not_run"]
    assert result.messages[-1].role == "tool", "the conversation can be gone on with"


async def test_a_conversation_is_gone_on_with(carry_out: Run):
    async def body() -> Any:
        agent = Agent("scripted/talk")
        first = await agent.run("one")
        return await agent.run("three", messages=first.messages)

    with ScriptedModel("talk", ["two", "four"]) as model:
        result = await carry_out(body)
    assert [m.text for m in model.requests[1].messages] == ["one", "two", "three"]
    assert [m.text for m in result.messages] == ["one", "two", "three", "four"]


def test_a_function_that_takes_anything_is_refused():
    def anything(*args: int) -> None:
        """Whatever."""

    with pytest.raises(UsageError, match="by name"):
        tool(anything)


# --- what can't be shown, null, deep arguments, repetition ---------------------------------------


class NotStorable:
    """Neither JSON nor anything that can be made of it."""


@pytest.mark.parametrize(
    "result",
    [NotStorable(), "half \ud83d of a character", [[]]],
    ids=["an object", "a half character", "endless"],
)
async def test_a_tool_whose_result_cant_be_shown_is_done_and_not_called_again(
    carry_out: Run, result: Any
):
    if isinstance(result, list):
        result[0] = result  # holds itself
    paid: list[int] = []

    @tool(idempotent=True, retries=3)
    async def pay(amount: int) -> Any:
        """Pay."""
        paid.append(amount)
        return result

    async def body() -> Any:
        return await Agent("scripted/payer", tools=[pay]).run("pay 3")

    with ScriptedModel("payer", [Say(tools=[("pay", {"amount": 3})]), "Paid."]) as model:
        found = await carry_out(body)
    assert paid == [3] and found.output == "Paid."
    [run] = found.steps[0].tools
    assert run.status == "done" and run.text.startswith("Done: it has taken effect")
    assert not model.requests[1].messages[-1].parts[0].is_error


async def test_a_result_too_large_for_the_store_is_done_too():
    paid: list[int] = []

    @tool(idempotent=True, retries=3)
    async def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "x" * 40_000

    @workflow
    async def flow() -> list[str]:
        found = await Agent("scripted/payer", tools=[pay]).run("pay 3")
        return [found.output, found.steps[0].tools[0].text]

    with ScriptedModel("payer", [Say(tools=[("pay", {"amount": 3})]), "Paid."]):
        async with Harness(settings=Settings(max_payload=30_000)):
            text, told = await (await start(flow)).result()
    assert (paid, text) == ([3], "Paid.")
    assert "Done: it has taken effect" in told and "more than the limit" in told


async def test_an_optional_answer_may_be_null(carry_out: Run):
    async def body() -> Any:
        return await Agent("scripted/nobody", output=Optional[City]).run("Atlantis's capital?")  # noqa: UP045

    with ScriptedModel("nobody", ['{"value": null}']):
        result: AgentResult[Any] = await carry_out(body)
    assert (result.finish, result.output) == ("stop", None)


async def test_an_agent_that_answers_null_is_a_tool_that_says_so(carry_out: Run):
    async def body() -> Any:
        finder = Agent("scripted/nobody", name="finder", output=Optional[City])  # noqa: UP045
        return await Agent("scripted/asker", tools=[finder]).run("go")

    script = [Say(tools=[("finder", {"task": "Atlantis"})]), "There is none."]
    with ScriptedModel("nobody", ['{"value": null}']), ScriptedModel("asker", script):
        result: AgentResult[Any] = await carry_out(body)
    assert result.steps[0].tools[0].text == "null"


@pytest.mark.parametrize("levels", [195, 400, 100_000])
async def test_arguments_that_are_too_deep_are_told_to_the_model(carry_out: Run, levels: int):
    deep = f'{{"a": {"[" * levels}{"]" * levels}, "b": 1}}'

    async def body() -> Any:
        return await Agent("scripted/deep", tools=[add]).run("go")

    with ScriptedModel("deep", [Say(tools=[("add", deep)]), "Sorry."]):
        result = await carry_out(body)
    assert result.output == "Sorry."
    [run] = result.steps[0].tools
    assert run.status == "wrong_arguments" and "send flatter ones" in run.text


ADDS = Say(tools=[("add", {"a": 1, "b": 1})])


async def test_an_agent_that_repeats_itself_is_stopped(carry_out: Run):
    async def body() -> Any:
        return await Agent("scripted/parrot", tools=[add]).run("go")

    with ScriptedModel("parrot", [ADDS] * 20) as model:
        result = await carry_out(body)
    assert (result.finish, len(model.requests)) == ("repeating", 5)
    assert "add: the same calls" in result.error
    with pytest.raises(Unfinished, match="repeating"):
        _ = result.output


async def test_repetition_is_the_same_calls_with_the_same_results_in_a_row():
    other = Say(tools=[("add", {"a": 1, "b": 2})])
    with ScriptedModel("parrot", [*[ADDS] * 4, other, *[ADDS] * 4, "2"]):
        assert (await Agent("scripted/parrot", tools=[add]).run("go")).output == "2"
    with ScriptedModel("parrot", [*[ADDS] * 8, "2"]):
        assert (await Agent("scripted/parrot", tools=[add], max_repeats=None).run("go")).output

    looks: list[int] = []

    @tool
    async def look() -> str:
        """Look whether it is done."""
        looks.append(1)
        return f"{len(looks)} of 9 done"

    with ScriptedModel("waiting", [*[Say(tools=[("look", {})])] * 9, "done"]):
        assert (await Agent("scripted/waiting", tools=[look]).run("go")).output == "done"


async def test_repeating_can_end_it_sooner():
    with ScriptedModel("parrot", [ADDS] * 9) as model:
        agent = Agent("scripted/parrot", tools=[add], stop_when=repeating(3))
        assert (await agent.run("go")).finish == "stop_when"
    assert len(model.requests) == 3
    with pytest.raises(UsageError, match="no repetition"):
        repeating(1)
