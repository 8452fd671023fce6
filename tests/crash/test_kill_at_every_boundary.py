"""A worker process is killed with -9 before and after every commit; another one goes on.

The result must be that of a run nobody disturbed, with every recorded result there once. Each
safeguard is also switched off, to see the same checks fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from crash.checks import check_effects, check_ended, check_kept, check_whole, journals
from crash.worker import Death, Nursery, Order
from crash.workflows import EXPECTED

pytestmark = pytest.mark.timeout(1200)

LIVES = 200
"""No run needs more lives than this."""


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as opened:
        yield opened


class Case:
    """A store, and what its workers leave behind."""

    def __init__(self, folder: Path, workflow: str, **options: object) -> None:
        folder.mkdir()
        self.store, self.workflow = folder / "store.db", workflow
        self.effects, self.acknowledged = folder / "effects", folder / "acknowledged"
        self._options = options

    def live(self, nursery: Nursery, kill_at: int = 0) -> Death:
        order = Order(
            store=str(self.store),
            workflow=self.workflow,
            kill_at=kill_at,
            effects=str(self.effects),
            acknowledged=str(self.acknowledged),
            **self._options,  # type: ignore[arg-type]
        )
        return nursery.live(order)

    def check(self, last: Death) -> None:
        assert not last.error, last.error
        assert last.result == EXPECTED[self.workflow]
        found = journals(self.store)
        check_whole(found)
        check_ended(self.store)
        check_kept(found, self.acknowledged)
        check_effects(found, self.effects)


def sweep(
    nursery: Nursery, folder: Path, workflow: str, parity: int, **options: object
) -> tuple[int, int]:
    """Kill at every boundary of one parity, each in a store of its own, and check what follows.

    Returns how many were killed, and how many of those failed the checks.
    """
    killed = 0
    for boundary in range(parity, 10_000, 2):
        case = Case(folder / f"{boundary}", workflow, **options)
        death = case.live(nursery, kill_at=boundary)
        if not death.killed:
            case.check(death)
            return killed, boundary
        killed += 1
        before = journals(case.store) if case.store.exists() else {}
        check_kept(before, case.acknowledged)
        case.check(case.live(nursery))
        after = journals(case.store)
        for run, journal in before.items():
            assert after[run][: len(journal)] == journal, "the journal was rewritten"
    raise AssertionError("the run does not end")


@pytest.mark.parametrize("parity", [1, 2], ids=["before the commit", "after the commit"])
@pytest.mark.parametrize("workflow", ["sequential", "parallel", "mixed"])
def test_a_worker_killed_at_any_boundary_loses_and_doubles_nothing(
    nursery: Nursery, tmp_path: Path, workflow: str, parity: int
) -> None:
    killed, boundaries = sweep(nursery, tmp_path, workflow, parity, one_by_one=True)
    print(f"{workflow}: {killed} kills")
    assert killed >= {"sequential": 15, "parallel": 40, "mixed": 45}[workflow], boundaries


@pytest.mark.parametrize("kill_at", [8, 11, 14])
@pytest.mark.parametrize("workflow", ["sequential", "parallel", "mixed"])
def test_a_run_whose_every_worker_is_killed_still_ends_right(
    nursery: Nursery, tmp_path: Path, workflow: str, kill_at: int
) -> None:
    case = Case(tmp_path / "case", workflow)
    for life in range(LIVES):
        # A life may spend all its commits on taking the run up; later ones are longer, so that
        # the run gets on in the end.
        death = case.live(nursery, kill_at=kill_at + life // 10)
        if not death.killed:
            break
        check_kept(journals(case.store), case.acknowledged)
    case.check(death)


@pytest.mark.parametrize(
    ("safeguard", "workflow"),
    [
        ("deliver after commit", "sequential"),
        ("keys by task, delivery in order", "parallel"),
        ("delivery in order", "parallel"),
    ],
)
def test_without_a_safeguard_the_same_sweep_fails(
    nursery: Nursery, tmp_path: Path, safeguard: str, workflow: str
) -> None:
    with pytest.raises(AssertionError):
        for parity in (1, 2):
            folder = tmp_path / f"{parity}"
            folder.mkdir()
            sweep(nursery, folder, workflow, parity, one_by_one=True, without=safeguard)
