"""A look at one point in one tier: gathers what it finds, and says what was looked at."""

from __future__ import annotations

import ast
from typing import Any

from holdfast.ready.points import Finding, Outcome, Tier
from holdfast.ready.project import Project
from holdfast.ready.source_code import Source, SourceFunction


class Look:
    """What a check reports to. A check that reports nothing has not looked: that is an error."""

    def __init__(self, project: Project, point: str, tier: Tier) -> None:
        self.project, self.point = project, point
        self.tier: Tier = tier
        self.findings: list[Finding] = []

    def fail(self, message: str, at: Any = None, *, evidence: str = "") -> None:
        self._add("fail", message, at, evidence)

    def warn(self, message: str, at: Any = None, *, evidence: str = "") -> None:
        self._add("warn", message, at, evidence)

    def skip(self, why: str) -> None:
        """It could not be carried out: that is never a pass."""
        self._add("not exercised", why)

    def not_applicable(self, why: str) -> None:
        self._add("n/a", why)

    def passed(self, message: str, *, evidence: str = "") -> None:
        """Nothing is wrong, if nothing was found before."""
        if not self.findings:
            self._add("pass", message, evidence=evidence)

    def seen(self, number: int, what: str, *, evidence: str = "") -> None:
        """The end of a look at so many of a kind."""
        if number:
            self.passed(f"{number} {what}", evidence=evidence)
        elif not self.findings:
            self.not_applicable(f"no {what}")

    def _add(self, outcome: Outcome, message: str, at: Any = None, evidence: str = "") -> None:
        file, line = self._place(at)
        self.findings.append(Finding(self.point, self.tier, outcome, message, file, line, evidence))

    def _place(self, at: Any) -> tuple[str | None, int | None]:
        match at:
            case None:
                return None, None
            case str():
                return at, None
            case SourceFunction():
                return at.source.path, at.node.lineno
            case (Source(path=path), ast.AST() as node):
                return path, int(getattr(node, "lineno", 1))
            case (str() as file, int() as line):
                return file, line
            case _:
                return self.project.place(at)
