"""Approvals: a durable pause that a person ends, or its time limit."""

import asyncio
import sqlite3
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import (
    Agent,
    Approval,
    ApprovalRefused,
    Decision,
    Escalate,
    NotFound,
    NotInWorkflow,
    Refused,
    RunFailed,
    UsageError,
    approval,
    approval_token,
    decide,
    get_approval,
    list_approvals,
    start,
    step,
    tool,
    workflow,
)
from holdfast.gateway import Say, ScriptedModel
from holdfast.loop import approvals as asking
from holdfast.runtime.client import RunHandle
from holdfast.testing import Harness

prepared: list[int] = []


@pytest.fixture(autouse=True)
def nothing_prepared() -> None:
    prepared.clear()


@step
async def prepare(amount: int) -> None:
    prepared.append(amount)


@workflow(name="test-refund")
async def refund(amount: int) -> list[str]:
    await prepare(amount)
    decision = await approval("Refund", arguments={"amount": amount}, to="managers", timeout="24h")
    return [decision.status, decision.by, decision.note, decision.how]


async def waiting(harness: Harness, *amounts: int) -> tuple[list[RunHandle[Any]], list[Approval]]:
    runs = [await start(refund, amount) for amount in amounts or (900,)]
    await harness.until_blocked()
    found = {each.run_id: each for each in await list_approvals()}
    return runs, [found[run.id] for run in runs]


async def test_a_run_waits_until_somebody_approves(harness: Harness):
    (run,), (asked,) = await waiting(harness)
    assert (asked.title, asked.arguments, asked.asked_of) == ("Refund", {"amount": 900}, "managers")
    assert asked.expires_at - asked.requested_at == 24 * 3600
    decided = await decide(asked.id, True, by="ann", note="he is right")
    assert (decided.status, decided.decided_by, decided.how) == ("approved", "ann", "library")
    assert decided.decided_at == harness.clock.now()
    assert await run.result() == ["approved", "ann", "he is right", "library"]
    assert await list_approvals() == []
    assert [each.id for each in await list_approvals(status="approved")] == [asked.id]


async def test_a_rejection_is_a_decision_too(harness: Harness):
    (run,), (asked,) = await waiting(harness)
    await decide(asked.id, False, by="bob", note="no receipt")
    assert await run.result() == ["rejected", "bob", "no receipt", "library"]


async def test_nobody_deciding_in_time_is_a_no(harness: Harness):
    (run,), (asked,) = await waiting(harness)
    began = harness.clock.now()
    assert await run.result() == ["expired", "", "nobody decided in time", "timeout"]
    assert harness.clock.now() - began >= 24 * 3600
    assert (await get_approval(asked.id)).status == "expired"


async def test_a_pause_survives_crashes_and_nothing_before_it_is_done_again(harness: Harness):
    (run,), (asked,) = await waiting(harness)
    await harness.crash()
    await harness.skip("10h")
    await harness.crash()
    await decide(asked.id, True, by="ann")
    assert (await run.result())[0] == "approved"
    assert prepared == [900]


async def test_a_decision_made_while_no_worker_runs_counts(harness: Harness):
    (run,), (asked,) = await waiting(harness)
    await harness.skip("1h")  # the run has left memory
    assert harness.engine.runs == {}
    await decide(asked.id, True, by="ann")
    assert (await run.result())[0] == "approved"


async def test_the_fallback_may_be_to_approve(harness: Harness):
    @workflow
    async def lenient() -> Decision:
        return await approval("Send the newsletter", timeout="1h", fallback="approve")

    decision = await (await start(lenient)).result()
    assert (decision.approved, decision.status, decision.how) == (True, "approved", "timeout")
    assert (decision.by, decision.at) == ("", datetime.fromtimestamp(harness.clock.now(), UTC))


async def test_the_fallback_may_be_to_ask_somebody_else(harness: Harness):
    @workflow
    async def careful() -> Decision:
        then = Escalate("the head of support", timeout="4h")
        return await approval("Refund", timeout="1h", to="support", fallback=then)

    run = await start(careful)
    await harness.skip("90m")
    (asked,) = await list_approvals()
    assert asked.asked_of == "the head of support"
    assert asked.escalated_from is not None
    assert (await get_approval(asked.escalated_from)).status == "escalated"
    with pytest.raises(ApprovalRefused, match="is escalated"):
        await decide(asked.escalated_from, True, by="late@example.com")
    await decide(asked.id, True, by="head@example.com")
    assert (await run.result()).by == "head@example.com"

    again = await start(careful)
    assert (await again.result()).status == "expired"


