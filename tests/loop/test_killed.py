"""kill -9 between any two steps of an agent, and in the middle of its tools.

The model is a real HTTP server on loopback. Told that the outcome of a refund is unknown it looks
how often there was one, and refunds if there was none: whatever is killed, the answer is the same,
the order is paid back once, and the ledger has each finished call once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crash.checks import check_whole, journals
from holdfast.gateway import Say
from holdfast.gateway.messages import Request, ToolResultPart
from holdfast.records import STEP_COMPLETED, STEP_STARTED
from holdfast.store.sqlite.ledger import SqliteLedger
from holdfast.testing.providers import FakeProvider
from loop.killed import Nursery, effects

pytestmark = pytest.mark.timeout(600)

ANSWER = "A-1 is refunded once."


def clerk(request: Request) -> Say:
    """Decides by what it was told last, and by nothing else: asked again, it says the same."""
    told = [part for part in request.messages[-1].parts if isinstance(part, ToolResultPart)]
    if not told:
        return Say(tools=[("look_up", {"order": "A-1"}), ("look_up", {"order": "A-2"})])
    last = told[-1].text
    if "cost 40" in last or last == "0":
        return Say(tools=[("refund", {"order": "A-1"})])
    if "Outcome unknown" in last:
        return Say(tools=[("count_refunds", {"order": "A-1"})])
    return Say(ANSWER if last in ("refunded", "1") else f"something is wrong: {last}")


@pytest.fixture(scope="module")
def provider() -> Iterator[FakeProvider]:
    with FakeProvider(clerk) as fake:
        yield fake


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as opened:
        yield opened


async def calls_of(path: Path) -> list[Any]:
    ledger = SqliteLedger(path)
    try:
        await ledger.recover()
        return await ledger.calls(limit=1000)
    finally:
        ledger.close()


def check(folder: Path, last: dict[str, Any]) -> Counter[str]:
    """What must hold whatever was killed; says how the ledger's calls ended."""
    assert last.get("result") == ANSWER, last
    assert effects(folder) == ["refund A-1"], "the tool that is not idempotent ran once"
    found = journals(folder / "store.db")
    check_whole(found)
    (journal,) = found.values()
    asked = {
        event.key
        for event in journal
        if event.type == STEP_STARTED and event.facts["name"].startswith("generate_text")
    }
    answered = [e.key for e in journal if e.type == STEP_COMPLETED and e.key in asked]
    calls = asyncio.run(calls_of(folder / "store.db"))
    finished = [call.start.step_key for call in calls if call.status == "completed"]
    assert sorted(finished) == sorted(answered), "each finished call is charged once"
    return Counter(call.status for call in calls)


def test_an_agent_killed_at_any_point_gives_the_same_answer(
    nursery: Nursery, provider: FakeProvider, tmp_path: Path
) -> None:
    undisturbed = tmp_path / "undisturbed"
    undisturbed.mkdir()
    life = nursery.live(undisturbed, provider.url)
    assert check(undisturbed, life) == {"completed": 3}
    killed, statuses, checked = 0, Counter[str](), 0
    for point in range(1, life["points"] + 20):
        folder = tmp_path / str(point)
        folder.mkdir()
        death = nursery.live(folder, provider.url, kill_at=point)
        if not death["killed"]:
            check(folder, death)
            continue
        killed += 1
        before = journals(folder / "store.db") if (folder / "store.db").exists() else {}
        statuses += check(folder, nursery.live(folder, provider.url))
        after = journals(folder / "store.db")
        for run, journal in before.items():
            assert after[run][: len(journal)] == journal, "the journal was rewritten"
        checked += any(
            event.type == STEP_STARTED and event.facts["name"] == "tool count_refunds"
            for event in after[next(iter(after))]
        )
    print(f"{killed} kills; calls: {dict(statuses)}; unknown refunds looked into: {checked}")
    assert killed >= 40
    assert statuses["unknown"], "some were killed in the middle of a model call"
    assert checked >= 2, "some were killed in the middle of the refund"


def test_an_agent_whose_every_worker_is_killed_still_ends_right(
    nursery: Nursery, provider: FakeProvider, tmp_path: Path
) -> None:
    for life in range(100):
        death = nursery.live(tmp_path, provider.url, kill_at=14 + 3 * life)
        if not death["killed"]:
            break
    assert life > 2, "it was killed several times"
    check(tmp_path, death)
