"""A model call in a workflow body is a durable step by itself; in a step it belongs to the step."""

import asyncio

import pytest
from pydantic import BaseModel

from holdfast import FatalError, RunFailed, sleep, start, step, workflow
from holdfast.gateway import Fail, ScriptedModel, generate_object, generate_text
from holdfast.testing import Harness


async def test_a_call_in_a_body_is_made_once_whatever_crashes(harness: Harness):
    with ScriptedModel("planner", ["first", "second", "too many"]) as model:

        @workflow
        async def flow() -> list[str]:
            one = await generate_text("scripted/planner", prompt="a")
            await sleep("1h")
            two = await generate_text("scripted/planner", prompt="b")
            await sleep("1h")
            return [one.text, two.text]

        run = await start(flow)
        await harness.skip("30m")
        await harness.crash()
        await harness.skip("1h")
        await harness.crash()
        assert await run.result() == ["first", "second"]
        assert len(model.requests) == 2
        names = [s.name for s in await run.steps() if s.kind == "step"]
        assert names == ["generate_text scripted/planner"] * 2


async def test_calls_in_parallel_keep_their_answers(harness: Harness):
    def answer(request):  # type: ignore[no-untyped-def]
        return request.messages[-1].text.upper()

    with ScriptedModel("shout", answer):

        @workflow
        async def flow() -> list[str]:
            calls = [generate_text("scripted/shout", prompt=text) for text in "abc"]
            return [reply.text for reply in await asyncio.gather(*calls)]

        assert await (await start(flow)).result() == ["A", "B", "C"]


async def test_a_call_in_a_step_is_no_step_of_its_own(harness: Harness):
    with ScriptedModel("planner", ["answer"]):

        @step
        async def ask() -> str:
            return (await generate_text("scripted/planner", prompt="a")).text

        @workflow
        async def flow() -> str:
            return await ask()

        run = await start(flow)
        assert await run.result() == "answer"
        assert [s.name for s in await run.steps()] == ["ask"]


async def test_a_run_that_failed_by_an_answer_asks_again_when_it_is_retried(harness: Harness):
    with ScriptedModel("fickle", ["no", "yes"]) as model:

        @step(retries=0)
        async def ask() -> str:
            reply = await generate_text("scripted/fickle", prompt="a")
            if reply.text == "no":
                raise FatalError("declined")
            return reply.text

        @workflow
        async def flow() -> str:
            return await ask()

        run = await start(flow)
        with pytest.raises(RunFailed, match="declined"):
            await run.result()
        await run.retry()
        assert await run.result() == "yes"
        assert len(model.requests) == 2


class Answer(BaseModel):
    number: int


async def test_objects_cross_a_crash(harness: Harness):
    with ScriptedModel("counter", ['{"number": 42}']):

        @workflow
        async def flow() -> int:
            reply = await generate_object("scripted/counter", schema=Answer, prompt="count")
            await sleep("1h")
            return reply.object.number

        run = await start(flow)
        await harness.skip("30m")
        await harness.crash()
        assert await run.result() == 42


async def test_a_refused_call_is_an_error_the_body_can_catch(harness: Harness):
    with ScriptedModel("broken", [Fail(400, "no")] * 5):

        @workflow
        async def flow() -> str:
            try:
                await generate_text("scripted/broken", prompt="a")
            except Exception as error:
                return type(error).__name__
            return ""

        assert await (await start(flow)).result() == "RequestRejected"

        @workflow
        async def careless() -> None:
            await generate_text("scripted/broken", prompt="a")

        with pytest.raises(RunFailed):
            await (await start(careless)).result()
