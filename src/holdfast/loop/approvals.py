"""Asking people, from a workflow: a durable pause with a time limit.

    decision = await approval("Refund 900 €", arguments={"order": "A-1"}, timeout="24h")
    if decision: ...

The run asks (a step), waits (a row, nothing in memory), and when it wakes reads how the approval
stands (a step). The event that wakes it carries nothing: what counts is the row, closed once, by
a person or by the fallback. Whoever acts on a decision calls `use`, which checks that it is
signed, of this run, about these arguments, and used by nobody else.

What binds a decision is a hash of the title, the tool and the arguments, in one form; it is shown
to whoever decides and checked again before anything is done. Tokens and decisions are signed
(HMAC-SHA256) with a secret that the store makes when it is first needed. A token is for one
approval of one run about one set of arguments until one moment; a signature is for one decision by
one person on top.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from holdfast.durations import Duration, seconds
from holdfast.errors import ApprovalRefused, NotInWorkflow
from holdfast.ids import derived_id
from holdfast.records.approvals import Approval, ApprovalStatus, How, Verdict
from holdfast.runtime.app import current_engine
from holdfast.runtime.context import execution, patched, step_context, wait_for_event
from holdfast.runtime.definitions import Step, step
from holdfast.session import current_step
from holdfast.store.base import DECIDED


@dataclass(frozen=True)
class Escalate:
    """If nobody decides in time: ask somebody else, again with a time limit and a fallback."""

    to: str
    timeout: Duration
    fallback: Fallback = "deny"


Fallback = Literal["deny", "approve"] | Escalate
"""What counts if nobody decides in time."""

Notify = Callable[[Approval, str], Awaitable[None]]
"""Tells people that they are asked: gets the approval, and the token that lets them decide."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided; true if it was approved."""

    approved: bool
    approval_id: str
    status: ApprovalStatus
    by: str
    """Who decided; empty if nobody did and the fallback counted."""
    at: datetime
    note: str
    how: How

    def __bool__(self) -> bool:
        return self.approved


