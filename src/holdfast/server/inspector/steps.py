"""What the pages call a step, and which one a run's page opens on."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.records import Run
from holdfast.records.live import ANSWER, UPDATE
from holdfast.runtime.step_records import END_OF, StepRecord
from holdfast.store.base import DECIDED

WEBHOOK = "@webhook/"
NAMES = {"take_repo": "take the repo", "try_repair": "try"}
"""What the CLI calls steps of the agents."""
INNER = frozenset(
    {"settle", "open_workspace", "close_workspace", "let_go", "add_up", "join_budget"}
)
"""Steps of the agents that are set-up and clean-up: folded on the page, as in the CLI."""


def is_inner(step: StepRecord) -> bool:
    """Whether it says nothing of what the run is about; not so if something went wrong."""
    return step.name in INNER and step.ended_at is not None and not step.went_wrong


def label_of(step: StepRecord) -> str:
    """What to call a step: the function's name, or what is waited for."""
    if step.kind == "webhook":
        return "webhook made"
    if step.kind != "wait":
        return "think" if step.name.startswith("generate_text") else NAMES.get(step.name, step.name)
    if step.name.startswith(END_OF):
        return "end of run"
    if step.name.startswith(UPDATE):
        return f"update {step.name.removeprefix(UPDATE)}"
    if step.name.startswith(ANSWER):
        return f"answer of {step.name.removeprefix(ANSWER).partition('/')[0]}"
    if step.name.startswith(WEBHOOK):
        return "webhook called"
    return "decision" if step.name.startswith(DECIDED) else step.name


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
    return next((step for step in reversed(steps) if not is_inner(step)), steps[-1])
