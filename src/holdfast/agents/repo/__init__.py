"""The repo agent: a git repo and a task in, a verified patch out.

workflow.py, trying.py   the run and its tries     taking.py, sources.py   how a repo is taken
steps.py, tools.py       what is durable           workspace.py, live.py   files in a sandbox
judging.py, guarding.py  what counts as a pass     patches.py, trees.py    patches and the user
outsiders.py             other agents than ours
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
