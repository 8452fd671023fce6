"""What a store says about ownership, against a small model, in SQLite and in PostgreSQL alike.

The model knows who owns which run, what is due, and how long each journal is. Whatever is asked in
whatever order, both stores and the model agree.
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import postgres_server
from holdfast.errors import HoldfastError, LeaseLost
from holdfast.records import STEP_STARTED
from holdfast.store import opener
from holdfast.store.base import Append, Store
from holdfast.testing.store_conformance.records import event, new_run, worker

pytestmark = pytest.mark.skipif(postgres_server.programs() is None, reason=postgres_server.MISSING)

WORKERS = ["wkr_1", "wkr_2"]
STEPS = int(os.environ.get("HOLDFAST_STORE_STEPS", "150"))


@dataclass
class Modelled:
    """What should be true of a run."""

    length: int = 1
    fence: int = 0
    owner: str | None = None
    due: bool = True
    waits: str | None = None
    """The event it waits for."""
    ended: bool = False


class Stores:
    """Both stores, and the model."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.loop = asyncio.new_event_loop()
        names = [Path(self.folder.name) / "store.db", postgres_server.fresh_url()]
        self.stores: list[Store] = [opener.runs(name, "wkr_1") for name in names]
        self.both(lambda store: store.open())
        self.runs: dict[str, Modelled] = {}
        self.sent = 0
        self.buried = False

    def close(self) -> None:
        self.both(lambda store: store.close())
        self.loop.close()
        self.folder.cleanup()

    def both(self, ask: Any) -> Any:
        """The answer of both stores, which is the same."""
        answers = [self.loop.run_until_complete(self._asked(ask, store)) for store in self.stores]
        assert answers[0] == answers[1]
        return answers[0]

    async def _asked(self, ask: Any, store: Store) -> Any:
        try:
            return await ask(store)
        except HoldfastError as error:
            return type(error)

    def create(self, run: str, by: str | None) -> None:
        async def ask(store: Store) -> Any:
            made = await store.create(new_run(run), None if by is None else worker(by))
            return made.existed, made.claim is not None

        existed, claimed = self.both(ask)
        assert existed == (run in self.runs)
        if not existed:
            self.runs[run] = Modelled(fence=int(claimed), owner=by if claimed else None)
            self.runs[run].due = not claimed
            assert claimed == (by is not None)

    def claim(self, by: str, limit: int, lost: str | None) -> None:
        gone = [] if lost in (None, by) else [str(lost)]

        async def ask(store: Store) -> Any:
            claims = await store.claim(worker(by), ["flow"], limit, gone)
            return sorted((each.run.id, each.fence) for each in claims)

        for known in self.runs.values():
            if known.owner in gone:
                known.owner, known.due, known.fence = None, True, known.fence + 1
        claims = self.both(ask)
        due = {id for id, known in self.runs.items() if known.due and not known.owner}
        taken = {id for id, _ in claims}
        assert taken <= due and len(taken) <= limit
        self.buried = self.buried or bool(gone)
        if not self.buried:  # a run that two workers were lost with is handed out alone
            assert len(taken) == min(limit, len(due))
        for id, fence in claims:
            known = self.runs[id]
            known.owner, known.due, known.fence = by, False, known.fence + 1
            assert fence == known.fence

    def append(self, run: str, kind: str, stale: bool) -> None:
        known = self.runs.get(run)
        if known is None or (known.owner is None and not stale) or known.ended:
            return
        seq = known.length + 1
        made = {
            "step": event(seq, STEP_STARTED, f"0/{seq}", of=run, name="s"),
            "wait": event(seq, "wait.created", f"0/{seq}", of=run, name=f"of {run}"),
            "end": event(seq, "run.completed", of=run),
        }[kind]
        fence = known.fence - 1 if stale else known.fence

        async def ask(store: Store) -> Any:
            told: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            store.append(Append(run, fence, [made], lambda _, error: told.set_result(error)))
            error = await told
            return None if error is None else type(error)

        found = self.both(ask)
        assert found == (LeaseLost if stale else None)
        if stale:
            return
        known.length = seq
        if kind == "wait":
            known.waits = f"of {run}"
        if kind == "end":
            known.ended, known.owner, known.due, known.waits = True, None, False, None

    def release(self, run: str) -> None:
        known = self.runs.get(run)
        if known is None or known.owner is None:
            return
        assert self.both(lambda store: store.release(run, known.fence, None)) is True
        known.owner, known.fence = None, known.fence + 1
        mail = self.both(lambda store: self._has_mail(store, run))
        known.due = mail

    async def _has_mail(self, store: Store, run: str) -> bool:
        found = await store.get(run)
        assert found is not None
        return found.due_at is not None

    def send(self, run: str) -> None:
        self.sent += 1
        id = f"evt_{self.sent}"
        assert self.both(lambda store: store.send(f"of {run}", b"{}", id, None, 5.0)) is True
        known = self.runs.get(run)
        if known is not None and known.waits and known.owner is None and not known.ended:
            known.due = True

    def they_agree(self) -> None:
        async def ask(store: Store) -> Any:
            found = {}
            for id in self.runs:
                run = await store.get(id)
                assert run is not None
                found[id] = run.owner, run.status, len(await store.load(id))
            return found

        for id, (owner, status, length) in self.both(ask).items():
            known = self.runs[id]
            assert (owner, length) == (known.owner, known.length)
            assert (status == "completed") == known.ended


@pytest.mark.parametrize("seed", [1, 2])
def test_both_stores_and_the_model_agree(seed: int) -> None:
    luck = random.Random(seed)
    stores = Stores()
    try:
        for _ in range(STEPS):
            run = f"run_{luck.randrange(8)}"
            what = luck.choice(["create", "claim", "claim", "append", "append", "release", "send"])
            if what == "create":
                stores.create(run, luck.choice([None, None, *WORKERS]))
            elif what == "claim":
                lost = luck.choice([None] * 8 + WORKERS)
                stores.claim(luck.choice(WORKERS), luck.randint(1, 3), lost)
            elif what == "append":
                kind = luck.choice(["step"] * 4 + ["wait"] * 3 + ["end"])
                stores.append(run, kind, luck.random() < 0.2)
            elif what == "release":
                stores.release(run)
            else:
                stores.send(run)
            stores.they_agree()
        claimed = [known for known in stores.runs.values() if known.fence > 1]
        assert len(claimed) > 3, "enough has happened to be worth comparing"
    finally:
        stores.close()
