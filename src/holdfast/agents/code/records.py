"""What the agent's steps return and its runs result in."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

LanguageName = Literal["python", "typescript", "javascript"]
Side = Literal["code", "tests"]
Level = Literal["isolated", "shared"]
"""Whether the tests were run apart from the program, or in one process with it."""
TestCheck = Literal["off", "quick", "thorough"]
"""How closely tests that passed are looked at: whether they would have refused a wrong program."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run works with, settled once at its start."""

    model: str
    test_model: str
    because: str
    """Why this model."""
    check_tests: TestCheck = "off"
    min_score: float | None = None


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
class Survivor:
    """A wrong program that the tests accept: the program with one small mistake."""

    line: int
    diff: str
    code: str = ""


@dataclass(frozen=True, slots=True)
class MutationScore:
    """How many wrong programs the tests refuse."""

    tried: int
    refused: int
    there_are: int = 0
    """Mutants of the program, of which so many were tried."""
    survivors: tuple[Survivor, ...] = ()
    seconds: float = 0.0
    problem: str | None = None
    """Why nothing was measured."""

    @property
    def score(self) -> float | None:
        """The share that was refused; None if nothing was measured."""
        return self.refused / self.tried if self.tried else None

    def __str__(self) -> str:
        return self.problem or f"{self.refused} of {self.tried} wrong programs refused"


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A call on which two independent programs differ."""

    call: str
    program: str
    other: str


@dataclass(frozen=True, slots=True)
class CrossCheck:
    """The program beside one that another model wrote for the same task."""

    model: str
    compared: int = 0
    """Calls made of both."""
    disagreements: tuple[Disagreement, ...] = ()
    code: str = ""
    """The other program."""
    problem: str | None = None
    """Why nothing was compared."""

    def __str__(self) -> str:
        if self.problem:
            return f"{self.model}: {self.problem}"
        differ = f"{len(self.disagreements)} differ" if self.disagreements else "all the same"
        return f"{self.compared} calls compared with {self.model}'s program, {differ}"


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
    mutation: MutationScore | None = None
    """What the tests would have refused, if that was asked for and they passed."""
    cross_check: CrossCheck | None = None
    doubts: str | None = None
    """A further test that the program fails, where no attempt was left to settle who is right."""
