"""The API's answers, for its OpenAPI document. Those about one run are in `run_schemas`.

They are made by `views`; a test holds the two together.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from holdfast.records import Status
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


ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ErrorReply, "description": "what is wrong with the request"},
    "5XX": {"model": ErrorReply, "description": "what is wrong here"},
}
