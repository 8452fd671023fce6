"""What the repo agent's steps return and its runs result in."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from holdfast.sandbox.host import BackendName
from holdfast.sandbox.spec import Runtime

Encoding = Literal["utf-8", "latin-1"]


@dataclass(frozen=True, slots=True)
class Patch:
    """A unified diff as git writes it, readable in the journal and exact to the byte."""

    text: str = ""
    encoding: Encoding = "utf-8"

    @staticmethod
    def of(raw: bytes) -> Patch:
        try:
            return Patch(raw.decode())
        except UnicodeDecodeError:  # a file of the repo is in another encoding: keep its bytes
            return Patch(raw.decode("latin-1"), "latin-1")

    @property
    def raw(self) -> bytes:
        return self.text.encode(self.encoding)


@dataclass(frozen=True, slots=True)
class TestPlan:
    """How a repo's tests are run."""

    __test__ = False

    command: str
    """A line for the shell."""
    kinds: tuple[str, ...]
    """What it runs: `pytest`, `unittest`, `npm`, `node`, `make`; `given` by the caller."""
    because: str
    """Why this one."""


@dataclass(frozen=True, slots=True)
class Prompts:
    """The texts of prompts/, kept with the run: a newer version does not change its course."""

    system: str
    task: str
    heal: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run works with, settled once at its start."""

    model: str
    because: str
    """Why this model."""
    attempts: int
    max_steps: int
    max_tokens: int
    max_time: float
    test_timeout: float
    command_timeout: float
    memory: str
    pids: int
    backend: BackendName
    prompts: Prompts


@dataclass(frozen=True, slots=True)
class Base:
    """The repo as it was taken: every sandbox of the run starts from its snapshot."""

    snapshot: str
    backend: BackendName
    tree: str
    """The id of its files, as git counts them."""
    source: str
    """Where it came from, without any password."""
    commit: str | None = None
    branch: str | None = None
    notes: tuple[str, ...] = ()
    """What the user should know of how it was taken."""
    tests: TestPlan | None = None
    runtime: Runtime = "python"
    env: tuple[tuple[str, str], ...] = ()
    """For commands of the repo."""
    files: int = 0


@dataclass(frozen=True, slots=True)
class Counts:
    """How many tests did what, as far as the output tells."""

    passed: int
    failed: int
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class TestRun:
    """One run of the repo's tests, in a sandbox of its own."""

    __test__ = False

    ok: bool
    """They ran, at least one, and none failed."""
    summary: str
    output: str = ""
    """The end of what was printed."""
    exit_code: int | None = None
    seconds: float = 0.0
    counts: Counts | None = None
    sandbox: str | None = None


@dataclass(frozen=True, slots=True)
class ChangedTest:
    """A test file, or a setting of the tests, that the patch changes."""

    path: str
    how: str
    """`added`, `changed`, or what it lost: `2 assertions fewer`."""
    weaker: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a patch, judged in a fresh sandbox."""

    passed: bool
    summary: str
    problem: str | None = None
    """What the model is told, if it did not pass."""
    tests: TestRun | None = None
    changed_tests: tuple[ChangedTest, ...] = ()
    removed_tests: tuple[str, ...] = ()
    """Tests that are gone: never accepted."""
    original: TestRun | None = None
    """The tests as they were before, on the patched code; only if the patch changes tests."""
    patch: Patch = Patch()
    files: tuple[str, ...] = ()
    lines: int = 0
    """Added and removed ones."""


@dataclass(frozen=True, slots=True)
class Job:
    """What one try works on."""

    task: str
    base: Base
    plan: Plan
    before: TestRun | None
    """How the tests went before anything was changed."""
    deadline: float
    """When all work ends, in seconds since the epoch."""
    keep_tests: bool = False
    agent: str | None = None


@dataclass(frozen=True, slots=True)
class Try:
    """One agent's go at the task."""

    run_id: str
    number: int
    rounds: int
    verdict: Verdict
    summary: str
    """What the agent says of it."""
    ended: str = ""
    """Why it ended, if not by passing."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What the model calls of a run and its children came to."""

    usd: Decimal | None
    """None if a price is unknown."""
    tokens: int
    calls: int


@dataclass(frozen=True, slots=True)
class Repair:
    """What came of a task on a repo."""

    passed: bool
    patch: Patch
    """Applies with `git apply` to the files as they were taken."""
    branch: str
    """A name for a branch with it."""
    summary: str
    verdict: Verdict
    base: Base
    before: TestRun | None
    tries: tuple[Try, ...]
    chosen: int
    """The number of the try that was kept."""
    spent: Spent
    model: str
    seconds: float = 0.0
