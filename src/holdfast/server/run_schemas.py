"""The API's answers about one run, for its OpenAPI document: its record, a page at a time."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from holdfast.records import StepKind, StepStatus
from holdfast.server.schemas import Cut, Failure, Reply, RunShown


class StepShown(Reply):
    key: str
    kind: StepKind
    name: str
    status: StepStatus
    attempts: int
    started_at: float
    ended_at: float | None
    input: Any
    output: Any
    error: Failure | None
    cut: dict[Literal["input", "output"], Cut] = Field(default={})


class CallShown(Reply):
    """A model call, without what was said in it. Money is exact, as text."""

    id: str
    run_id: str | None
    workflow: str | None
    step: str | None
    step_key: str | None
    attempt: int | None
    model: str
    served_by: str | None
    status: Literal["started", "completed", "failed", "interrupted", "unknown"]
    started_at: float
    finished_at: float | None
    seconds: float | None
    first_token_seconds: float | None
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int
    cost_usd: str | None
    finish: str | None
    error: str | None
    message: str | None
    estimated: bool = Field(description="whether the tokens were counted here, not told")
    tags: list[str]
    provider_attempts: list[dict[str, Any]] = Field(description="each request to a provider")


class SandboxShown(Reply):
    """A sandbox that a run made."""

    id: str
    backend: str
    isolation: str
    runtime: str
    timeout: float
    cpus: float
    memory: int
    disk: int
    pids: int
    network: list[str]
    source: str | None
    run_id: str | None
    workflow: str | None
    step: str | None
    step_key: str | None
    attempt: int | None
    created_at: float
    stopped_at: float | None
    stopped_because: str | None
    cpu_seconds: float | None = Field(description="what it used; null where nobody could tell")
    peak_memory: int | None = Field(description="the most it held at once, in bytes")
    disk_used: int | None = Field(description="bytes of its files at the end")


class CommandShown(Reply):
    """A command in a sandbox, with the end of what it wrote."""

    id: str
    sandbox_id: str
    argv: list[str]
    cwd: str
    run_id: str | None
    workflow: str | None
    step: str | None
    step_key: str | None
    attempt: int | None
    started_at: float
    ended_at: float | None
    ended: str | None
    exit_code: int | None
    signal: int | None
    seconds: float | None
    cpu_seconds: float | None
    peak_memory: int | None
    limits_hit: list[str]
    stdout_bytes: int
    stderr_bytes: int
    stdout: str
    stderr: str
    stdout_cut: int = Field(description="bytes before, which are not kept")
    stderr_cut: int


class Totals(Reply):
    """Of the whole run, whatever is shown of it."""

    steps: int
    sandboxes: int
    commands: int
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: str
    cost_is_complete: bool


class More(Reply):
    """Where the rest of what a run has too much of is; nothing where everything is shown."""

    steps: str | None = None
    calls: str | None = None
    sandboxes: str | None = None
    commands: str | None = None


class PublishedShown(Reply):
    """The last value of a name; null if it is too large to be carried along: see `url`."""

    value: Any
    at: float
    bytes: int
    url: str


class SteeredRuns(Reply):
    """How many runs fitted, and what became of them."""

    matched: int
    done: int
    refused: int
    runs: list[str] = Field(description="the first hundred that fitted")


class UpdateShown(Reply):
    """An update of a run, and what was answered."""

    id: str
    run_id: str = Field(description="the run that answers it")
    name: str
    status: Literal["pending", "answered", "rejected", "unanswered"]
    sent_at: float
    ended_at: float | None
    value: Any = Field(description="the answer")
    error: str | None = Field(description="why it was rejected, or was not answered")


class RunDetail(RunShown):
    """A run with what is known of it: the first steps, calls, sandboxes and commands, and where
    the rest is."""

    input: Any
    result: Any
    failure: Failure | None
    published: dict[str, PublishedShown] = Field(description="the last value of each name")
    log: int = Field(description="place of its newest event in the log: follow it from here")
    steps: list[StepShown]
    calls: list[CallShown]
    sandboxes: list[SandboxShown]
    commands: list[CommandShown]
    totals: Totals
    more: More = Field(description="links to the next page of each, where there is one")
    cut: dict[Literal["input", "result"], Cut] = Field(default={})


After = Annotated[str | None, Field(description="where the next page begins; null: there is none")]


class StepPage(Reply):
    """Steps in the order they began."""

    steps: list[StepShown]
    after: After


class CallPage(Reply):
    """Model calls in the order they began."""

    calls: list[CallShown]
    after: After


class SandboxPage(Reply):
    """Sandboxes in the order they were made."""

    sandboxes: list[SandboxShown]
    after: After


class CommandPage(Reply):
    """Commands in the order they began."""

    commands: list[CommandShown]
    after: After
