"""Deciding approvals, from outside the run: by library, command line, HTTP or webhook.

Everything that has to hold is checked here and in the store's transaction: that it is still
pending and in time, that the decider saw these very arguments, that a token is for this approval.
"""

from __future__ import annotations

from holdfast.errors import ApprovalRefused, NotFound, NotInWorkflow, UsageError
from holdfast.loop.approvals import SECRET, hash_of, same, signature_of, token_of
from holdfast.records.approvals import Approval, ApprovalStatus, How, Verdict
from holdfast.runtime.app import current_engine
from holdfast.runtime.context import execution
from holdfast.runtime.engine import Engine


async def list_approvals(
    *,
    status: ApprovalStatus | None = "pending",
    run: str | None = None,
    limit: int = 100,
    before: str | None = None,
) -> list[Approval]:
    """Approvals, newest first: those that wait, unless another status (or None: any) is asked.

    `run`: of one run. `before`: an id to go on from, for the next page.
    """
    engine = await _engine()
    return await engine.store.approvals(status, run, limit, before)


async def get_approval(id: str) -> Approval:
    """The approval with this id."""
    engine = await _engine()
    return await _existing(engine, id)


async def approval_token(id: str) -> str:
    """The token that lets its holder decide this approval: for a link in a mail, say."""
    engine = await _engine()
    return token_of(await engine.store.secret(SECRET), await _existing(engine, id))


async def approval_by_token(id: str, token: str) -> Approval:
    """The approval that a token lets its holder decide; NotFound if it is not for this one."""
    engine = await _engine()
    found = await _existing(engine, id)
    if not same(token, token_of(await engine.store.secret(SECRET), found)):
        raise NotFound("there is no such approval, or the link is not for it")
    return found


async def decide(
    id: str,
    approved: bool,
    *,
    by: str,
    note: str = "",
    token: str | None = None,
    arguments_hash: str | None = None,
    how: How | None = None,
) -> Approval:
    """Approve or reject what a run waits for. Counts once; who and when go on record.

    `token`: what the decider was sent; it must be this approval's. `arguments_hash`: of the
    arguments that the decider saw; they must be the ones that wait.
    """
    if not by.strip():
        raise UsageError("a decision needs a name", hint='by="ann@example.com"')
    engine = await _engine()
    found = await _existing(engine, id)
    secret = await engine.store.secret(SECRET)
    if token is not None and not same(token, token_of(secret, found)):
        raise ApprovalRefused(
            f"the token is not for {id}", hint="a token is for one approval and its arguments"
        )
    actual = hash_of(found.title, found.tool, found.arguments)
    if actual != found.arguments_hash or arguments_hash not in (None, actual):
        raise ApprovalRefused(
            f"{id} is about other arguments (hash {actual[:12]}…)",
            hint="look at it again: what waits is not what was decided",
        )
    status: ApprovalStatus = "approved" if approved else "rejected"
    at = engine.clock.now()
    signature = signature_of(secret, found, status, by, at)
    way: How = how or ("webhook" if token is not None else "library")
    return await engine.store.decide_approval(id, Verdict(status, at, by, note, way, signature))


async def _existing(engine: Engine, id: str) -> Approval:
    found = await engine.store.approval(id)
    if found is None:
        raise NotFound(f"there is no approval {id}", hint="holdfast approvals list")
    return found


async def _engine() -> Engine:
    if execution() is not None:
        raise NotInWorkflow(
            "approvals can't be listed or decided in a workflow body",
            hint="ask for one with `await approval(…)`; decide in a step or outside",
        )
    return await current_engine()
