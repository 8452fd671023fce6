"""What the model is asked: the texts of prompts/, filled in."""

from __future__ import annotations

from importlib import resources

from holdfast.agents.repo.excerpts import both_ends
from holdfast.agents.repo.records import Job, Prompts

_MOST_BEFORE = 4000


def load() -> Prompts:
    """The texts as they are in this version."""
    folder = resources.files("holdfast.agents.repo") / "prompts"
    system, task, heal = (
        (folder / f"{name}.md").read_text(encoding="utf-8").strip()
        for name in ("system", "task", "heal")
    )
    return Prompts(system, task, heal)


def task(job: Job) -> str:
    """The first question: the task, and how the tests stand."""
    tests, before = "It has no tests that we know how to run.", ""
    if job.base.tests is not None:
        tests = f"Its tests are run with `{job.base.tests.command}`."
    if job.before is not None:
        before = f"Before any change: {job.before.summary}."
        if not job.before.ok:
            before += f"\n\n{both_ends(job.before.output, _MOST_BEFORE)}"
    text = job.plan.prompts.task
    return text.format(task=job.task, files=job.base.files, tests=tests, before=before).strip()


def heal(job: Job, problem: str) -> str:
    """What is said after the tests failed on what was called done."""
    return job.plan.prompts.heal.format(problem=problem)
