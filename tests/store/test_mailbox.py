"""Events and waits: the same comparison whichever came first, and work that does not pile up."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.store.base import NewRun
from holdfast.store.sqlite import creation, mailbox, schema
from holdfast.store.sqlite.database import Transaction
from holdfast.store.sqlite.memory import MemoryDatabase


class Box:
    """A store's mail, with one run that this test is the owner of."""

    def __init__(self) -> None:
        self.database = MemoryDatabase()
        self.tx = Transaction(self.database.connection)
        self.work = 0
        self.database.connection.set_progress_handler(self._count, 10)
        self._sent = 0
        self.add_run("run_1")

    def _count(self) -> int:
        self.work += 10
        return 0

    def add_run(self, run_id: str, owner: str = "wkr_1") -> None:
        new = NewRun(run_id, "flow", "1", b"{}", {"seed": "s"}, created_at=1.0, due_at=1.0)
        creation.create(self.tx, new)
        self.tx.execute("UPDATE runs SET owner = ? WHERE id = ?", (owner, run_id))

    def send(self, payload: Any, run: str | None = "run_1") -> None:
        self._sent += 1
        mailbox.send(self.tx, "num", json.dumps(payload).encode(), f"e{self._sent}", run, 1.0)

    def wait(self, key: str, match: dict[str, Any] | None = None) -> None:
        mailbox.open_wait(self.tx, "run_1", key, "num", match or {})

    def mail(self, key: str) -> list[tuple[int, int, Any]]:
        """What is on offer for a wait: mail, message and payload."""
        return [
            (mail.id, mail.message.id, json.loads(mail.message.payload))
            for mail in mailbox.mail(self.tx.connection, "wkr_1")
            if mail.key == key and mail.message is not None
        ]

    def take(
        self,
        key: str,
        match: dict[str, Any] | None = None,
        where: Callable[[Any], bool] = lambda _payload: True,
    ) -> Any:
        """Wait for an event as a run's owner does; None if none comes."""
        self.wait(key, match)
        while offers := self.mail(key):
            refused: list[int] = []
            for mail, message, payload in offers:
                if where(payload):
                    mailbox.close_wait(self.tx, "run_1", key, message)
                    mailbox.drop_mail(self.tx, refused)
                    return payload
                refused.append(mail)
            mailbox.drop_mail(self.tx, refused)
        return None

    def empty(self) -> None:
        for table in ("waits", "messages", "inbox", "receipts", "taken"):
            self.tx.execute(f"DELETE FROM {table}")

    def close(self) -> None:
        self.database.connection.close()


def work_per_event(number: int, prepare: Callable[[Box, int], int]) -> float:
    """How many instructions of SQLite's machine an event costs to take from so many."""
    with closing(Box()) as box:
        taken = prepare(box, number)
        return box.work / taken


def in_order(box: Box, number: int) -> int:
    for each in range(number):
        box.send(each)
    box.work = 0
    assert [box.take(str(each)) for each in range(number)] == list(range(number))
    return number


def sent_to_all(box: Box, number: int) -> int:
    for each in range(number):
        box.send(each, run=None)
    box.work = 0
    assert [box.take(str(each)) for each in range(number)] == list(range(number))
    return number


