"""The repo agent: a git repo and a task in, a verified patch out.

workflow.py, attempt.py     the run and its attempts  checkout.py, sources.py   the repo copied
steps.py, tools.py          what is durable           workspace.py              files in a sandbox
verdict.py, test_guard.py   what counts as a pass     patches.py, trees.py      patches and the user
external_agents.py          agents other than ours    test_detection.py         how tests are run
"""

from typing import TYPE_CHECKING

from holdfast.lazy import lazily

if TYPE_CHECKING:
    from holdfast.agents.repo.records import Patch, Repair, Verdict
    from holdfast.agents.repo.workflow import repair_repo

__all__ = ["Patch", "Repair", "Verdict", "repair_repo"]
__getattr__ = lazily(
    __name__, {"records": ["Patch", "Repair", "Verdict"], "workflow": ["repair_repo"]}
)