async def test_whoever_is_asked_can_be_told_and_gets_a_token(harness: Harness):
    sent: list[tuple[str, str]] = []

    async def mail(asked: Approval, token: str) -> None:
        sent.append((asked.id, token))

    @workflow
    async def flow() -> bool:
        return (await approval("Refund", timeout="1h", notify=mail)).approved

    run = await start(flow)
    await harness.until_blocked()
    ((id, token),) = sent
    assert token == await approval_token(id)
    journal = b"".join(event.value or b"" for event in await run.events())
    assert token.encode() not in journal, "a token is a secret: it is in no journal"
    decided = await decide(id, True, by="ann", token=token)
    assert decided.how == "webhook"
    assert await run.result() is True


# --- what must not count ---


async def test_a_decision_counts_once(harness: Harness):
    (run,), (asked,) = await waiting(harness)
    token = await approval_token(asked.id)
    await decide(asked.id, True, by="ann", token=token)
    for approved in (True, False):
        with pytest.raises(ApprovalRefused, match="is approved by ann"):
            await decide(asked.id, approved, by="mallory", token=token)
    assert (await run.result())[1] == "ann"
    with pytest.raises(Refused):
        await decide(asked.id, False, by="mallory")


async def test_of_two_deciders_at_once_one_is_refused(harness: Harness):
    (run,), (asked,) = await waiting(harness)
    both = await asyncio.gather(
        decide(asked.id, True, by="ann"),
        decide(asked.id, False, by="bob"),
        return_exceptions=True,
    )
    refused = [each for each in both if isinstance(each, ApprovalRefused)]
    assert len(refused) == 1
    counted = next(each for each in both if isinstance(each, Approval))
    assert (await run.result())[:2] == [counted.status, counted.decided_by]


async def test_a_token_is_for_one_approval(harness: Harness):
    _, (one, other) = await waiting(harness, 900, 901)
    with pytest.raises(ApprovalRefused, match="token is not for"):
        await decide(one.id, True, by="mallory", token=await approval_token(other.id))
    with pytest.raises(ApprovalRefused, match="token is not for"):
        await decide(one.id, True, by="mallory", token="AAAA")
    assert (await get_approval(one.id)).status == "pending"


async def test_a_decision_about_other_arguments_than_were_seen_is_refused(harness: Harness):
    _, (asked, other) = await waiting(harness, 900, 901)
    with pytest.raises(ApprovalRefused, match="other arguments"):
        await decide(asked.id, True, by="ann", arguments_hash=other.arguments_hash)
    decided = await decide(asked.id, True, by="ann", arguments_hash=asked.arguments_hash)
    assert decided.approved


async def test_after_its_time_an_approval_can_not_be_decided(harness: Harness):
    _, (asked,) = await waiting(harness)
    token = await approval_token(asked.id)
    harness.clock.advance(asked.expires_at)  # nobody has noticed yet
    with pytest.raises(ApprovalRefused, match="is expired"):
        await decide(asked.id, True, by="ann", token=token)
    await harness.skip("1s")
    with pytest.raises(ApprovalRefused, match="is expired"):
        await decide(asked.id, True, by="ann", token=token)


async def test_a_run_that_has_ended_waits_for_nobody(harness: Harness):
    (run,), (asked,) = await waiting(harness)
    await run.cancel()
    await harness.until_blocked()
    assert (await get_approval(asked.id)).status == "withdrawn"
    assert await list_approvals() == []
    with pytest.raises(ApprovalRefused, match="withdrawn"):
        await decide(asked.id, True, by="ann")


async def test_an_approval_that_is_no_longer_waited_for_is_withdrawn(harness: Harness):
    @workflow
    async def hasty() -> str:
        try:
            async with asyncio.timeout(60):
                await approval("Refund", timeout="24h")
        except TimeoutError:
            return "gave up"
        return "decided"

    run = await start(hasty)
    assert await run.result() == "gave up"
    (found,) = await list_approvals(status=None, run=run.id)
    assert (found.status, found.decided_by) == ("withdrawn", "")


async def test_a_run_that_failed_and_is_retried_waits_again(harness: Harness):
    working = False

    @step(retries=0)
    async def book() -> str:
        if not working:
            raise OSError("the books are closed")
        return "booked"

    async def book_later() -> str:
        await asyncio.sleep(60)
        return await book()

    @workflow
    async def both() -> list[str]:
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(approval("Refund", timeout="24h"))
            booking = group.create_task(book_later())
        return [asking.result().by, booking.result()]

    run = await start(both)
    with pytest.raises(RunFailed):
        await run.result()
    (asked,) = await list_approvals(status="withdrawn")
    assert await list_approvals() == []
    with pytest.raises(ApprovalRefused, match="withdrawn"):
        await decide(asked.id, True, by="ann")
    working = True
    await run.retry()
    await harness.until_blocked()
    assert [each.id for each in await list_approvals()] == [asked.id]
    await decide(asked.id, True, by="ann")
    assert await run.result() == ["ann", "booked"]


