"""A run with all that its pages show, read at one moment."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.agents import run_words
from holdfast.errors import NotFound
from holdfast.records import ErrorInfo, Run
from holdfast.records.approvals import Approval
from holdfast.records.flow import QueuePlace
from holdfast.records.live import Published
from holdfast.runtime.step_records import StepRecord, error_of, records_of
from holdfast.server.inspector import timeline
from holdfast.store.inspection import CallRow, JournalRow, Sums, View
from holdfast.store.ledger import CallTotals

APPROVALS = 20
BEFORE_TRIES = frozenset({"settle", "take_repo", "open_workspace", "join_budget", "run_tests"})
"""Steps of a run on a repo that come before the agent's own."""


@dataclass
class Loaded:
    """See the module's text."""

    run: Run
    journal: list[JournalRow]
    steps: list[StepRecord]
    calls: list[CallRow]
    sums: Sums
    step_totals: dict[str, CallTotals]
    """What the model calls of each step came to, by its key."""
    approvals: list[Approval]
    """What it waits for somebody to decide."""
    published: list[Published]
    given: bytes
    """Its arguments, or their beginning."""
    log: int
    queue: QueuePlace | None
    """Why it has not begun."""

    @property
    def begin(self) -> float:
        """When the first thing of it happened: a fork begins with what another run did."""
        return min([self.run.created_at, *(step.started_at for step in self.steps[:1])])

    def end(self, now: float) -> float:
        """When it ended, or how far it has come."""
        last = self.journal[-1].at
        if self.run.ended:
            return self.run.finished_at or last
        return max(now, last) if self.run.status not in ("stuck", "paused") else last

    @property
    def failure(self) -> ErrorInfo | None:
        """What the run failed with, or is stuck on."""
        if self.run.status not in ("failed", "stuck"):
            return None
        facts = self.journal[-1].facts
        return error_of(facts) if "error" in facts else None

    @property
    def result(self) -> JournalRow | None:
        """The event that has the run's result."""
        last = self.journal[-1]
        return last if last.type == "run.completed" and last.size else None

    @property
    def cancelling(self) -> bool:
        """Whether it was cancelled, and has not ended."""
        types = [row.type for row in self.journal]
        return not self.run.ended and "cancel.requested" in types

    def step(self, key: str | None) -> StepRecord | None:
        """The step with this key; without one, that which the page opens on."""
        if key is None:
            return opens_on(self.steps, self.run)
        return next((step for step in self.steps if step.key == key), None)

    def totals(self, now: float) -> dict[str, Any]:
        """What the header says: time, steps, tokens, cost."""
        started = self.run.started_at or self.run.created_at
        return {
            "seconds": max(self.end(now) - started, 0.0),
            "busy": timeline.worked(self.steps, self.end(now)),
            "steps": len(self.steps),
            "calls": self.sums.calls.calls,
            "tokens": self.sums.calls.tokens,
            "cost": self.sums.calls.cost,
            "unpriced": self.sums.calls.unpriced,
            "children": self.sums.children,
            "below": self.sums.below,
        }


def load(view: View, run_id: str) -> Loaded:
    """A run, or NotFound."""
    run = existing(view, run_id)
    journal = view.journal(run_id)
    if not journal:
        raise NotFound(f"the journal of {run_id} is empty")
    return Loaded(
        run,
        journal,
        in_tries(records_of(journal)),
        view.calls_of_run(run_id),
        view.activity_sums(run_id),
        view.call_totals_by_step(run_id),
        view.approvals("pending", run_id, APPROVALS, None, time.time()),
        view.published(run_id),
        view.run_input(run_id),
        view.log_end(),
        view.queue_place(run_id),
    )


CHILDREN = 50
"""Child runs whose steps are read for one page."""


def children_of(view: View, steps: Sequence[StepRecord]) -> dict[str, timeline.Child]:
    """The child runs of these steps and theirs, as many as a page has room for.

    However many there are, what is read is bounded: it ends with the run that uses up the rows.
    """
    found: dict[str, timeline.Child] = {}

    def look(steps: Sequence[StepRecord], level: int, room: int) -> int:
        for step in steps:
            if room <= 0 or len(found) == CHILDREN or level > timeline.DEEPEST:
                break
            if step.kind != "child" or step.child_id is None or step.child_id in found:
                continue
            if view.run(step.child_id) is None:
                continue  # not begun yet, or deleted since
            all_own = records_of(view.journal(step.child_id))
            repo = is_repo(all_own)
            own = [each for each in all_own if not is_inner(each, repo=repo)]
            found[step.child_id] = timeline.Child(
                step.child_id,
                own,
                view.calls_of_run(step.child_id),
                view.call_totals_by_step(step.child_id),
                view.call_totals(step.child_id),
            )
            room = look(own, level + 1, room - len(own))
        return room

    look(steps, 1, timeline.NESTED_ROWS)
    return found


def existing(view: View, run_id: str) -> Run:
    """A run's record, or NotFound."""
    run = view.run(run_id)
    if run is None:
        raise NotFound(f"there is no run {run_id[:100]}", hint="the list of runs has what there is")
    return run


# --- steps: what pages call them, and which one a run's page opens on ---


def in_tries(steps: list[StepRecord]) -> list[StepRecord]:
    """The steps of a run on a repo, each with its try: what leads to a verdict belongs to it."""
    if not is_repo(steps):
        return steps
    number = 1
    for step in steps:
        if step.kind == "step" and step.name not in BEFORE_TRIES and not is_inner(step, repo=True):
            step.round = number
        if step.name == "judge" and step.ended_at is not None:
            number += 1
    return steps


def is_repo(steps: Sequence[StepRecord]) -> bool:
    """Whether these are the repo agent's."""
    return any(step.name == "take_repo" for step in steps)


def is_inner(step: StepRecord, *, repo: bool) -> bool:
    """Whether it says nothing of what the run is about."""
    return run_words.is_inner(step.kind, step.name, step.status, repo=repo)


def label_of(step: StepRecord) -> str:
    """What to call a step: the function's name, or what is waited for."""
    return run_words.step_name(step.kind, step.name)


def opens_on(steps: Sequence[StepRecord], run: Run) -> StepRecord | None:
    """The step a run's page shows at first: what failed, or what it is at, or the last."""
    if not steps:
        return None
    if run.status in ("failed", "stuck"):
        failed = [step for step in steps if step.status in ("failed", "timed out")]
        return failed[-1] if failed else steps[-1]
    if not run.ended:
        open = [step for step in steps if step.ended_at is None]
        return open[-1] if open else steps[-1]
    repo = is_repo(steps)
    return next((step for step in reversed(steps) if not is_inner(step, repo=repo)), steps[-1])
