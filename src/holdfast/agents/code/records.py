"""What the agent's steps return and its runs result in."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

LanguageName = Literal["python", "typescript", "javascript"]
Side = Literal["code", "tests"]
Level = Literal["isolated", "shared"]
"""Whether the tests were run apart from the program, or in one process with it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run works with, settled once at its start."""

    model: str
    test_model: str
    because: str
    """Why this model."""


@dataclass(frozen=True, slots=True)
class Draft:
    """What a model wrote: a program or its tests."""

    filename: str
    code: str
    note: str = ""
    """What it said about it."""
    problem: str | None = None
    """Why the reply can't be used, if it can't."""
    disputes: str | None = None
    """Why the tests are wrong, if that is what it says."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the tests went."""

    passed: bool
    summary: str
    """In a few words: `5 passed`, or the line that says what failed."""
    error: str | None = None
    """What the model is told, bounded."""
    output: str = ""
    """The end of what was printed."""
    failing: tuple[str, ...] = ()
    """The tests that failed, by name."""
    side: Side | None = None
    """Where the fault lies, if that is clear by itself."""
    seconds: float = 0.0
    sandbox: str | None = None
    level: Level = "shared"
    why_shared: str | None = None
    """What keeps these tests from being run apart from the program."""


@dataclass(frozen=True, slots=True)
class Strength:
    """How much tests check, as counts; more is stronger."""

    asserts: int = 0
    exact: int = 0
    """Those that allow one value only, or one kind of error."""
    cases: int = 0
    """Of parametrized tests."""
    silenced: bool = False
    """Skipped, or expected to fail."""

    def covers(self, other: Strength) -> bool:
        """Whether nothing that the other checks is given up."""
        more = self.asserts >= other.asserts and self.exact >= other.exact
        return more and self.cases >= other.cases and (other.silenced or not self.silenced)


@dataclass(frozen=True, slots=True)
class Task:
    """What is wanted, and how."""

    prompt: str
    language: LanguageName = "python"
    model: str | None = None
    test_model: str | None = None
    max_attempts: int = 3
    budget: Decimal | None = None
    """US dollars the run may spend."""
    packages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What came of a task."""

    passed: bool
    code: str
    tests: str
    output: str
    attempts: int
    language: LanguageName = "python"
    code_file: str = "solution.py"
    test_file: str = "test_solution.py"
    summary: str = ""
    """`5 passed`, or in one line why not."""
    error: str | None = None
    """The last failure, if it did not pass."""
    corrected_tests: tuple[str, ...] = ()
    """Tests that were found to be wrong and were corrected, by name."""
    model: str = ""
    test_model: str = ""
    level: Level = "shared"
    """What the verdict rests on: tests that were run apart from the program, or not."""
    why_shared: str | None = None
