"""The API's shapes, for its OpenAPI document: what is asked, and what is answered.

What is asked is checked against these, unknown fields included. What is answered is made by
`views`; a test holds the two together.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from holdfast.records import Status
from holdfast.records.approvals import ApprovalStatus, How

Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f]*$")]
RunId = Annotated[str, StringConstraints(min_length=1, max_length=100)]


class Asked(BaseModel):
    """A request's body: no field that is not known, no value of another type."""

    model_config = ConfigDict(extra="forbid", strict=True)


# --- what is asked ---


class Nothing(Asked):
    """An empty object."""


class StartRun(Asked):
    """A run to start."""

    input: dict[str, Any] = Field(default={}, description="the workflow's arguments, by name")
    attributes: dict[Name, Annotated[str, Field(max_length=1000)] | int | float | bool] = Field(
        default={}, max_length=50, description="what the run can be found by"
    )
    delay: str | float = Field(default=0.0, description='seconds, or text such as "90s" or "24h"')

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"input": {"number": 21}, "attributes": {"team": "a"}}]}
    )


class ForkRun(Asked):
    """What a new run takes over from another, and what is replaced."""

    step: str | None = Field(
        default=None, max_length=1000, description="key of the step to go on from"
    )
    input: dict[str, Any] | None = Field(
        default=None,
        description="arguments to replace: the step's, or without a step the workflow's",
    )
    result: Any = Field(default=None, description="the step's result, instead of doing it")

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"step": "0/2", "input": {"rows": 12}}]}
    )


class Approve(Asked):
    """An answer to what a run waits for."""

    approved: bool = True
    comment: str | None = Field(default=None, max_length=10_000)
    step: str | None = Field(
        default=None, max_length=1000, description="key of the wait, if there are several"
    )
    payload: dict[str, Any] = Field(default={}, description="more fields for the event")

    model_config = ConfigDict(json_schema_extra={"examples": [{"approved": True}]})


By = Annotated[str, StringConstraints(min_length=1, max_length=200, strip_whitespace=True)]
Note = Annotated[str, StringConstraints(max_length=10_000)]


class Decide(Asked):
    """A decision on an approval."""

    approved: bool
    by: By = Field(description="who decides; goes on record")
    note: Note = ""
    arguments_hash: str | None = Field(
        default=None, max_length=64, description="of the arguments you saw: refused if others wait"
    )

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"approved": True, "by": "ann@example.com"}]}
    )


class DecideByToken(BaseModel):
    """The same by the approval's own token; from a form, where everything is text."""

    approved: bool
    by: By
    note: Note = ""

    model_config = ConfigDict(extra="forbid")


class SendEvent(Asked):
    """An event for the runs that wait for it, or will."""

    name: Name
    payload: Any = None
    id: Name | None = Field(default=None, description="the same id is delivered once")
    run: RunId | None = Field(default=None, description="for this run alone")

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"name": "approval", "payload": {"what": "budget"}, "id": "approval-1"}]
        }
    )


# --- what is answered ---


class Told(BaseModel):
    """An answer: all its fields, and no others."""

    model_config = ConfigDict(extra="forbid")


class Problem(Told):
    kind: str
    message: str
    hint: str | None


class ErrorReply(Told):
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


class Urls(Told):
    self: str
    events: str
    stream: str
    cancel: str
    page: str


class Started(Told):
    """A run that was started, or was there before with the same key."""

    id: str
    workflow: str
    status: Status
    existed: bool
    urls: Urls


class RunShown(Told):
    """A run as lists show it. Times are seconds since 1970, UTC."""

    id: str
    workflow: str
    version: str
    status: Status
    key: str | None
    parent_id: str | None
    forked_from: str | None
    created_at: float
    started_at: float | None
    finished_at: float | None
    due_at: float | None
    owner: str | None
    error: str | None
    attributes: dict[str, str | int | float | bool]
    urls: Urls


class RunPage(Told):
    """Runs, newest first. With a cursor there may be more, even if the page is short."""

    runs: list[RunShown]
    cursor: str | None


class Cut(Told):
    """A payload that was left out for its size."""

    bytes: int
    url: str


class Failure(Told):
    type: str
    message: str
    traceback: str
    hint: str | None


class StepShown(Told):
    key: str
    kind: Literal["step", "timer", "wait", "child", "webhook"]
    name: str
    status: Literal["running", "retrying", "completed", "failed", "cancelled", "timed out"]
    attempts: int
    started_at: float
    ended_at: float | None
    input: Any
    output: Any
    error: Failure | None
    cut: dict[Literal["input", "output"], Cut] = {}


class CallShown(Told):
    """A model call, without what was said in it. Money is exact, as text."""

    id: str
    run_id: str | None
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


class SandboxShown(Told):
    """A sandbox that a run made."""

    id: str
    backend: str
    isolation: str
    runtime: str
    network: list[str]
    step: str | None
    step_key: str | None
    attempt: int | None
    created_at: float
    stopped_at: float | None
    stopped_because: str | None


class CommandShown(Told):
    """A command in a sandbox, with the end of what it wrote."""

    id: str
    sandbox_id: str
    argv: list[str]
    cwd: str
    step: str | None
    step_key: str | None
    attempt: int | None
    started_at: float
    ended_at: float | None
    ended: str | None
    exit_code: int | None
    signal: int | None
    seconds: float | None
    limits_hit: list[str]
    stdout: str
    stderr: str
    stdout_cut: int = Field(description="bytes before, which are not kept")
    stderr_cut: int


class Totals(Told):
    steps: int
    commands: int
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: str
    cost_is_complete: bool


class RunDetail(RunShown):
    """A run with everything that is known of it."""

    input: Any
    result: Any
    failure: Failure | None
    log: int = Field(description="place of its newest event in the log: follow it from here")
    steps: list[StepShown]
    calls: list[CallShown]
    sandboxes: list[SandboxShown]
    commands: list[CommandShown]
    totals: Totals
    cut: dict[Literal["input", "result"], Cut] = {}


class EventShown(Told):
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


class EventPage(Told):
    events: list[EventShown]
    after: int = Field(description="where the next page begins")


class ChunkShown(Told):
    index: int
    data: Any
    at: float
    step: str
    attempt: int


class ChunkPage(Told):
    chunks: list[ChunkShown]
    next: int
    complete: bool = Field(description="whether the run has ended and this was the last page")


class WorkflowShown(Told):
    name: str
    version: str
    description: str | None
    input: dict[str, Any] | None = Field(description="JSON Schema of its arguments")


class WorkflowList(Told):
    workflows: list[WorkflowShown]


class EventSent(Told):
    id: str
    name: str
    run: str | None
    repeated: bool = Field(description="whether an event with this id was sent before")


class ApprovalShown(Told):
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


class ApprovalPage(Told):
    approvals: list[ApprovalShown]


class ModelShown(Told):
    name: str
    provider: str
    why_not: str | None
    input_price: str | None = Field(description="US dollars per million tokens")
    output_price: str | None


class ModelList(Told):
    models: list[ModelShown]


class WorkerShown(Told):
    id: str
    pid: int
    host: str
    runs: int


class Health(Told):
    ok: bool
    version: str
    store: str
    log: int
    works: bool
    runs_in_memory: int
    workers: list[WorkerShown]


class Alive(Told):
    ok: bool


ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ErrorReply, "description": "what is wrong with the request"},
    "5XX": {"model": ErrorReply, "description": "what is wrong here"},
}
