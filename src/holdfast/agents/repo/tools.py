"""The agent's tools, as a workflow body has them: each call a step, the state in the body.

`Bench` holds what the steps so far have told: the state of the files and the patches that led
to it. It is rebuilt by replay, never stored. If a step finds no workspace in that state, the
bench has one made, and the step is taken again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.agents.repo import steps
from holdfast.agents.repo.records import Base, Patch, Plan
from holdfast.agents.repo.steps import Outcome
from holdfast.errors import FatalError, HoldfastError
from holdfast.gateway.messages import TextPart
from holdfast.loop import AgentTool
from holdfast.loop.results import ToolOutput

_MOST_LOST = 5
"""A workspace that is gone so often in a row is not made again."""


class Bench:
    """Where one try stands: base, patches, state; and the tools that change it."""

    def __init__(self, base: Base, plan: Plan) -> None:
        self.base, self.plan = base, plan
        self.tree = base.tree
        self.patches: tuple[Patch, ...] = ()
        self.finished: str | None = None
        """What the agent said when it was done."""
        self.broken: HoldfastError | None = None
        """Why there is no workspace, if none can be had; nothing the model could do about it."""

    async def open(self) -> None:
        """Have the workspace made."""
        await steps.open_workspace(self.base, self.plan, self.patches, self.tree)

    async def use(self, tool: Callable[..., Awaitable[Outcome]], *given: Any) -> ToolOutput:
        """Take a tool's step, on the workspace as it should be."""
        for _ in range(_MOST_LOST):
            outcome = await tool(self.tree, *given)
            if not outcome.lost:
                return self.take(outcome)
            try:
                await self.open()
            except HoldfastError as error:
                return self._break(error)
        return self._break(FatalError(f"the workspace was lost {_MOST_LOST} times in a row"))

    def _break(self, error: HoldfastError) -> ToolOutput:
        self.broken = error
        words = f"the workspace can't be made anew: {error.message}"
        return ToolOutput((TextPart(words),), is_error=True, status="failed")

    def take(self, outcome: Outcome) -> ToolOutput:
        """Go on from what a step has changed; what the model is told of it."""
        if outcome.tree is not None and outcome.patch is not None:
            self.tree = outcome.tree
            self.patches = (*self.patches, outcome.patch)
        status = "failed" if outcome.is_error else "done"
        return ToolOutput((TextPart(outcome.text),), outcome.is_error, status)

    def tools(self) -> list[AgentTool]:
        """What the model may call."""
        functions = (
            self._read_file, self._list_files, self._search, self._edit_file, self._write_file,
            self._run, self._finish,
        )  # fmt: skip
        return [
            AgentTool(each, name=each.__name__[1:], idempotent=True, timeout=None, place="body")
            for each in functions
        ]

    async def _read_file(self, path: str, start: int = 1, lines: int = 200) -> ToolOutput:
        """Lines of a text file, with their numbers.

        Args:
            path: From the root of the repo.
            start: The first line.
            lines: How many, at most 400.
        """
        return await self.use(steps.read_file, path, start, lines)

    async def _list_files(self, path: str = ".", recursive: bool = False) -> ToolOutput:
        """What lies in a folder; folders end with a slash.

        Args:
            path: From the root of the repo.
            recursive: Whether to list what lies below as well.
        """
        return await self.use(steps.list_files, path, recursive)

    async def _search(self, pattern: str, path: str = ".", glob: str = "") -> ToolOutput:
        """Lines that match a regular expression, as `path:line: text`.

        Args:
            pattern: A regular expression as Python has them.
            path: A file or folder to search.
            glob: Only files of such names, as in `*.py`.
        """
        return await self.use(steps.search, pattern, path, glob)

    async def _edit_file(
        self, path: str, old: str, new: str, replace_all: bool = False
    ) -> ToolOutput:
        """Replace a text in a file. `old` must occur exactly once, to the last space.

        Args:
            path: From the root of the repo.
            old: The text as it is now, without line numbers.
            new: What takes its place.
            replace_all: Replace it wherever it occurs.
        """
        return await self.use(steps.edit_file, path, old, new, replace_all)

    async def _write_file(self, path: str, content: str) -> ToolOutput:
        """Write a whole file, a new one or over one that is there.

        Args:
            path: From the root of the repo.
            content: All of it.
        """
        return await self.use(steps.write_file, path, content)

    async def _run(self, command: str, seconds: float | None = None) -> ToolOutput:
        """Run a command line in the shell, in the root of the repo. There is no network.

        Args:
            command: For sh, as in `python -m pytest -q tests/test_x.py`.
            seconds: The longest it may take.
        """
        most = self.plan.command_timeout
        limit = min(max(seconds or most, 1.0), max(most, self.plan.test_timeout))
        return await self.use(steps.run, command, limit)

    async def _finish(self, summary: str) -> str:
        """Say that the task is done. The tests are run then, and you hear if they fail.

        Args:
            summary: What you changed and why, in a few sentences.
        """
        self.finished = summary
        return "Thank you. The tests are being run."