async def test_a_run_that_failed_beside_its_approval_waits_for_nobody(harness: Harness):
    @step(retries=0)
    async def fail() -> None:
        raise OSError("no")

    @workflow
    async def careless() -> None:
        waiting = asyncio.create_task(approval("Refund", timeout="24h"))
        await asyncio.sleep(60)
        await fail()
        await waiting

    run = await start(careless)
    with pytest.raises(RunFailed):
        await run.result()
    assert await list_approvals() == []


async def test_a_fork_asks_for_itself(harness: Harness):
    acted: list[str] = []

    @step
    async def act(by: str) -> str:
        acted.append(by)
        return by

    @step
    async def report(by: str) -> str:
        return f"done for {by}"

    @workflow
    async def flow() -> str:
        decision = await approval("Refund", timeout="24h")
        return await report(await act(decision.by)) if decision else "denied"

    run = await start(flow)
    await harness.until_blocked()
    (asked,) = await list_approvals()
    await decide(asked.id, True, by="ann")
    assert await run.result() == "done for ann"
    keys = {each.name: each.key for each in await run.steps()}
    # From before the action: what was decided was decided for another run.
    forked = await run.fork(keys["act"])
    await harness.until_blocked()
    (again,) = await list_approvals()
    assert (again.run_id, acted) == (forked.id, ["ann"])
    await harness.crash()
    await decide(again.id, False, by="bob")
    assert await forked.result() == "denied"
    # From behind it: the action is history, and is not done again.
    later = await run.fork(keys["report"])
    assert await later.result() == "done for ann"
    assert acted == ["ann"]


async def test_a_wake_up_is_no_decision(harness: Harness):
    (run,), (asked,) = await waiting(harness)
    forged = b'{"approval": "%b", "approved": true}' % asked.id.encode()
    now = harness.clock.now()
    assert await harness.engine.store.send(f"@approval/{asked.id}", forged, "evt_1", None, now)
    await harness.until_blocked()
    assert [each.id for each in await list_approvals()] == [asked.id]
    await decide(asked.id, False, by="ann")
    assert (await run.result())[0] == "rejected"


def tamper(harness: Harness, sql: str, *values: Any) -> None:
    connection: sqlite3.Connection = harness._database.connection
    assert connection.execute(sql, values).rowcount == 1


async def test_a_decision_written_past_the_signature_does_not_count(harness: Harness):
    @workflow
    async def flow() -> str:
        try:
            return (await approval("Refund", arguments={"amount": 9}, timeout="1h")).status
        except ApprovalRefused as error:
            return error.message

    run = await start(flow)
    await harness.until_blocked()
    (asked,) = await list_approvals()
    tamper(
        harness,
        "UPDATE approvals SET status = 'approved', decided_by = 'boss', decided_at = 1,"
        " how = 'cli', signature = 'ff' WHERE id = ?",
        asked.id,
    )
    assert "signature does not fit" in await run.result()


async def test_changed_arguments_make_tokens_and_decisions_worthless(harness: Harness):
    _, (asked,) = await waiting(harness)
    token = await approval_token(asked.id)
    tamper(harness, "UPDATE approvals SET arguments = ? WHERE id = ?", '{"amount": 1}', asked.id)
    with pytest.raises(ApprovalRefused, match="token is not for"):
        await decide(asked.id, True, by="ann", token=token)
    with pytest.raises(ApprovalRefused, match="other arguments"):
        await decide(asked.id, True, by="ann")


# --- tools ---

paid: list[int] = []


@tool(needs_approval=lambda args: args.amount > 500, approval_timeout="24h", approvers="managers")
async def pay(amount: int) -> str:
    """Pay money back."""
    paid.append(amount)
    return f"paid {amount}"


@pytest.fixture
def payer() -> Any:
    paid.clear()

    def answer(request: Any) -> Any:
        amount = int(request.messages[-1].text) if request.messages[-1].role == "user" else 0
        return Say(tools=[("pay", {"amount": amount})]) if amount else "ready"

    with ScriptedModel("payer", answer) as model:
        yield model


