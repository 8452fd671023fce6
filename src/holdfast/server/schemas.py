"""The API's answers, for its OpenAPI document.

They are made by `views`; a test holds the two together.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from holdfast.records import Status, StepKind, StepStatus
from holdfast.records.approvals import ApprovalStatus, How


class Reply(BaseModel):
    """An answer: all its fields, and no others."""

    model_config = ConfigDict(extra="forbid")


class Problem(Reply):
    kind: str
    message: str
    hint: str | None


class ErrorReply(Reply):
    """What went wrong, and what to do about it."""

    error: Problem

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "error": {
                        "kind": "NotFound",
                        "message": "there is no run run_01K",
                        "hint": "GET /api/runs lists what there is",
                    }
                }
            ]
        }
    )


class Urls(Reply):
    self: str
    events: str
    stream: str
    cancel: str
    page: str


class Started(Reply):
    """A run that was started, or was there before with the same key."""

    id: str
    workflow: str
    status: Status
    existed: bool
    urls: Urls


class RunShown(Reply):
    """A run as lists show it. Times are seconds since 1970, UTC."""

    id: str
    workflow: str
    version: str
    status: Status
    key: str | None
    parent_id: str | None
    forked_from: str | None
    continued_from: str | None
    continued_as: str | None
    created_at: float
    started_at: float | None
    finished_at: float | None
    due_at: float | None
    timeout: float | None
    deadline: float | None
    owner: str | None
    error: str | None
    attributes: dict[str, str | int | float | bool]
    urls: Urls


class RunPage(Reply):
    """Runs, newest first. With a cursor there may be more, even if the page is short."""

    runs: list[RunShown]
    cursor: str | None


class Cut(Reply):
    """A payload that was left out for its size."""

    bytes: int
    url: str


class ErrorShown(Reply):
    type: str
    message: str
    notes: list[str] = []


class ErrorOrigin(ErrorShown):
    """An error that another came from."""

    depth: int = Field(description="1 for what the error itself came from, 2 for what that did, …")
    relation: str = Field(description="caused by, while handling, in the group")


class Failure(ErrorShown):
    traceback: str
    hint: str | None
    origins: list[ErrorOrigin] = []


class EventShown(Reply):
    """An event of a run's journal."""

    log: int = Field(description="its place in the log of all runs")
    run_id: str
    seq: int = Field(description="its place in the run's journal")
    type: str
    key: str = Field(description="the step it belongs to, or empty")
    at: float
    facts: dict[str, Any]
    value: Any
    cut: dict[Literal["value"], Cut] = {}


class EventPage(Reply):
    events: list[EventShown]
    after: int = Field(description="where the next page begins")


class ChunkShown(Reply):
    index: int
    data: Any
    at: float
    step: str
    attempt: int


class ChunkPage(Reply):
    chunks: list[ChunkShown]
    next: int
    complete: bool = Field(description="whether the run has ended and this was the last page")


class WorkflowShown(Reply):
    name: str
    version: str
    description: str | None
    input: dict[str, Any] | None = Field(description="JSON Schema of its arguments")


class WorkflowList(Reply):
    workflows: list[WorkflowShown]


class EventSent(Reply):
    id: str
    name: str
    run: str | None
    repeated: bool = Field(description="whether an event with this id was sent before")


class ApprovalShown(Reply):
    """What a run may not do before somebody has agreed."""

    id: str
    run_id: str
    title: str
    tool: str | None
    arguments: Any
    arguments_hash: str
    asked_of: str
    requested_at: float
    expires_at: float
    fallback: str
    escalated_from: str | None
    status: ApprovalStatus
    decided_at: float | None
    decided_by: str | None
    note: str
    how: How | None
    used_at: float | None
    used_by: str | None


class ApprovalPage(Reply):
    approvals: list[ApprovalShown]


class ModelShown(Reply):
    name: str
    provider: str
    why_not: str | None
    chat: bool = Field(description="whether it answers messages, by its name")
    input_price: str | None = Field(description="US dollars per million tokens")
    output_price: str | None


class ModelList(Reply):
    models: list[ModelShown]


class WorkerShown(Reply):
    id: str
    pid: int
    host: str
    runs: int


class Health(Reply):
    ok: bool
    version: str
    store: str
    log: int
    works: bool
    runs_in_memory: int
    workers: list[WorkerShown]


class Alive(Reply):
    ok: bool


# --- one run ---


class StepShown(Reply):
    key: str
    kind: StepKind
    name: str
    label: str | None = Field(description="what tells it from others of its name")
    branch: str | None = Field(
        description="path and name of the branch of the body that asked for it"
    )
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


class ChildTotals(Reply):
    """Of the child runs of a run and theirs; not in the run's own."""

    runs: int
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: str
    cost_is_complete: bool


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
    children: ChildTotals


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


class DeletedRuns(Reply):
    """Runs that are not there any more."""

    deleted: list[str] = Field(description="the run, and those that it had called")


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


class QueueShown(Reply):
    """Why a run has not begun: no place is free, so many have begun just now, or it still gathers
    what it will be given."""

    why: Literal["places", "rate", "gathering"]
    ahead: int = Field(description="how many of its key, or of its workflow, are before it")
    lane: str | None = Field(description="its key")
    next_at: float | None = Field(description="when the next may begin; null: when another ends")
    gathered: int = Field(description="how many starts or events it has so far")


class RunDetail(RunShown):
    """A run with what is known of it: the first steps, calls, sandboxes and commands, and where
    the rest is."""

    input: Any
    result: Any
    failure: Failure | None
    queue: QueueShown | None = Field(description="why it has not begun; null: nothing holds it")
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


ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ErrorReply, "description": "what is wrong with the request"},
    "5XX": {"model": ErrorReply, "description": "what is wrong here"},
}


class ReactionShown(Reply):
    action: Literal["start", "cancel"]
    match: dict[str, Any]
    key: str | None


class SubscriptionShown(Reply):
    """What a workflow listens to."""

    workflow: str
    events: dict[str, ReactionShown]


class SubscriptionList(Reply):
    subscriptions: list[SubscriptionShown]


class HoldShown(Reply):
    run_id: str
    reason: str
    by: str
    at: float


class HoldList(Reply):
    holds: list[HoldShown]
