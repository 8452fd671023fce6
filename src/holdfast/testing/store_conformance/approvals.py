"""Approvals, decided once and used once; what begins once; and the store's secrets."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from holdfast.errors import ApprovalRefused, HoldfastError, NotFound
from holdfast.records import RUN_COMPLETED
from holdfast.records.approvals import Approval, ApprovalStatus, Verdict
from holdfast.store.base import DECIDED, Store
from holdfast.store.parts import StoreParts
from holdfast.testing.store_conformance.records import (
    FAR,
    Conformance,
    append,
    claimed,
    event,
    opened,
    wait_for,
)


def approval(id: str = "apr_1", **fields: Any) -> Approval:
    values: dict[str, Any] = {
        "run_id": "run_1",
        "title": "Refund?",
        "tool": "refund",
        "arguments": {"usd": 5, "to": ["é"]},
        "arguments_hash": "h",
        "asked_of": "anybody",
        "requested_at": 1.0,
        "expires_at": FAR,
        "fallback": "deny",
        **fields,
    }
    return Approval(id, **values)


def verdict(status: ApprovalStatus = "approved", at: float = 2.0, by: str = "ann") -> Verdict:
    return Verdict(status, at, by, "fine", "cli", "signature")


class ApprovalConformance(Conformance):
    """The row is the truth; of two deciders one is refused."""

    async def test_an_approval_is_asked_for_once_and_read_back(self, store: Store) -> None:
        await claimed(store)
        await store.add_approval(approval())
        await store.add_approval(approval(title="Another?"))
        assert await store.approval("apr_1") == approval()
        assert await store.approval("apr_2") is None

    async def test_a_decision_counts_once_and_wakes_the_run(
        self, store: Store, parts: StoreParts
    ) -> None:
        claim = await claimed(store)
        await store.add_approval(approval())
        await append(store, claim, wait_for(2, "0/1", f"{DECIDED}apr_1"))

        async def decide(side: Store, by: str) -> str:
            try:
                return (await side.decide_approval("apr_1", verdict(by=by))).decided_by or ""
            except ApprovalRefused:
                return "refused"

        async with opened(parts, "wkr_2") as other:
            told = await asyncio.gather(*(decide((store, other)[n % 2], f"p{n}") for n in range(6)))
        assert told.count("refused") == 5
        [decider] = set(told) - {"refused"}
        shown = await store.approval("apr_1")
        assert shown is not None
        assert (shown.status, shown.decided_by, shown.note, shown.how, shown.signature) == (
            "approved", decider, "fine", "cli", "signature",
        )  # fmt: skip
        assert [m.key for m in await store.mail("wkr_1")] == ["0/1"]
        with pytest.raises(NotFound):
            await store.decide_approval("apr_0", verdict())

    async def test_one_that_nobody_decided_lapses_unless_somebody_was_faster(
        self, store: Store
    ) -> None:
        await claimed(store)
        for id in ("apr_1", "apr_2"):
            await store.add_approval(approval(id))
        await store.decide_approval("apr_1", verdict())
        assert (await store.lapse_approval("apr_1", verdict("expired"))).status == "approved"
        assert (await store.lapse_approval("apr_2", verdict("expired"))).status == "expired"

    async def test_past_its_time_it_is_shown_as_expired_and_of_an_ended_run_as_withdrawn(
        self, store: Store
    ) -> None:
        claim = await claimed(store)
        await store.add_approval(approval("apr_1", expires_at=time.time() - 1))
        await store.add_approval(approval("apr_2"))
        with pytest.raises(ApprovalRefused):
            await store.decide_approval("apr_1", verdict(at=time.time()))

        async def ids(status: ApprovalStatus | None, run: str | None = None) -> list[str]:
            return [a.id for a in await store.approvals(status, run, 10, None)]

        assert await ids("expired") == ["apr_1"]
        assert await ids("pending") == ["apr_2"]
        assert await ids(None) == ["apr_2", "apr_1"]
        assert await ids("pending", "run_1") == ["apr_2"]
        assert await ids(None, "run_2") == []
        assert [a.id for a in await store.approvals(None, None, 10, "apr_2")] == ["apr_1"]
        await append(store, claim, event(2, RUN_COMPLETED, value=b"1"))
        assert await ids("withdrawn") == ["apr_2", "apr_1"]

    async def test_a_decision_is_acted_on_by_one_step(self, store: Store) -> None:
        await claimed(store)
        await store.add_approval(approval())
        await store.decide_approval("apr_1", verdict())
        used = await store.use_approval("apr_1", "0/1")
        assert used.used_by == "0/1" and used.used_at is not None
        assert await store.use_approval("apr_1", "0/1") == used
        with pytest.raises(ApprovalRefused):
            await store.use_approval("apr_1", "0/2")

    async def test_what_must_begin_once_begins_once(self, store: Store, parts: StoreParts) -> None:
        async with opened(parts, "wkr_2") as other:
            begun = await asyncio.gather(
                *((store, other)[n % 2].begin_once("run_1", "0/1") for n in range(10))
            )
        assert begun.count(True) == 1
        assert await store.begin_once("run_1", "0/2")
        assert await store.begin_once("run_2", "0/1")

    async def test_a_secret_is_made_once_and_the_same_for_all(
        self, store: Store, parts: StoreParts
    ) -> None:
        async with opened(parts, "wkr_2") as other:
            told = await asyncio.gather(*((store, other)[n % 2].secret("s") for n in range(10)))
        assert len(set(told)) == 1
        assert len(told[0]) >= 32
        assert await store.secret("other") != told[0]

    async def test_a_refusal_is_one_of_holdfasts_errors(self, store: Store) -> None:
        await claimed(store)
        with pytest.raises(HoldfastError):
            await store.use_approval("apr_0", "0/1")
