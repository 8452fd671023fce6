"""A tool that was interrupted: done again if that is harmless, else reported to the model."""

import asyncio

from holdfast import Agent, start, tool, workflow
from holdfast.gateway import Say, ScriptedModel
from holdfast.testing import Harness


class Till:
    """Counts what was done, and lets the test act while something is under way."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.times = 0

    async def charge(self) -> str:
        self.times += 1
        if self.times == 1:
            self.began.set()
            await asyncio.Event().wait()  # until the worker is killed
        return "charged"


async def interrupted(harness: Harness, *, idempotent: bool) -> tuple[Till, str, str]:
    till = Till()

    @tool(idempotent=idempotent)
    async def charge(amount: int) -> str:
        """Charge the card."""
        return await till.charge()

    with ScriptedModel("cashier", [Say(tools=[("charge", {"amount": 5})]), "ready"]) as model:

        @workflow
        async def flow() -> str:
            return (await Agent("scripted/cashier", tools=[charge]).run("go")).output

        run = await start(flow)
        await till.began.wait()
        await harness.crash()
        result = await run.result()
        return till, result, model.requests[-1].messages[-1].parts[0].text


async def test_an_interrupted_tool_is_not_done_again_and_the_model_is_told(harness: Harness):
    till, result, told = await interrupted(harness, idempotent=False)
    assert (till.times, result) == (1, "ready")
    assert told.startswith("Outcome unknown: the call was interrupted")


async def test_an_interrupted_tool_that_is_idempotent_is_done_again(harness: Harness):
    till, result, told = await interrupted(harness, idempotent=True)
    assert (till.times, result, told) == (2, "ready", "charged")


async def test_a_tool_that_is_not_idempotent_and_too_slow_has_an_unknown_outcome():
    @tool(timeout="10ms")
    async def pay() -> str:
        """Pay."""
        await asyncio.Event().wait()
        return ""

    @tool(timeout="10ms", idempotent=True)
    async def look() -> str:
        """Look."""
        await asyncio.Event().wait()
        return ""

    with ScriptedModel("slow", [Say(tools=[("pay", {}), ("look", {})]), "ready"]):
        result = await Agent("scripted/slow", tools=[pay, look]).run("go")
    assert [run.status for run in result.steps[0].tools] == ["unknown", "failed"]
    assert "took longer than 0.01 s. Outcome unknown" in result.steps[0].tools[0].text


async def test_tools_that_finished_before_a_crash_are_done_once(harness: Harness):
    did: list[int] = []
    began = asyncio.Event()

    @tool
    async def note(number: int) -> int:
        """Note it."""
        did.append(number)
        if number == 2 and did.count(2) == 1:
            began.set()
            await asyncio.Event().wait()
        return number

    calls = [("note", {"number": number}) for number in (1, 2, 3)]
    with ScriptedModel("noter", [Say(tools=calls), "ready"]) as model:

        @workflow
        async def flow() -> str:
            agent = Agent("scripted/noter", tools=[note], parallel_tools=False)
            return (await agent.run("go")).output

        run = await start(flow)
        await began.wait()
        await harness.crash()
        assert await run.result() == "ready"
    told = [part.text.partition(":")[0] for part in model.requests[-1].messages[-1].parts]
    assert told == ["1", "Outcome unknown", "3"]
    assert did == [1, 2, 3]
