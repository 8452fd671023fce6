"""Lists of runs: filtered, searched, a page at a time."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import UsageError
from holdfast.records import RUN_COMPLETED
from holdfast.store.base import RunFilter, Store
from holdfast.testing.store_conformance.records import (
    FAR,
    Conformance,
    append,
    claimed,
    event,
    new_run,
)


class ListingConformance(Conformance):
    """Newest first, and each run once."""

    async def test_lists_filter_and_page(self, store: Store) -> None:
        for number in range(5):
            attributes = {"odd": bool(number % 2), "n": number}
            await store.create(
                new_run(f"run_{number}", attributes=attributes, created_at=float(number)), None
            )
        page = await store.list_runs(RunFilter(), 3, None)
        assert [r.id for r in page.runs] == ["run_4", "run_3", "run_2"]
        assert page.runs[0].attributes == {"odd": False, "n": 4}
        rest = await store.list_runs(RunFilter(), 3, page.cursor)
        assert ([r.id for r in rest.runs], rest.cursor) == (["run_1", "run_0"], None)
        odd = await store.list_runs(RunFilter(attributes={"odd": True}), 10, None)
        assert [r.id for r in odd.runs] == ["run_3", "run_1"]
        recent = await store.list_runs(RunFilter(created_after=3.0), 10, None)
        assert [r.id for r in recent.runs] == ["run_4", "run_3"]
        older = await store.list_runs(RunFilter(created_before=1.0), 10, None)
        assert [r.id for r in older.runs] == ["run_0"]
        for limit in (0, 1001):
            with pytest.raises(UsageError):
                await store.list_runs(RunFilter(), limit, None)

    async def test_lists_are_narrowed_by_workflow_status_and_parent(self, store: Store) -> None:
        claim = await claimed(store)
        await append(store, claim, event(2, RUN_COMPLETED, value=b"1"))
        await store.create(new_run("run_2", parent_id="run_1", due_at=FAR), None)
        await store.create(new_run("run_3", workflow="other"), None)

        async def ids(**where: Any) -> list[str]:
            return [r.id for r in (await store.list_runs(RunFilter(**where), 10, None)).runs]

        assert await ids(workflow="flow") == ["run_2", "run_1"]
        assert await ids(status=["completed"]) == ["run_1"]
        assert await ids(status=["completed", "pending"], workflow="flow") == ["run_2", "run_1"]
        assert await ids(parent_id="run_1") == ["run_2"]
        assert await ids(top_level=True) == ["run_3", "run_1"]
        assert await ids(workflow="none") == []

    async def test_runs_are_found_by_a_text_in_what_is_known_of_them(self, store: Store) -> None:
        for number in range(6):
            fields: dict[str, Any] = {
                "key": f"key_{number}",
                "attributes": {"team": f"100%_{number}"},
            }
            await store.create(new_run(f"run_{number}", **fields), None)

        async def found(text: str, cursor: str | None = None) -> tuple[list[str], str | None]:
            page = await store.list_runs(RunFilter(text=text), 2, cursor)
            return [run.id for run in page.runs], page.cursor

        assert await found("KEY_3") == (["run_3"], None)
        assert await found("100%_4") == (["run_4"], None)
        assert await found("team=") == (["run_5", "run_4"], "run_4")
        assert await found("team=", "run_4") == (["run_3", "run_2"], "run_2")
        assert await found("100%4") == ([], None)
        assert await found("r_n_3") == ([], None)
        assert await found("flow") == (["run_5", "run_4"], "run_4")
        assert await found("\\") == ([], None)
