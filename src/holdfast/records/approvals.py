"""Approvals: what a run asks of people, and what they decided."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

ApprovalStatus = Literal["pending", "approved", "rejected", "expired", "escalated", "withdrawn"]
"""`expired`: nobody decided in time. `escalated`: neither, and somebody else was asked.
`withdrawn`: the run no longer waits for it."""

How = Literal["library", "cli", "http", "webhook", "timeout"]
"""By which way a decision came; `timeout`: by nobody's, the fallback counted."""


@dataclass(frozen=True, slots=True)
class Approval:
    """Something a run may not do before somebody has agreed."""

    id: str
    run_id: str
    title: str
    tool: str | None
    """The tool that waits to be called; None if the workflow itself asked."""
    arguments: Any
    """Exactly what would be done; a decision is about these and no other."""
    arguments_hash: str
    asked_of: str
    """Who should decide, in words; holding people to it is the caller's business."""
    requested_at: float
    expires_at: float
    fallback: str
    """What counts if nobody decides in time: deny, approve or escalate."""
    escalated_from: str | None = None
    status: ApprovalStatus = "pending"
    decided_at: float | None = None
    decided_by: str | None = None
    note: str = ""
    how: How | None = None
    signature: str | None = None
    used_at: float | None = None
    used_by: str | None = None
    """The step that acted on the decision."""

    @property
    def approved(self) -> bool:
        return self.status == "approved"

    def as_json(self) -> dict[str, Any]:
        """The approval for API, pages and `--json`, without the decision's signature."""
        return {name: value for name, value in asdict(self).items() if name != "signature"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """How an approval is closed."""

    status: ApprovalStatus
    at: float
    by: str
    note: str
    how: How
    signature: str
