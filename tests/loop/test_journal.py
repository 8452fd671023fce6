"""What an agent leaves in its run's journal."""

import sys
from typing import Any

import pytest

from holdfast import Agent, send_event, start, tool, wait_for_event, workflow
from holdfast.gateway import Say, ScriptedModel
from holdfast.records import STEP_STARTED
from holdfast.testing import Harness

SIZE = 2000


@tool(idempotent=True)
async def look(at: str) -> str:
    """Look."""
    return "y" * SIZE


def looks(turns: int) -> Any:
    def answer(request: Any) -> Any:
        done = sum(message.role == "assistant" for message in request.messages)
        return Say(tools=[("look", {"at": "it"})]) if done < turns else f"looked {done} times"

    return answer


@workflow(name="test-looking")
async def looking() -> str:
    agent = Agent("scripted/looker", "Look.", [look], max_steps=50, max_repeats=None)
    return (await agent.run("go")).output


async def test_the_journal_grows_with_the_conversation_not_with_its_square(harness: Harness):
    sizes: list[int] = []
    for turns in (10, 40):
        with ScriptedModel("looker", looks(turns)):
            run = await start(looking)
            assert await run.result() == f"looked {turns} times"
        sizes.append(sum(len(event.value or b"") for event in await run.events()))
    assert sizes[1] < 5 * sizes[0], "4 times the turns, 16 times the conversations sent"


LIMITS: list[int | None] = [None]


@workflow(name="test-repeating")
async def repeats() -> str:
    agent = Agent("scripted/looker", "Look.", [look], max_steps=50, max_repeats=LIMITS[0])
    result = await agent.run("go")
    await wait_for_event("go on", timeout="1h")
    return f"{result.finish}: {result.text}"


async def test_a_run_recorded_before_there_was_a_bound_on_repetition_replays(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    with ScriptedModel("looker", looks(9)):
        old = await start(repeats)
        await harness.until_blocked()
        monkeypatch.setattr(sys.modules[__name__], "LIMITS", [5])
        await harness.crash()
        await send_event("go on", run=old.id)
        assert await old.result() == "stop: looked 9 times"
        new = await start(repeats)
        await harness.until_blocked()
        await harness.crash()
        await send_event("go on", run=new.id)
        assert (await new.result()).startswith("repeating")


async def test_a_call_is_recorded_with_what_is_new_and_can_be_edited_in_a_fork(harness: Harness):
    with ScriptedModel("looker", looks(1)) as model, ScriptedModel("other", ["I am another."]):
        run = await start(looking)
        await run.result()
        asked = [
            event
            for event in await run.events()
            if event.type == STEP_STARTED and event.facts["name"].startswith("generate_text")
        ]
        assert (b"go" in (asked[0].value or b""), b"go" in (asked[1].value or b"")) == (True, False)
        forked = await run.fork(asked[1].key, input={"model": "scripted/other"})
        assert await forked.result() == "I am another."
    assert len(model.requests) == 2
    roles = [message.role for message in model.requests[1].messages]
    assert roles == ["system", "user", "assistant", "tool"], "the whole of it is sent"