def one_kind_of_two(box: Box, number: int) -> int:
    for each in range(number):
        box.send({"kind": "ab"[each % 2], "n": each})
    box.work = 0
    for kind in "ba":
        for each in range(number // 2):
            found = box.take(f"{kind}{each}", {"kind": kind})
            assert found["n"] == 2 * each + (kind == "b")
    return number


def for_other_runs(box: Box, number: int) -> int:
    for each in range(number):
        box.add_run(f"run_of_another_{each}", "wkr_2")
        box.send(each, run=f"run_of_another_{each}")
    box.send("mine")
    box.work = 0
    assert box.take("0") == "mine"
    return 1


def waits_in_vain(box: Box, number: int) -> int:
    for each in range(number):
        box.send({"n": each})
    box.wait("first", {"n": "none"})
    mailbox.close_wait(box.tx, "run_1", "first", None)
    box.work = 0
    for each in range(20):
        assert box.take(f"again{each}", {"n": "none"}) is None
        mailbox.close_wait(box.tx, "run_1", f"again{each}", None)
    return 20


def sent_while_others_wait(box: Box, number: int) -> int:
    for each in range(number):
        box.add_run(f"run_of_another_{each}", "wkr_2")
        mailbox.open_wait(box.tx, f"run_of_another_{each}", "w", "num", {})
    box.wait("w")
    box.work = 0
    box.send("mine")
    assert [payload for _, _, payload in box.mail("w")] == ["mine"]
    return 1


@pytest.mark.parametrize(
    "prepare",
    [in_order, sent_to_all, one_kind_of_two, for_other_runs, waits_in_vain, sent_while_others_wait],
)
def test_what_an_event_costs_does_not_grow_with_those_that_lie_there(
    prepare: Callable[[Box, int], int],
) -> None:
    few, many = work_per_event(50, prepare), work_per_event(500, prepare)
    assert many < 1.5 * few + 200, f"{few:.0f} for each of 50, {many:.0f} for each of 500"


def test_a_predicate_is_shown_every_event_in_order_until_it_takes_one() -> None:
    with closing(Box()) as box:
        for each in range(100):
            box.send(each)
        shown: list[int] = []

        def wants(payload: int) -> bool:
            shown.append(payload)
            return payload == 77

        assert box.take("w1", where=wants) == 77
        assert shown == list(range(78))
        assert box.take("w2") == 0, "what was refused is there for the next wait"
        assert box.take("w3", where=lambda n: n > 76) == 78, "what was taken is not"


# --- one comparison ---

names = st.sampled_from(["a", "b", "a.b", "b.a", "a.b.c", "", "."])
plain = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, 1, 5, -1, 10**20]),
    st.sampled_from([0.0, -0.0, 1.0, 5.0, 5.5, 1e20, 1e300]),
    st.sampled_from(["", "a", "1", "true", "é", "\ud800"]),
)
values = st.recursive(
    plain,
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(names, inner, max_size=2)),
    max_leaves=4,
)
bodies = st.one_of(values, st.dictionaries(names, values, max_size=3))
matches = st.dictionaries(names, values, max_size=2)


@cache
def shared() -> Box:
    return Box()


@settings(max_examples=400, deadline=None)
@given(matches, bodies, st.booleans())
def test_an_event_fits_a_wait_whichever_of_them_came_first(
    match: dict[str, Any], body: Any, to_all: bool
) -> None:
    run = None if to_all else "run_1"
    box = shared()
    box.empty()
    box.wait("before", match)
    box.send(body, run)
    box.wait("after", match)
    assert len(box.mail("before")) == len(box.mail("after")) == mailbox.fits(match, body)


@pytest.mark.parametrize(
    ("match", "payload", "is_a_fit"),
    [
        ({"ok": True}, {"ok": True}, True),
        ({"ok": True}, {"ok": 1}, False),
        ({"ok": 0}, {"ok": False}, False),
        ({"n": 5}, {"n": 5.0}, True),
        ({"n": 5.0}, {"n": 5}, True),
        ({"n": 5.5}, {"n": 5.5}, True),
        ({"n": 10**300}, {"n": 1e300}, False),
        ({"n": "5"}, {"n": 5}, False),
        ({"n": [1, True]}, {"n": [1.0, True]}, True),
        ({"n": [1]}, {"n": [True]}, False),
        ({"a": {"b": 1}}, {"a": {"b": 1.0}}, True),
        ({"a.b": 1}, {"a": {"b": 1}}, True),
        ({"a.b": 1}, {"a.b": 1}, True),
        ({"a.b": 1}, {"a.b": 2, "a": {"b": 1}}, True),
        ({"a.b.c": 1}, {"a.b": {"c": 1}}, True),
        ({"a.b": 1}, {"a": 1}, False),
        ({"a": None}, {}, False),
        ({"a": None}, {"a": None}, True),
        ({}, 7, True),
    ],
)
def test_values_are_compared_as_json(match: Any, payload: Any, is_a_fit: bool) -> None:
    assert mailbox.fits(match, payload) is is_a_fit


def test_the_numbers_of_migrations_are_used_once_and_without_a_gap() -> None:
    numbers = [number for number, _name, _sql in schema.migrations()]
    assert numbers == list(range(1, len(numbers) + 1))
