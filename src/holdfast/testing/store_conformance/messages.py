"""Events, waits and mail: each message reaches the waits it fits, and is taken once by a run."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from holdfast.errors import NotFound, UpdateMismatch, UpdateUnanswered
from holdfast.records import (
    CHILD_ENDED,
    CHILD_STARTED,
    RUN_COMPLETED,
    RUN_FAILED,
    UPDATE_ANSWERED,
    WAIT_RECEIVED,
    WAIT_TIMED_OUT,
    WEBHOOK_CREATED,
)
from holdfast.records.live import event_id_of
from holdfast.store.base import Store
from holdfast.store.parts import StoreParts
from holdfast.testing.store_conformance.records import (
    Conformance,
    append,
    claimed,
    event,
    offers,
    opened,
    status_of,
    wait_for,
    worker,
)

CHILD = {
    "workflow": "flow",
    "version": "1",
    "input": "{}",
    "meta": {"seed": "s"},
    "parent_id": "run_1",
}
"""A run as the event describes it that starts it."""


def body(message: Any) -> Any:
    return json.loads(message.message.payload)


class MessageConformance(Conformance):
    """What is sent is received."""

    async def test_a_message_fits_waits_that_open_later_and_is_taken_once(
        self, store: Store
    ) -> None:
        claim = await claimed(store)
        assert await store.send("go", b"{}", "evt_1", None, 2.0)
        assert not await store.send("go", b"{}", "evt_1", None, 2.0)
        await append(store, claim, wait_for(2, "0/1"))
        mail = await store.mail("wkr_1")
        assert [(m.kind, m.key) for m in mail] == [("event", "0/1")]
        sent = mail[0].message
        assert sent is not None
        assert (sent.event_id, sent.name, sent.run_id, sent.payload) == ("evt_1", "go", None, b"{}")
        taken = event(3, WAIT_RECEIVED, "0/1", b"{}", message=sent.id, event_id="evt_1")
        await append(store, claim, taken)
        assert not await store.mail("wkr_1")
        await append(store, claim, wait_for(4, "0/2"))
        assert not await store.mail("wkr_1")

    async def test_what_was_sent_before_a_run_was_there_is_not_for_it(self, store: Store) -> None:
        await store.send("go", b"{}", "evt_1", None, 2.0)
        claim = await claimed(store)
        await append(store, claim, wait_for(2, "0/1"))
        assert await store.mail("wkr_1") == []

    async def test_a_message_for_one_run_reaches_no_other(self, store: Store) -> None:
        one, other = await claimed(store), await claimed(store, name="run_2")
        await append(store, one, wait_for(2, "0/1"))
        await append(store, other, wait_for(2, "0/2")._replace(run_id="run_2"))
        await store.send("go", b"1", "evt_1", "run_2", 2.0)
        assert [(m.run_id, m.key) for m in await store.mail("wkr_1")] == [("run_2", "0/2")]

    async def test_a_message_to_all_reaches_every_run_that_waits(self, store: Store) -> None:
        for name in ("run_1", "run_2"):
            claim = await claimed(store, name=name)
            await append(store, claim, wait_for(2, "0/1")._replace(run_id=name))
        await store.send("go", b"1", "evt_1", None, 2.0)
        assert {m.run_id for m in await store.mail("wkr_1")} == {"run_1", "run_2"}

    async def test_messages_are_offered_in_order_and_the_next_when_one_is_refused(
        self, store: Store
    ) -> None:
        claim = await claimed(store)
        for number in range(40):
            await store.send("go", json.dumps(number).encode(), f"evt_{number}", "run_1", 2.0)
        await append(store, claim, wait_for(2, "0/1"))
        shown: list[int] = []
        while mail := await offers(store, "0/1"):
            shown += [body(each) for each in mail]
            await store.drop_mail([each.id for each in mail])
        assert shown == list(range(40))
        await store.send("go", b"40", "evt_40", "run_1", 2.0)
        assert [body(m) for m in await offers(store, "0/1")] == [40]
        await append(store, claim, event(3, WAIT_TIMED_OUT, "0/1"), wait_for(4, "0/2"))
        [first] = await offers(store, "0/2")
        assert body(first) == 0, "what was refused is there for the next wait"

    async def test_two_waits_at_once_are_offered_the_same_and_one_of_them_the_next(
        self, store: Store
    ) -> None:
        claim = await claimed(store)
        for number in (1, 2):
            await store.send("go", json.dumps(number).encode(), f"evt_{number}", "run_1", 2.0)
        await append(store, claim, wait_for(2, "a"), wait_for(3, "b"))
        [one], [other] = await offers(store, "a"), await offers(store, "b")
        assert one.message is not None and one.message == other.message
        await append(store, claim, event(4, WAIT_RECEIVED, "a", b"1", message=one.message.id))
        await store.drop_mail([other.id])
        assert [body(m) for m in await offers(store, "b")] == [2]

    async def test_mail_that_is_gone_can_be_dropped_again(self, store: Store) -> None:
        claim = await claimed(store)
        await append(store, claim, wait_for(2, "0/1"))
        await store.send("go", b"1", "evt_1", None, 2.0)
        [mail] = await store.mail("wkr_1")
        await store.drop_mail([mail.id])
        await store.drop_mail([mail.id, 10**9])
        assert await store.mail("wkr_1") == []

    @pytest.mark.parametrize(
        ("match", "payload", "is_a_fit"),
        [
            ({}, 7, True),
            ({"ok": True}, {"ok": True}, True),
            ({"ok": True}, {"ok": 1}, False),
            ({"ok": 0}, {"ok": False}, False),
            ({"n": 5}, {"n": 5.0}, True),
            ({"n": 10**300}, {"n": 1e300}, False),
            ({"n": "5"}, {"n": 5}, False),
            ({"n": [1, True]}, {"n": [1.0, True]}, True),
            ({"n": [1]}, {"n": [True]}, False),
            ({"a": {"b": 1}}, {"a": {"b": 1.0}}, True),
            ({"a.b": 1}, {"a": {"b": 1}}, True),
            ({"a.b": 1}, {"a.b": 2, "a": {"b": 1}}, True),
            ({"a.b.c": 1}, {"a.b": {"c": 1}}, True),
            ({"a.b": 1}, {"a": 1}, False),
            ({"a": None}, {}, False),
            ({"a": None}, {"a": None}, True),
            ({"é": "\ud800"}, {"é": "\ud800"}, True),
            ({"a": 1, "b": 2}, {"b": 2, "a": 1, "c": 3}, True),
            ({"a": 1, "b": 2}, {"a": 1}, False),
        ],
    )
    @pytest.mark.parametrize("to", [None, "run_1"])
    async def test_a_message_fits_a_wait_whichever_of_them_came_first(
        self, store: Store, match: dict[str, Any], payload: Any, is_a_fit: bool, to: str | None
    ) -> None:
        claim = await claimed(store)
        await append(store, claim, wait_for(2, "before", match=match))
        await store.send("go", json.dumps(payload).encode(), "evt_1", to, 2.0)
        await append(store, claim, wait_for(3, "after", match=match))
        for key in ("before", "after"):
            assert len(await offers(store, key)) == is_a_fit, key

    async def test_no_wake_up_is_lost_between_a_wait_and_a_message_of_two_processes(
        self, store: Store, parts: StoreParts
    ) -> None:
        claim = await claimed(store)
        async with opened(parts, "wkr_2") as other:
            for number in range(30):
                name, key = f"go_{number}", str(number)
                await asyncio.gather(
                    append(store, claim, wait_for(2 + number, key, name)),
                    other.send(name, b"1", f"evt_{number}", None, 2.0),
                )
                assert len(await offers(store, key)) == 1, f"wait {number} has no mail"

    async def test_a_webhook_leads_to_its_run_until_that_ends(self, store: Store) -> None:
        claim = await claimed(store)
        hook: dict[str, Any] = {"token": "t", "name": "@hook/t"}
        await append(store, claim, event(2, WEBHOOK_CREATED, "0/1", **hook))
        assert await store.webhook("t") == ("run_1", "@hook/t")
        assert await store.webhook("other") is None
        await append(store, claim, event(3, RUN_COMPLETED, value=b"1"))
        assert await store.webhook("t") is None

    # --- children ---

    async def test_a_child_is_created_with_its_event_and_its_end_is_told(
        self, store: Store
    ) -> None:
        claim = await claimed(store)
        start = event(2, CHILD_STARTED, "0/1", name="flow", run={"id": "run_2", **CHILD})
        await append(store, claim, start)
        assert await status_of(store, "run_2") == "pending"
        [child] = await store.claim(worker(), ["flow"], 10, [])
        assert child.run.parent_id == "run_1"
        await append(store, child, event(2, RUN_COMPLETED, value=b"7", of="run_2"))
        [mail] = await store.mail("wkr_1")
        assert (mail.kind, mail.key, mail.run_id) == ("ended", "0/1", "run_1")
        assert mail.ended is not None and mail.ended.value == b"7"
        await append(store, claim, event(3, CHILD_ENDED, "0/1", b"7", run_id="run_2"))
        assert await store.mail("wkr_1") == []

    async def test_a_wait_for_the_end_of_a_run_that_has_ended_or_is_not_there_is_told(
        self, store: Store
    ) -> None:
        ended = await claimed(store, name="run_2")
        await append(store, ended, event(2, RUN_COMPLETED, value=b"1", of="run_2"))
        claim = await claimed(store)
        await append(store, claim, wait_for(2, "a", "@run/run_2"), wait_for(3, "b", "@run/run_0"))
        mail = {m.key: m for m in await store.mail("wkr_1")}
        assert {m.kind for m in mail.values()} == {"ended"}
        end = mail["a"].ended
        assert end is not None and end.type == RUN_COMPLETED
        assert mail["b"].ended is None and mail["b"].damaged is not None

    # --- updates ---

    async def test_an_update_is_sent_once_and_answered_once(self, store: Store) -> None:
        claim = await claimed(store)
        sent = await store.send_update("run_1", "raise", b"1", "u", 2.0)
        assert (sent.status, sent.name, sent.run_id, sent.ended) == (
            "pending", "raise", "run_1", False,
        )  # fmt: skip
        assert await store.send_update("run_1", "raise", b"1", "u", 3.0) == sent
        with pytest.raises(UpdateMismatch):
            await store.send_update("run_1", "raise", b"2", "u", 3.0)
        await append(store, claim, wait_for(2, "0/1", "@update/raise"))
        [mail] = await store.mail("wkr_1")
        assert mail.message is not None and mail.message.payload == b"1"
        answer = {"update": event_id_of("run_1", "u")}
        await append(store, claim, event(3, UPDATE_ANSWERED, "0/2", b'"ok"', **answer))
        told = await store.update("run_1", "u")
        assert told is not None
        assert (told.status, told.value, told.ended_at) == ("answered", b'"ok"', 3.0)
        assert await store.update("run_1", "other") is None
        with pytest.raises(NotFound):
            await store.send_update("run_0", "raise", b"1", "u", 2.0)

    async def test_a_rejected_update_says_why_and_the_end_leaves_none_open(
        self, store: Store
    ) -> None:
        claim = await claimed(store)
        for id in ("u", "v"):
            await store.send_update("run_1", "raise", b"1", id, 2.0)
        why = {"type": "ValueError", "message": "too much"}
        facts: dict[str, Any] = {"update": event_id_of("run_1", "u"), "error": why}
        await append(store, claim, event(2, UPDATE_ANSWERED, "0/2", **facts))
        error = {"type": "E", "message": "m"}
        await append(store, claim, event(3, RUN_FAILED, error=error, caused_by=[]))
        rejected, left = await store.update("run_1", "u"), await store.update("run_1", "v")
        assert rejected is not None and left is not None
        assert (rejected.status, str(rejected.error)) == ("rejected", "ValueError: too much")
        assert left.status == "unanswered" and "failed" in str(left.error)
        with pytest.raises(UpdateUnanswered):
            await store.send_update("run_1", "raise", b"1", "w", 4.0)
        await store.retry("run_1", 5.0)
        reopened = await store.update("run_1", "v")
        assert reopened is not None and reopened.status == "pending"
