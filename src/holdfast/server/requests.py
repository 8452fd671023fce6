"""The API's requests: what is asked, for its OpenAPI document.

Bodies are checked against these, unknown fields included.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from holdfast.records import Status

Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f]*$")]
RunId = Annotated[str, StringConstraints(min_length=1, max_length=100)]


class RequestBody(BaseModel):
    """A request's body: no field that is not known, no value of another type."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Nothing(RequestBody):
    """An empty object."""


class StartRun(RequestBody):
    """A run to start."""

    input: dict[str, Any] = Field(default={}, description="the workflow's arguments, by name")
    attributes: dict[Name, Annotated[str, Field(max_length=1000)] | int | float | bool] = Field(
        default={}, max_length=50, description="what the run can be found by"
    )
    key_policy: Literal["return", "refuse", "start_new"] = Field(
        default="return",
        description="what if the run with this Idempotency-Key has ended: return it, refuse, or "
        "start a new one",
    )
    delay: str | float = Field(default=0.0, description='seconds, or text such as "90s" or "24h"')
    timeout: str | float | None = Field(
        default=None,
        description="how long the run may take, in place of the workflow's own limit",
    )

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"input": {"number": 21}, "attributes": {"team": "a"}}]}
    )


class ForkRun(RequestBody):
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


class Answer(RequestBody):
    """The event that a run waits for, with a yes or no in it."""

    approved: bool = True
    comment: str | None = Field(default=None, max_length=10_000)
    step: str | None = Field(
        default=None, max_length=1000, description="key of the wait, if there are several"
    )
    payload: dict[str, Any] = Field(default={}, description="more fields for the event")

    model_config = ConfigDict(json_schema_extra={"examples": [{"approved": True}]})


By = Annotated[str, StringConstraints(min_length=1, max_length=200, strip_whitespace=True)]
Note = Annotated[str, StringConstraints(max_length=10_000)]


class Decide(RequestBody):
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


class SteerRuns(RequestBody):
    """What to do to all runs that fit; at least one of the filters must be given."""

    action: Literal["cancel", "terminate", "retry", "delete"]
    workflow: Name | None = None
    status: list[Status] = Field(default=[])
    attributes: dict[Name, str | int | float | bool] = Field(default={}, max_length=20)
    parent: RunId | None = Field(default=None, description="children of this run")
    created_before: float | None = Field(default=None, description="seconds since 1970, UTC")
    dry_run: bool = Field(default=False, description="only count them")

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"action": "retry", "workflow": "ship", "dry_run": True}]}
    )


class SendUpdate(RequestBody):
    """An update for a run to answer."""

    name: Name
    payload: Any = None
    id: Name | None = Field(
        default=None, description="the same id is carried out once, and gives the same answer"
    )
    wait: float = Field(
        default=30.0, ge=0, le=300, description="how long to wait for the answer, in seconds"
    )

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"name": "add_item", "payload": {"sku": "a-1"}, "id": "click-77"}]
        }
    )


class SendEvent(RequestBody):
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