async def approval(
    title: str,
    *,
    timeout: Duration,
    arguments: Any = None,
    to: str = "",
    fallback: Fallback = "deny",
    notify: Notify | None = None,
    tool: str | None = None,
) -> Decision:
    """Wait until somebody has agreed or refused, at most for `timeout`.

    `arguments`: exactly what would be done, as plain data; the decision is about these alone.
    `to`: who should decide. `fallback`: what counts if nobody does: "deny", "approve", or
    Escalate(to=…, timeout=…). `notify`: an async function that tells people, with the approval
    and its token; it is run as a step.
    """
    run = execution()
    if run is None:
        raise NotInWorkflow(
            f"an approval can only be waited for in a workflow body: {title}",
            hint="run this, or the agent whose tool needs it, in a @workflow",
        )
    from pydantic_core import to_json  # slow to import, and not needed by all

    arguments = json.loads(to_json(arguments))
    before: str | None = None
    while True:
        named = "escalate" if isinstance(fallback, Escalate) else fallback
        asked = Question(title, tool, arguments, to, run.now() + seconds(timeout), named, before)
        found = await _ask(asked)
        try:
            if notify is not None:
                await _notifying(notify)(found.id)
            closed = await _closed(found)
        except asyncio.CancelledError:
            await _withdraw(found.id)  # nobody waits any more: a decision would be for nothing
            raise
        if closed.run_id != run.run_id and patched(f"ask anew for {closed.id}"):
            continue  # a fork, and this was asked by the run it comes from: not ours to act on
        if closed.status != "escalated" or not isinstance(fallback, Escalate):
            return _decision(closed)
        before, to, timeout, fallback = found.id, fallback.to, fallback.timeout, fallback.fallback


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, as the journal keeps it."""

    title: str
    tool: str | None
    arguments: Any
    asked_of: str
    expires_at: float
    fallback: str
    escalated_from: str | None


async def _closed(found: Approval) -> Approval:
    """The approval, once it is decided or its time is over."""
    run = execution()
    assert run is not None
    while True:
        left = max(found.expires_at - run.now(), 0.0)
        told = await wait_for_event(DECIDED + found.id, timeout=left)
        closed = await _read(found.id, not told)
        if closed.status != "pending" or closed.run_id != run.run_id:
            return closed


@step(name="ask for approval")
async def _ask(question: Question) -> Approval:
    engine, context = await current_engine(), step_context()
    new = Approval(
        id=derived_id("apr", context.run_id, context.idempotency_key),
        run_id=context.run_id,
        title=question.title,
        tool=question.tool,
        arguments=question.arguments,
        arguments_hash=hash_of(question.title, question.tool, question.arguments),
        asked_of=question.asked_of,
        requested_at=engine.clock.now(),
        expires_at=question.expires_at,
        fallback=question.fallback,
        escalated_from=question.escalated_from,
    )
    await engine.store.add_approval(new)
    return new


@step(name="read the decision")
async def _read(id: str, timed_out: bool) -> Approval:
    """How an approval stands; one whose time is over is closed by its fallback."""
    engine = await current_engine()
    found = await engine.store.approval(id)
    assert found is not None, id
    if found.run_id != step_context().run_id:
        return found
    lapsed = found.status == "expired" and found.decided_at is None
    if timed_out or lapsed:
        found = await engine.store.lapse_approval(id, await _fallback_of(found))
    if found.status == "approved":
        await _check_signature(found)
    return found


async def _fallback_of(found: Approval) -> Verdict:
    engine = await current_engine()
    at = engine.clock.now()
    statuses: dict[str, ApprovalStatus] = {"approve": "approved", "escalate": "escalated"}
    status = statuses.get(found.fallback, "expired")
    signature = signature_of(await engine.store.secret(SECRET), found, status, "", at)
    return Verdict(status, at, "", "nobody decided in time", "timeout", signature)


@step(name="withdraw the approval")
async def _withdraw(id: str) -> None:
    engine = await current_engine()
    why = "the run no longer waits for it"
    verdict = Verdict("withdrawn", engine.clock.now(), "", why, "timeout", "")
    await engine.store.lapse_approval(id, verdict)


def _notifying(notify: Notify) -> Step[..., Any]:
    async def notify_approver(id: str) -> None:
        engine = await current_engine()
        found = await engine.store.approval(id)
        assert found is not None, id
        await notify(found, token_of(await engine.store.secret(SECRET), found))

    return Step(notify_approver, name="notify the approver")


def _decision(closed: Approval) -> Decision:
    assert closed.decided_at is not None and closed.how is not None
    return Decision(
        approved=closed.approved,
        approval_id=closed.id,
        status=closed.status,
        by=closed.decided_by or "",
        at=datetime.fromtimestamp(closed.decided_at, UTC),
        note=closed.note,
        how=closed.how,
    )


async def _check_signature(found: Approval) -> None:
    engine = await current_engine()
    secret = await engine.store.secret(SECRET)
    by, at = found.decided_by or "", found.decided_at or 0.0
    if not same(signature_of(secret, found, found.status, by, at), found.signature or ""):
        raise ApprovalRefused(
            f"{found.id}: the decision's signature does not fit",
            hint="somebody changed the record: the arguments, the decision, or who made it",
        )


async def use(id: str, title: str, tool: str | None, arguments: Any) -> None:
    """In a step: check that this approval allows exactly this, here, and is used by nobody else."""
    engine, here = await current_engine(), current_step()
    assert here is not None
    found = await engine.store.approval(id)
    if found is None or found.run_id != here.run_id:
        raise ApprovalRefused(
            f"{id} is not an approval of this run", hint="a fork has to ask for its own"
        )
    if not found.approved:
        raise ApprovalRefused(f"{id} is {found.status}")
    if hash_of(title, tool, arguments) != found.arguments_hash:
        raise ApprovalRefused(f"{id} is about other arguments than these")
    await _check_signature(found)
    await engine.store.use_approval(id, here.idempotency_key)


@step(name="use the approval", retries=0)
async def use_in_body(id: str, title: str, tool: str | None, arguments: Any) -> None:
    """`use`, for what is not one step."""
    await use(id, title, tool, arguments)


SECRET = "approvals"  # noqa: S105 - its name, not its value


def hash_of(title: str, tool: str | None, arguments: Any) -> str:
    """What a decision is about, as 64 hexadecimal digits."""
    said = {"title": title, "tool": tool, "arguments": arguments}
    text = json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def token_of(secret: bytes, approval: Approval) -> str:
    """The token that lets its holder decide this approval, and no other."""
    parts = ("token", *_about(approval))
    return urlsafe_b64encode(_mac(secret, parts)).rstrip(b"=").decode()


def signature_of(secret: bytes, approval: Approval, status: str, by: str, at: float) -> str:
    """The signature of a decision."""
    return _mac(secret, ("decision", *_about(approval), status, by, repr(at))).hex()


def same(one: str, other: str) -> bool:
    """Whether two secrets are the same, without telling by the time it takes."""
    return hmac.compare_digest(one.encode(), other.encode())


def _about(approval: Approval) -> tuple[str, ...]:
    # The hash of what the row holds now, not the one it claims: a changed row does not fit.
    actual = hash_of(approval.title, approval.tool, approval.arguments)
    return (approval.id, approval.run_id, actual, repr(approval.expires_at))


def _mac(secret: bytes, parts: tuple[str, ...]) -> bytes:
    return hmac.digest(secret, json.dumps(parts).encode(), "sha256")
