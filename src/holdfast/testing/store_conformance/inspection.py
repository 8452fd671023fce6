"""Reading for those who look: one moment, a page at a time, nothing that can write."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from holdfast.errors import UsageError
from holdfast.ids import new_id
from holdfast.records import (
    RUN_COMPLETED,
    RUN_FAILED,
    STEP_COMPLETED,
    STEP_RETRYING,
    STEP_STARTED,
    VALUE_PUBLISHED,
)
from holdfast.records.calls import SpendLimit
from holdfast.store.base import Store
from holdfast.store.inspection import CallFilter, Inspection, RunQuery, View
from holdfast.store.ledger import CallTotals, Ledger
from holdfast.store.parts import StoreParts
from holdfast.testing.store_conformance.approvals import approval
from holdfast.testing.store_conformance.records import (
    FAR,
    Conformance,
    append,
    begin,
    call_end,
    call_start,
    claimed,
    event,
    new_run,
    until,
    worker,
)
from holdfast.testing.store_conformance.sandboxes import ATTEMPT, BOX, ENDED, NOON, STARTED


class InspectionConformance(Conformance):
    """Questions of pages, of the API and of `holdfast runs`."""

    @pytest.fixture
    def inspection(self, parts: StoreParts, store: Store) -> Iterator[Inspection]:
        found = parts.inspection()
        yield found
        found.close()
        found.close()

    @pytest.fixture
    def calls(self, parts: StoreParts) -> Iterator[Ledger]:
        ledger = parts.ledger()
        yield ledger
        ledger.close()

    # --- runs ---

    async def test_the_pages_of_a_list_hold_each_run_once(
        self, store: Store, inspection: Inspection
    ) -> None:
        ids = [new_id("run", at=1000.0 + n) for n in range(23)]
        for id in ids:
            await store.create(new_run(id), None)
        newest = ids[::-1]
        seen: list[str] = []
        below = None
        while True:
            page = await inspection.ask(lambda v, b=below: v.run_page(RunQuery(), 5, b))
            seen += [row.run.id for row in page.rows]
            below = page.older
            if below is None:
                break
        assert seen == newest
        back = await inspection.ask(lambda v: v.run_page(RunQuery(), 5, above=newest[10]))
        assert [row.run.id for row in back.rows] == newest[5:10]
        assert back.newer == newest[5]
        assert back.found == 23

    async def test_filters_narrow_the_list(self, store: Store, inspection: Inspection) -> None:
        for n in range(20):
            id = new_id("run", at=1000.0 + n)
            claim = await claimed(
                store,
                name=id,
                workflow="a" if n % 2 else "b",
                attributes={"n": n, "half": n // 10},
                created_at=1000.0 + n,
            )
            if n % 5 == 0:
                error = {"type": "ValueError", "message": f"100% of {n}_x"}
                await append(store, claim, event(2, RUN_FAILED, of=id, error=error, caused_by=[]))

        async def numbers(**which: Any) -> list[int]:
            page = await inspection.ask(lambda v: v.run_page(RunQuery(**which), 50))
            return [row.run.attributes["n"] for row in page.rows]

        assert await numbers(workflow="a", status=("failed",)) == [15, 5]
        assert await numbers(status=("failed", "completed")) == [15, 10, 5, 0]
        assert await numbers(attributes=(("half", "1"), ("n", "12"))) == [12]
        assert await numbers(since=1017.5) == [19, 18]
        assert await numbers(until=1001.5) == [1, 0]
        assert await numbers(search="100% of 1") == [15, 10]
        assert await numbers(search="0_x") == [10, 0]
        assert await numbers(search="VALUEERROR", workflow="b") == [10, 0]
        assert await numbers(parent="run_0") == []
        ids = await inspection.ask(
            lambda v: v.matching_runs(RunQuery(workflow="a", status=("failed",)), 1)
        )
        [run] = [await store.get(id) for id in ids]
        assert run is not None and run.attributes["n"] == 15

    async def test_counts_are_kept_as_runs_come_change_and_go(
        self, store: Store, inspection: Inspection
    ) -> None:
        claim = await claimed(store)
        await store.create(new_run("run_2"), None)

        async def counts() -> dict[str, dict[str, int]]:
            page = await inspection.ask(lambda v: v.run_page(RunQuery(), 1))
            return page.counts

        assert await counts() == {"flow": {"running": 1, "pending": 1}}
        await append(store, claim, event(2, RUN_COMPLETED, value=b"1"))
        assert await counts() == {"flow": {"completed": 1, "pending": 1}}
        await store.delete("run_1", 9.0)
        assert await counts() == {"flow": {"pending": 1}}

    async def test_the_list_says_what_a_run_does_now(
        self, store: Store, inspection: Inspection, calls: Ledger
    ) -> None:
        claim = await claimed(store, input=b'{"item": "apple"}')
        await append(
            store,
            claim,
            event(2, STEP_STARTED, "0/1", b"{}", name="charge"),
            event(3, STEP_COMPLETED, "0/1", b"1"),
            event(4, STEP_STARTED, "0/2", b"{}", name="ship"),
            event(5, STEP_RETRYING, "0/2", attempt=1, error={}, next_at=0),
        )
        await begin(calls, call_start(run_id="run_1"), scopes=["run:run_1"])
        await calls.finish("call_1", call_end(cost=5, output_tokens=3, charge=7, charge_tokens=4))
        page = await inspection.ask(lambda v: v.run_page(RunQuery(), 5))
        [row] = page.rows
        assert row.doing is not None
        assert (row.doing.name, row.doing.attempt, row.doing.since) == ("ship", 2, 4.0)
        assert row.input == b'{"item": "apple"}'
        assert (row.totals.cost, row.totals.tokens, row.totals.calls) == (5, 3, 1)
        await append(store, claim, event(6, STEP_COMPLETED, "0/2", b"1"))
        page = await inspection.ask(lambda v: v.run_page(RunQuery(), 5))
        assert page.rows[0].doing is None
        assert page.log == await store.log_end()

    async def test_a_journal_is_read_without_its_payloads(
        self, store: Store, inspection: Inspection
    ) -> None:
        given = json.dumps({"item": "x" * 2_000_000}).encode()
        claim = await claimed(store, input=given)
        await append(
            store,
            claim,
            event(2, STEP_STARTED, "0/1", b'{"attempt": 2}', name="test"),
            event(3, STEP_COMPLETED, "0/1", b'{"passed": false, "summary": "1 failed"}'),
            event(4, STEP_STARTED, "0/2", b'{"attempt": "two"}', name="odd"),
            event(5, VALUE_PUBLISHED, "0/3", b"1", name="v"),
        )
        rows = await inspection.ask(lambda v: v.journal("run_1"))
        first, started, completed, odd, _ = rows
        assert [row.seq for row in rows] == [1, 2, 3, 4, 5]
        assert first.size == len(given)
        assert (started.round, started.facts["name"], started.key) == (2, "test", "0/1")
        assert (completed.passed, completed.summary) == (False, "1 failed")
        assert (odd.round, odd.passed) == (None, None)
        piece = await inspection.ask(lambda v: v.payload("run_1", 1, 10, 5))
        assert piece is not None
        assert (piece.data, piece.size, piece.is_whole) == (b"xxxxx", len(given), False)
        whole = await inspection.ask(lambda v: v.payload("run_1", 2, 0, 500))
        assert whole is not None and whole.is_whole and whole.data == b'{"attempt": 2}'
        assert await inspection.ask(lambda v: v.payload("run_1", 99, 0, 5)) is None
        assert await inspection.ask(lambda v: v.run_input("run_1")) == given[:2000]
        assert await inspection.ask(lambda v: v.run_input("run_0")) == b""
        published = await inspection.ask(lambda v: v.published("run_1"))
        assert [p.value for p in published] == [b"1"]
        assert await inspection.ask(lambda v: v.run("run_0")) is None

    async def test_a_question_sees_one_moment(self, store: Store, inspection: Inspection) -> None:
        await store.create(new_run(), None)
        loop = asyncio.get_running_loop()

        def ask(view: View) -> tuple[int, int, list[str]]:
            before = view.log_end()
            created = store.create(new_run("run_2"), None)
            asyncio.run_coroutine_threadsafe(created, loop).result(60)
            page = view.run_page(RunQuery(), 10)
            return before, view.log_end(), [row.run.id for row in page.rows]

        before, after, seen = await inspection.ask(ask)
        assert (before, seen) == (after, ["run_1"])
        now = await inspection.ask(lambda v: v.run_page(RunQuery(), 10))
        assert [row.run.id for row in now.rows] == ["run_2", "run_1"]

    async def test_approvals_are_shown_as_of_a_moment(
        self, store: Store, inspection: Inspection
    ) -> None:
        await claimed(store)
        await store.add_approval(approval(expires_at=100.0))

        async def status(now: float) -> str:
            found = await inspection.ask(lambda v: v.approval("apr_1", now))
            assert found is not None
            return found.status

        assert [await status(50.0), await status(150.0)] == ["pending", "expired"]
        listed = await inspection.ask(lambda v: v.approvals("expired", None, 10, None, 150.0))
        assert [a.id for a in listed] == ["apr_1"]
        assert await inspection.ask(lambda v: v.approvals("pending", None, 10, None, 150.0)) == []

    # --- calls ---

    async def test_calls_are_listed_and_summed_up(
        self, store: Store, inspection: Inspection, calls: Ledger
    ) -> None:
        assert await inspection.ask(lambda v: v.first_call()) is None
        for n in range(10):
            model = "a/x" if n % 2 else "b/y"
            place = {"run_id": "run_1", "step": "s", "step_key": f"0/{n % 3}", "tags": ("t",)}
            start = call_start(f"call_{n}", model=model, started_at=1000.0 + n * 10, **place)
            await begin(calls, start, scopes=["run:run_1", "tag:t"])
            if n < 9:
                end = call_end(
                    status="failed" if n == 8 else "completed", provider="p", input_tokens=100,
                    output_tokens=10, cost=None if n == 3 else 1000, charge=1000,
                    charge_tokens=110, latency=0.5 + n, finished_at=2000.0,
                )  # fmt: skip
                await calls.finish(f"call_{n}", end)
        page = await inspection.ask(lambda v: v.call_page(CallFilter(), 4, None))
        assert [row.id for row in page.rows] == ["call_9", "call_8", "call_7", "call_6"]
        older = await inspection.ask(lambda v: v.call_page(CallFilter(), 4, page.older))
        assert [row.id for row in older.rows] == ["call_5", "call_4", "call_3", "call_2"]
        narrow = CallFilter(model="a/x", status="completed", run_id="run_1", since=1050.0)
        found = await inspection.ask(lambda v: v.call_page(narrow, 10, None))
        assert [row.id for row in found.rows] == ["call_7", "call_5"]
        row = await inspection.ask(lambda v: v.call_row("call_3"))
        assert (row.tokens, row.cost, row.tags, row.estimated) == (110, None, ["t"], False)
        call = await inspection.ask(lambda v: v.call("call_3"))
        assert call is not None and call.start.model == "a/x"
        of_run = await inspection.ask(lambda v: v.calls_of_run("run_1"))
        assert [row.id for row in of_run] == [f"call_{n}" for n in range(10)]
        assert await inspection.ask(lambda v: v.first_call()) == 1000.0
        sums = await inspection.ask(lambda v: v.call_sums(1010.0))
        assert sum(each.totals.calls for each in sums) == 9
        assert sum(each.totals.unpriced for each in sums) == 1
        assert sum(each.totals.open for each in sums) == 1
        assert sum(each.totals.cost for each in sums) == 7000
        assert {each.latency for each in sums if each.totals.calls} >= {1.5, 4.5}
        slices = await inspection.ask(lambda v: v.calls_over_time(1000.0, 30.0))
        assert {(s.index, s.model): s.totals.calls for s in slices}[0, "b/y"] == 2
        assert sum(each.totals.tokens for each in slices) == 990

    async def test_what_was_spent_is_shown_by_scope_step_and_run(
        self, store: Store, inspection: Inspection, calls: Ledger
    ) -> None:
        await calls.set_limit(SpendLimit("tag:t", usd=10**6))
        for n in range(4):
            start = call_start(f"call_{n}", run_id="run_1", step_key=f"0/{n // 3}")
            await begin(calls, start, scopes=[f"run:{n % 2}", "tag:t"], usd=5)
            end = call_end(
                charge=10 + n, charge_tokens=2, cost=None if n == 1 else 10, input_tokens=2,
                output_tokens=1,
            )  # fmt: skip
            await calls.finish(f"call_{n}", end)
        [limited] = await inspection.ask(lambda v: v.limited_spend())
        assert (limited.scope, limited.usd, limited.calls) == ("tag:t", 46, 4)
        assert limited.limit == SpendLimit("tag:t", usd=10**6)
        assert (await inspection.ask(lambda v: v.spent("run:1"))).usd == 24
        assert (await inspection.ask(lambda v: v.spent("run:9"))).usd == 0
        most = await inspection.ask(lambda v: v.spent_most("run", 1))
        assert [each.scope for each in most] == ["run:1"]
        by_step = await inspection.ask(lambda v: v.call_totals_by_step("run_1"))
        assert (by_step["0/0"].calls, by_step["0/0"].cost, by_step["0/0"].unpriced) == (3, 20, 1)
        assert (by_step["0/1"].tokens, by_step["0/1"].model) == (3, "p/m")
        sums = await inspection.ask(lambda v: v.activity_sums("run_1"))
        assert sums.calls == await inspection.ask(lambda v: v.call_totals("run_1"))
        assert (sums.calls.calls, sums.calls.cost, sums.calls.unpriced) == (4, 30, 1)
        assert sums.calls.input_tokens == 8

    async def test_what_runs_below_a_run_spent_is_summed_beside_its_own(
        self, store: Store, inspection: Inspection, calls: Ledger
    ) -> None:
        family = {
            "run_1": None,
            "run_2": "run_1",
            "run_3": "run_2",
            "run_4": "run_1",
            "run_5": None,
        }
        for name, parent in family.items():
            await store.create(new_run(name, parent_id=parent, due_at=FAR), None)
            await begin(calls, call_start(f"call_{name}", run_id=name))
            await calls.finish(f"call_{name}", call_end(cost=10, input_tokens=2, output_tokens=1))
        sums = {name: await inspection.ask(lambda v, n=name: v.activity_sums(n)) for name in family}
        assert {name: each.children for name, each in sums.items()} == {
            "run_1": 3, "run_2": 1, "run_3": 0, "run_4": 0, "run_5": 0
        }  # fmt: skip
        assert (sums["run_1"].calls.cost, sums["run_1"].below.cost) == (10, 30)
        assert (sums["run_2"].below.calls, sums["run_2"].below.tokens) == (1, 3)
        assert sums["run_5"].below == CallTotals()
        listed = await inspection.ask(lambda v: v.run_page(RunQuery(top_level=True), 10))
        assert [row.run.id for row in listed.rows] == ["run_5", "run_1"]

    # --- what a run did elsewhere ---

    async def test_what_a_run_did_elsewhere_comes_in_pages(
        self, parts: StoreParts, inspection: Inspection, calls: Ledger
    ) -> None:
        writer = parts.sandbox_writer()
        for n in range(5):
            await begin(calls, call_start(f"call_{n}", run_id="run_1", started_at=float(n)))
            writer.add_sandbox(replace(BOX, id=f"sbx_{n}"))
            writer.add_command(replace(STARTED, id=f"cmd_{n}", sandbox_id=f"sbx_{n}"))
        await asyncio.to_thread(writer.flush)
        all = await inspection.ask(lambda v: v.activity("run_1", 3))
        assert [c.id for c in all.calls.rows] == ["call_0", "call_1", "call_2"]
        assert all.calls.more and all.sandboxes.more and all.commands.more
        assert (all.sums.calls.calls, all.sums.sandboxes, all.sums.commands) == (5, 5, 5)
        rest = await inspection.ask(lambda v: v.activity_calls("run_1", "call_2", 3))
        assert ([c.id for c in rest.rows], rest.more) == (["call_3", "call_4"], False)
        boxes = await inspection.ask(lambda v: v.activity_sandboxes("run_1", "sbx_2", 3))
        assert [b.id for b in boxes.rows] == ["sbx_3", "sbx_4"]
        commands = await inspection.ask(lambda v: v.activity_commands("run_1", "cmd_3", 3))
        assert [c.id for c in commands.rows] == ["cmd_4"]
        with pytest.raises(UsageError):
            await inspection.ask(lambda v: v.activity_calls("run_1", "call_9", 3))
        await asyncio.to_thread(writer.close)

    async def test_sandboxes_are_shown_with_what_they_did(
        self, parts: StoreParts, inspection: Inspection
    ) -> None:
        writer = parts.sandbox_writer()
        writer.add_sandbox(BOX)
        writer.add_command(STARTED)
        writer.end_command(ENDED)
        meant = replace(STARTED, id="cmd_2", argv=("python", "/tools/try_hollow.py"))
        writer.add_command(meant)
        writer.end_command(replace(ENDED, id="cmd_2", argv=meant.argv, cpu_seconds=None))
        for allowed in (True, False):
            writer.add_egress(replace(ATTEMPT, allowed=allowed))
        writer.add_sandbox(replace(BOX, id="sbx_2", step_key="0/9"))
        await asyncio.to_thread(writer.flush)
        shown = await inspection.ask(lambda v: v.sandbox_list(None, 1, None))
        assert (len(shown.rows), shown.older, shown.live) == (1, "sbx_2", 2)
        rest = await inspection.ask(lambda v: v.sandbox_list(True, 1, "sbx_2"))
        [row] = rest.rows
        assert (row.record.id, row.commands, row.failed) == ("sbx_1", 2, 1)
        assert (row.written, row.reached, row.refused) == (140_000, 2, 1)
        assert (row.cpu_seconds, row.peak_memory) == (1.25, 41 << 20)
        detail = await inspection.ask(lambda v: v.sandbox_detail("sbx_1", 1, None, None))
        assert detail is not None
        assert [c.id for c in detail.commands] == ["cmd_1"] == [detail.next_command]
        more = await inspection.ask(
            lambda v: v.sandbox_detail("sbx_1", 5, detail.next_command, detail.next_egress)
        )
        assert more is not None
        assert ([c.id for c in more.commands], len(more.egress)) == (["cmd_2"], 1)
        assert await inspection.ask(lambda v: v.sandbox_detail("sbx_9", 1, None, None)) is None
        work = await inspection.ask(lambda v: v.step_work("run_1", "0/3"))
        assert [c.id for c in work.commands] == ["cmd_1", "cmd_2"]
        assert ([b.id for b in work.sandboxes], len(work.refused)) == (["sbx_1"], 1)
        assert shown.rows[0].record.created_at == NOON
        await asyncio.to_thread(writer.close)

    # --- the store itself ---

    async def test_who_waits_for_a_worker_is_told(
        self, store: Store, inspection: Inspection
    ) -> None:
        now = time.time()
        await claimed(store, name="run_held", workflow="report")
        await store.create(new_run("run_due", workflow="order", due_at=now - 30), None)
        await store.create(new_run("run_later", workflow="order", due_at=now + 500), None)
        state = await inspection.ask(lambda v: v.state(now))
        [due] = [each for each in state.due if each.workflow == "order"]
        assert (due.runs, due.since, due.next_at) == (1, now - 30, now + 500)
        held = [(each.worker.id, [run.id for run in each.runs]) for each in state.workers]
        assert held == [("wkr_1", ["run_held"])]
        assert state.counts == {"report": {"running": 1}, "order": {"pending": 2}}
        assert state.log == await store.log_end()
        assert state.schema > 0 and state.page_bytes > 0 and state.software

    async def test_a_store_can_be_examined_without_opening_it_for_work(
        self, parts: StoreParts, store: Store
    ) -> None:
        claim = await claimed(store)
        await append(store, claim, event(2, RUN_COMPLETED, value=b"1"))
        await store.create(new_run("run_2", due_at=FAR), None)
        await store.renew(worker())

        async def is_alive() -> bool:
            return (await asyncio.to_thread(parts.examine)).workers == ["wkr_1"]

        await until(is_alive)
        health = await asyncio.to_thread(parts.examine)
        assert (health.exists, health.writable, health.problem) == (True, True, None)
        assert health.path == parts.name
        assert health.schema_version == health.known_schema > 0
        assert (health.runs, health.bytes > 0) == ({"completed": 1, "pending": 1}, True)
        assert json.loads(json.dumps(health.as_json()))["runs"] == health.runs

    async def test_a_store_that_is_not_there_is_examined_and_not_made(
        self, parts: StoreParts
    ) -> None:
        for _ in range(2):
            health = await asyncio.to_thread(parts.examine)
            assert (health.exists, health.schema_version, health.runs) == (False, None, {})
            assert health.problem is None