@workflow(name="test-pay-it")
async def pay_it(amount: int) -> list[str]:
    result = await Agent("scripted/payer", tools=[pay], max_time="1m").run(str(amount))
    return [run.status for run in result.steps[0].tools] + [result.steps[0].tools[0].text]


async def test_a_small_amount_needs_nobody(harness: Harness, payer: Any):
    assert await (await start(pay_it, 500)).result() == ["done", "paid 500"]


async def test_a_tool_waits_for_its_approval_also_beyond_the_agents_time(
    harness: Harness, payer: Any
):
    run = await start(pay_it, 501)
    await harness.skip("20h")
    assert paid == []
    (asked,) = await list_approvals()
    assert (asked.tool, asked.arguments, asked.asked_of) == ("pay", {"amount": 501}, "managers")
    await harness.crash()
    await decide(asked.id, True, by="ann")
    assert await run.result() == ["done", "paid 501"]
    used = await get_approval(asked.id)
    assert used.used_by is not None and used.used_by.startswith(run.id)
    assert (paid, len(payer.requests)) == ([501], 2)


async def test_a_denied_tool_is_not_called_and_the_model_is_told(harness: Harness, payer: Any):
    run = await start(pay_it, 900)
    await harness.until_blocked()
    (asked,) = await list_approvals()
    await decide(asked.id, False, by="ann", note="Too much.")
    assert await run.result() == ["denied", "Denied by ann. Too much. It was not done."]
    late = await start(pay_it, 901)
    assert await late.result() == ["denied", "Denied: nobody approved it in time. It was not done."]
    assert paid == []


async def test_an_approval_is_used_by_the_run_and_the_arguments_it_is_for(
    harness: Harness, payer: Any
):
    run = await start(pay_it, 900)
    await harness.until_blocked()
    (asked,) = await list_approvals()
    await decide(asked.id, True, by="ann")
    await run.result()
    calls = [each for each in await run.steps() if each.name == "tool pay"]
    # A fork has the decision in its history, but the approval is not its own.
    forked = await run.fork(calls[0].key)
    assert (await forked.result())[0] == "failed"
    changed = await run.fork(calls[0].key, input={"arguments": {"amount": 90000}})
    assert "not an approval of this run" in (await changed.result())[1]
    assert paid == [900]


async def test_an_approval_does_not_stretch_to_other_arguments_or_steps(harness: Harness):
    ids: list[str] = []

    @step(retries=0)
    async def act(id: str, amount: int) -> str:
        await asking.use(id, "Refund", None, {"amount": amount})
        return "done"

    async def attempt(id: str, amount: int) -> str:
        try:
            return await act(id, amount)
        except ApprovalRefused as error:
            return error.message

    @workflow
    async def flow() -> list[str]:
        decision = await approval("Refund", arguments={"amount": 9}, timeout="1h")
        ids.append(decision.approval_id)
        return [await attempt(decision.approval_id, amount) for amount in (90, 9, 9)]

    run = await start(flow)
    await harness.until_blocked()
    (asked,) = await list_approvals()
    await decide(asked.id, True, by="ann")
    more, right, again = await run.result()
    assert "other arguments" in more
    assert right == "done"
    assert "was acted on before" in again


async def test_outside_a_workflow_nothing_that_needs_an_approval_is_done(payer: Any):
    with pytest.raises(NotInWorkflow, match="workflow body"):
        await Agent("scripted/payer", tools=[pay]).run("900")
    assert paid == []
    with pytest.raises(NotInWorkflow):
        await approval("Refund", timeout="1h")


def test_an_approval_without_a_time_limit_can_not_be_written():
    with pytest.raises(UsageError, match="go together"):
        tool(needs_approval=True)(prepare.function)
    with pytest.raises(TypeError, match="timeout"):
        approval("Refund")  # type: ignore[call-arg]


async def test_what_is_not_there_is_not_found(harness: Harness):
    with pytest.raises(NotFound):
        await decide("apr_1", True, by="ann")
    with pytest.raises(NotFound):
        await get_approval("apr_1")


async def test_a_decision_needs_a_name(harness: Harness):
    _, (asked,) = await waiting(harness)
    with pytest.raises(UsageError, match="needs a name"):
        await decide(asked.id, True, by=" ")


async def test_a_list_can_be_paged(harness: Harness):
    await waiting(harness, 1, 2, 3)
    first = await list_approvals(limit=2)
    rest = await list_approvals(limit=2, before=first[-1].id)
    assert [len(first), len(rest)] == [2, 1]
    assert len({each.id for each in (*first, *rest)}) == 3
    assert replace(first[0], status="approved").approved
