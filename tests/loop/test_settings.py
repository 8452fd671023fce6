"""What an agent may be told: parallel tools, per-tool limits, hooks, budgets, sub-agents."""

import asyncio
import threading
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from holdfast import Agent, UsageError, start, step, tool, workflow
from holdfast.gateway import Fail, Gateway, ImagePart, Say, ScriptedModel, TextPart
from holdfast.loop import AgentStep, StepPlan, run_agent
from holdfast.testing import Harness
from waiting import LIMIT


class Gauge:
    """How many are inside at once."""

    def __init__(self) -> None:
        self.inside = self.most = 0
        self.order: list[int] = []

    async def visit(self, number: int) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.order.append(number)
        for _ in range(5):
            await asyncio.sleep(0)
        self.inside -= 1


def visits(count: int) -> Say:
    return Say(tools=[("visit", {"number": number}) for number in range(count)])


@pytest.mark.parametrize(
    ("concurrency", "parallel", "most"), [(None, True, 5), (2, True, 2), (None, False, 1)]
)
async def test_tools_of_one_turn_are_carried_out_at_once_within_their_limit(
    concurrency: int | None, parallel: bool, most: int
):
    gauge = Gauge()

    @tool(concurrency=concurrency)
    async def visit(number: int) -> int:
        """Visit."""
        await gauge.visit(number)
        return number

    with ScriptedModel("visitor", [visits(5), "ready"]):
        agent = Agent("scripted/visitor", tools=[visit], parallel_tools=parallel)
        result = await agent.run("go")
    assert gauge.most == most
    assert [run.text for run in result.steps[0].tools] == ["0", "1", "2", "3", "4"]


async def test_in_a_workflow_they_are_at_once_too(harness: Harness):
    both = threading.Barrier(2, timeout=LIMIT)

    @tool
    def visit(number: int) -> int:
        """Visit, in a thread: each waits for the other."""
        both.wait()
        return number

    with ScriptedModel("visitor", [visits(2), "ready"]):

        @workflow
        async def flow() -> list[str]:
            result = await Agent("scripted/visitor", tools=[visit]).run("go")
            return [run.text for run in result.steps[0].tools]

        assert await (await start(flow)).result() == ["0", "1"]


async def test_an_idempotent_tool_is_tried_again(harness: Harness):
    tries: list[int] = []

    @tool(idempotent=True, retries=2)
    async def look(at: str) -> str:
        """Look."""
        tries.append(1)
        if len(tries) < 3:
            raise OSError("busy")
        return f"saw {at}"

    with ScriptedModel("looker", [Say(tools=[("look", {"at": "it"})]), "ready"]):

        @workflow
        async def flow() -> str:
            result = await Agent("scripted/looker", tools=[look]).run("go")
            return result.steps[0].tools[0].text

        assert await (await start(flow)).result() == "saw it"
    with pytest.raises(UsageError, match="not idempotent"):
        tool(retries=1)(look.function)


async def test_each_step_can_be_prepared(harness: Harness):
    @tool(idempotent=True)
    async def search(query: str) -> str:
        """Search."""
        return f"found {query}"

    def cheaper(plan: StepPlan) -> StepPlan | None:
        if plan.number == 1:
            return None
        last = plan.messages[-1:]
        return replace(plan, model="scripted/cheap", tools=(), messages=last, system="Be brief.")

    first = ScriptedModel("dear", [Say(tools=[("search", {"query": "x"})])])
    second = ScriptedModel("cheap", ["ready"])
    with first, second:

        @workflow
        async def flow() -> str:
            agent = Agent("scripted/dear", "Be thorough.", [search], prepare_step=cheaper)
            return (await agent.run("go")).output

        assert await (await start(flow)).result() == "ready"
    (asked,) = second.requests
    assert [message.role for message in asked.messages] == ["system", "tool"]
    assert asked.messages[0].text == "Be brief." and asked.tools == ()


async def test_a_tool_taken_away_for_a_step_can_not_be_called():
    called: list[int] = []

    @tool
    async def danger() -> str:
        """Do harm."""
        called.append(1)
        return ""

    with ScriptedModel("sly", [Say(tools=[("danger", {})]), "ready"]):
        agent = Agent(
            "scripted/sly", tools=[danger], prepare_step=lambda plan: replace(plan, tools=())
        )
        result = await agent.run("go")
    assert called == []
    assert "there is no tool 'danger'" in result.steps[0].tools[0].text


async def test_each_finished_step_is_told_of_and_may_call_steps(harness: Harness):
    seen: list[str] = []

    @step
    async def remember(text: str) -> None:
        seen.append(text)

    async def note(done: AgentStep) -> None:
        await remember(f"{done.number}: {done.reply.text}")

    with ScriptedModel("talker", [Say("one", tools=[("nothing", {})]), "two"]):

        @workflow
        async def flow() -> str:
            return (await Agent("scripted/talker", on_step_finish=note).run("go")).output

        assert await (await start(flow)).result() == "two"
    assert seen == ["1: one", "2: two"]


