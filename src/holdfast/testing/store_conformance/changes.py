"""Change detection: every begin and end that is not in the log, of the right run, and no other."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from holdfast.records import STEP_STARTED
from holdfast.store.base import Store
from holdfast.store.inspection import ChangeDetector, Changes
from holdfast.store.ledger import Ledger
from holdfast.store.parts import StoreParts
from holdfast.store.sandboxes import SandboxWriter
from holdfast.testing.store_conformance.approvals import approval, verdict
from holdfast.testing.store_conformance.records import (
    Conformance,
    append,
    begin,
    call_end,
    call_start,
    claimed,
    event,
    until,
    worker,
)
from holdfast.testing.store_conformance.sandboxes import ATTEMPT, BOX, ENDED, NOON, STARTED

KINDS = ("calls", "sandboxes", "commands", "egress", "approvals")
ENDS = ("calls", "sandboxes", "commands", "approvals")
"""Those of the kinds that end."""


class Scene:
    """A store with whatever changes without an event."""

    def __init__(
        self, store: Store, ledger: Ledger, writer: SandboxWriter, detector: ChangeDetector
    ) -> None:
        self.store, self.ledger, self.writer, self.detector = store, ledger, writer, detector
        self._number = itertools.count(1)

    async def begin(self, kind: str, run_id: str = "run_1") -> Any:
        """Have something of a kind begin; returns what `end` needs."""
        number = next(self._number)
        if kind == "calls":
            await begin(self.ledger, call_start(f"call_{number}", run_id=run_id))
            return f"call_{number}"
        if kind == "approvals":
            await self.store.add_approval(approval(f"apr_{number}", run_id=run_id))
            return f"apr_{number}"
        record: Any = None
        if kind == "sandboxes":
            record = replace(BOX, id=f"sbx_{number}", run_id=run_id)
            self.writer.add_sandbox(record)
        elif kind == "commands":
            record = replace(STARTED, id=f"cmd_{number}", run_id=run_id)
            self.writer.add_command(record)
        else:
            self.writer.add_egress(replace(ATTEMPT, run_id=run_id))
        await asyncio.to_thread(self.writer.flush)
        return record

    async def end(self, kind: str, begun: Any) -> None:
        if kind == "calls":
            await self.ledger.finish(begun, call_end())
        elif kind == "approvals":
            await self.store.decide_approval(begun, verdict())
        elif kind == "sandboxes":
            self.writer.stop_sandbox(replace(begun, stopped_at=NOON, stopped_because="stopped"))
        else:
            self.writer.end_command(replace(ENDED, id=begun.id))
        await asyncio.to_thread(self.writer.flush)

    async def look(self) -> Changes:
        return await asyncio.to_thread(self.detector.look)

    async def seen(self) -> Changes:
        """What is seen once it is noticed that there is something to see."""

        async def is_noticed() -> bool:
            return self.detector.has_changed()

        await until(is_noticed)
        return await self.look()


class ChangeConformance(Conformance):
    """What a page learns without an event."""

    @pytest_asyncio.fixture
    async def scene(self, parts: StoreParts, store: Store) -> AsyncIterator[Scene]:
        ledger, writer, inspection = parts.ledger(), parts.sandbox_writer(), parts.inspection()
        scene = Scene(store, ledger, writer, inspection.detector())
        await claimed(store)
        assert await scene.look() == {}, "the first look finds nothing"
        yield scene
        scene.detector.close()
        inspection.close()
        await asyncio.to_thread(writer.close)
        ledger.close()

    @pytest.mark.parametrize("kind", KINDS)
    async def test_a_begin_is_seen_once(self, scene: Scene, kind: str) -> None:
        await scene.begin(kind)
        assert await scene.seen() == {kind: {"run_1"}}
        assert await scene.look() == {}

    @pytest.mark.parametrize("kind", ENDS)
    async def test_an_end_is_seen_once(self, scene: Scene, kind: str) -> None:
        begun = await scene.begin(kind)
        await scene.seen()
        await scene.end(kind, begun)
        assert await scene.seen() == {kind: {"run_1"}}
        assert await scene.look() == {}

    @pytest.mark.parametrize("kind", ENDS)
    async def test_what_began_and_ended_between_two_looks_is_seen(
        self, scene: Scene, kind: str
    ) -> None:
        await scene.end(kind, await scene.begin(kind))
        assert await scene.seen() == {kind: {"run_1"}}

    async def test_only_what_changed_is_seen_of_many(self, scene: Scene) -> None:
        for run_id in ("run_1", "run_2", "run_3"):
            await scene.begin("calls", run_id)
        begun = await scene.begin("calls", "run_4")
        await scene.seen()
        await scene.end("calls", begun)
        await scene.begin("sandboxes", "run_5")
        assert await scene.seen() == {"calls": {"run_4"}, "sandboxes": {"run_5"}}

    async def test_a_worker_that_comes_or_goes_is_seen_but_not_its_lease(
        self, scene: Scene
    ) -> None:
        await scene.store.renew(worker("wkr_2"))
        assert await scene.seen() == {"workers": {None}}
        await scene.store.renew(worker("wkr_2"))
        assert await scene.look() == {}
        await scene.store.retire("wkr_2")
        assert await scene.seen() == {"workers": {None}}

    async def test_events_of_the_log_are_no_change(self, scene: Scene) -> None:
        claim = await claimed(scene.store, name="run_2")
        started = event(2, STEP_STARTED, "0/1", of="run_2", name="s")
        await append(scene.store, claim, started)
        assert await scene.look() == {}

    async def test_a_mark_is_another_whenever_something_changed(
        self, scene: Scene, parts: StoreParts
    ) -> None:
        marks = [scene.detector.mark()]
        for kind in KINDS:
            begun = await scene.begin(kind)
            await scene.seen()
            marks.append(scene.detector.mark())
            if kind in ENDS:
                await scene.end(kind, begun)
                await scene.seen()
                marks.append(scene.detector.mark())
        assert len(set(marks)) == len(marks)
        inspection = parts.inspection()
        try:
            assert await inspection.ask(lambda view: view.mark()) == marks[-1]
        finally:
            inspection.close()

    async def test_what_a_run_has_under_way_is_known(self, scene: Scene) -> None:
        for kind in ("calls", "sandboxes", "commands"):
            begun = await scene.begin(kind, f"run_{kind}")
            await scene.seen()
            assert scene.detector.has_open(f"run_{kind}")
            await scene.end(kind, begun)
            await scene.seen()
            assert not scene.detector.has_open(f"run_{kind}")