async def test_a_call_that_could_pass_the_budget_is_not_made(harness: Harness, gateway: Gateway):
    # Prices are $1 and $2 a million tokens: a call of 100 output tokens may cost $0.0002 and more.
    with ScriptedModel("spender", [Say("more", tools=[("nothing", {})])] * 99) as model:

        @workflow
        async def flow() -> list[str]:
            agent = Agent(
                "scripted/spender", budget="0.003", max_tokens=100, max_steps=50, max_repeats=None
            )
            result = await agent.run("go")
            return [result.finish, str(result.cost), result.error]

        finish, cost, error = await (await start(flow)).result()
    assert finish == "budget" and "may spend $0.003" in error
    assert 1 < len(model.requests) < 50
    calls = await gateway.ledger.calls(limit=100)
    tags = {tag for call in calls for tag in call.start.tags}
    assert len(tags) == 1
    spend = await gateway.ledger.spend(f"tag:{tags.pop()}")
    assert Decimal(spend.usd) / 10**9 == Decimal(cost) <= Decimal("0.003")


async def test_a_budget_holds_for_sub_agents_too():
    with (
        ScriptedModel("worker", ["x" * 400] * 99),
        ScriptedModel("boss", [Say(tools=[("worker", {"task": "go"})])] * 99),
    ):
        worker = Agent("scripted/worker", name="worker", max_tokens=100)
        agent = Agent(
            "scripted/boss", tools=[worker], budget="0.005", max_tokens=100, max_steps=90,
            max_repeats=None,
        )  # fmt: skip
        result = await agent.run("go")
    assert result.finish == "budget"
    own = result.cost
    assert own is not None and own < Decimal("0.004"), "part of it went to the sub-agent"


async def test_tokens_are_bounded():
    with ScriptedModel("chatty", [Say("x" * 4000, tools=[("nothing", {})])] * 99) as model:
        result = await Agent("scripted/chatty", token_limit=2000).run("go")
    assert (result.finish, len(model.requests)) == ("budget", 2)
    assert "tokens were used" in result.error


@pytest.mark.parametrize("wrong", ["much", -1, "NaN", "Infinity"])
def test_a_budget_is_an_amount(wrong: Any):
    with pytest.raises(UsageError, match="is no"):
        Agent("scripted/x", budget=wrong)


async def test_a_sub_agent_is_a_tool_and_its_calls_are_steps_too(harness: Harness):
    @tool(idempotent=True)
    async def read(page: str) -> str:
        """Read a page."""
        return f"{page}: 42"

    reader = ScriptedModel("reader", [Say(tools=[("read", {"page": "p1"})]), "It says 42."])
    boss = ScriptedModel("boss", [Say(tools=[("research", {"task": "Find it."})]), "42"])
    with reader, boss:

        @workflow
        async def flow() -> str:
            sub = Agent("scripted/reader", tools=[read], name="research", description="Reads.")
            return (await Agent("scripted/boss", tools=[sub]).run("go")).output

        run = await start(flow)
        assert await run.result() == "42"
        names = [each.name for each in await run.steps() if each.kind == "step"]
    assert names == [
        "generate_text scripted/boss",
        "generate_text scripted/reader",
        "tool read",
        "generate_text scripted/reader",
        "generate_text scripted/boss",
    ]
    shown = boss.requests[0].tools[0]
    assert (shown.name, shown.description) == ("research", "Reads.")
    assert boss.requests[1].messages[-1].parts[0].text == "It says 42."


async def test_a_sub_agent_that_does_not_finish_is_told_as_an_error():
    with (
        ScriptedModel("lost", [Say(tools=[("nothing", {})])] * 9),
        ScriptedModel("boss", [Say(tools=[("helper", {"task": "go"})]), "ready"]),
    ):
        helper = Agent("scripted/lost", name="helper", max_steps=2)
        result = await Agent("scripted/boss", tools=[helper]).run("go")
    told = result.steps[0].tools[0]
    assert told.status == "failed" and "because of max_steps" in told.text


async def test_results_are_told_as_text_pictures_or_json_and_cut():
    @tool
    async def show(what: str) -> Any:
        """Show."""
        return {
            "text": "plain",
            "nothing": None,
            "data": {"b": [1, {"c", "d", "e", "f"}], "a": Decimal("1.5")},
            "picture": ImagePart.of(b"png", "image/png"),
            "parts": [TextPart("see:"), ImagePart.of(b"png", "image/png")],
            "long": "x" * 1000,
        }[what]

    kinds = ["text", "nothing", "data", "picture", "parts", "long"]
    calls = [("show", {"what": what}) for what in kinds]
    with ScriptedModel("shower", [Say(tools=calls), "ready"]):
        result = await Agent("scripted/shower", tools=[show], max_result=100).run("go")
    runs = dict(zip(kinds, result.steps[0].tools, strict=True))
    assert runs["text"].text == "plain"
    assert runs["nothing"].text == "done"
    assert runs["data"].text == '{"b":[1,["c","d","e","f"]],"a":"1.5"}'
    assert isinstance(runs["picture"].content[0], ImagePart)
    assert len(runs["parts"].content) == 2
    assert "900 characters left out" in runs["long"].text


async def test_the_function_form_is_the_same():
    with ScriptedModel("talk", ['{"value": 7}']) as model:
        result = await run_agent("scripted/talk", "go", system="Be brief.", output=int)
    assert result.output == 7
    assert model.requests[0].messages[0].text == "Be brief."


async def test_a_providers_failure_is_raised():
    with ScriptedModel("broken", [Fail(400, "no")]), pytest.raises(Exception, match="no"):
        await Agent("scripted/broken").run("go")


def test_two_tools_of_one_name_are_refused():
    @tool(name="x")
    async def one() -> None:
        """One."""

    @tool(name="x")
    async def other() -> None:
        """Other."""

    agent = Agent("scripted/x", tools=[one, other])
    with pytest.raises(UsageError, match="two tools are named 'x'"):
        asyncio.run(agent.run("go"))
