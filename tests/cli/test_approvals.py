"""`holdfast approvals`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from waiting import until

from .conftest import Holdfast

APPROVING = str(Path(__file__).parent / "approving.py")


def asked(holdfast: Holdfast, amount: int = 900) -> tuple[str, dict[str, Any]]:
    """A run that waits, with a worker beside it, and the approval it waits for."""
    worker = holdfast.spawn("worker", APPROVING, "--json", "--quiet")
    assert worker.stdout is not None and worker.stdout.readline()
    given = json.dumps({"amount": amount})
    done = holdfast("run", f"{APPROVING}:refund", "--input", given, "--detach")
    assert done.code == 0, done

    def found() -> Any:
        return holdfast("approvals", "list", "--json").json["approvals"]

    return done.out.strip(), until(found, "the approval")[0]


def ended(holdfast: Holdfast, run: str) -> str:
    def result() -> Any:
        shown = holdfast("runs", "show", run, "--json").json
        return shown["status"] == "completed" and shown

    return json.dumps(until(result, "the end of the run"))


def test_what_waits_is_listed_shown_and_approved(holdfast: Holdfast) -> None:
    run, waiting = asked(holdfast)
    assert (waiting["run_id"], waiting["status"]) == (run, "pending")
    listed = holdfast("approvals", "list")
    assert waiting["id"] in listed.out and "managers" in listed.out and "24.0 h" in listed.out
    shown = holdfast("approvals", "show", waiting["id"][:20])
    assert waiting["arguments_hash"] in shown.out and '"amount": 900' in shown.out
    assert "\x1b[2J" not in listed.out + shown.out
    assert "then deny" in shown.out
    short = waiting["arguments_hash"][:12]
    done = holdfast("approvals", "approve", waiting["id"], "--by", "ann", "--hash", short)
    assert (done.code, done.err) == (0, f"{waiting['id']} is approved by ann\n")
    assert "approved by ann" in ended(holdfast, run)
    assert holdfast("approvals", "list", "--json").json == {"approvals": []}
    (past,) = holdfast("approvals", "list", "--status", "any", "--run", run, "--json").json[
        "approvals"
    ]
    assert (past["how"], past["decided_by"]) == ("cli", "ann")
    assert "by ann (cli)" in holdfast("approvals", "show", waiting["id"]).out


def test_a_rejection_reaches_the_run_with_its_reason(holdfast: Holdfast) -> None:
    run, waiting = asked(holdfast)
    done = holdfast("approvals", "reject", waiting["id"], "--note", "no receipt", "--json")
    assert (done.json["status"], done.json["note"]) == ("rejected", "no receipt")
    assert done.json["decided_by"]
    assert "no receipt" in ended(holdfast, run)
    again = holdfast("approvals", "approve", waiting["id"], "--json")
    assert (again.code, again.error["kind"]) == (3, "ApprovalRefused")


def test_other_arguments_than_were_seen_are_refused(holdfast: Holdfast) -> None:
    _run, waiting = asked(holdfast)
    done = holdfast("approvals", "approve", waiting["id"], "--hash", "0" * 64, "--json")
    assert (done.code, done.error["kind"]) == (3, "ApprovalRefused")
    assert holdfast("approvals", "show", waiting["id"], "--json").json["status"] == "pending"


def test_an_approval_that_is_not_there_is_not_found(holdfast: Holdfast) -> None:
    asked(holdfast)
    done = holdfast("approvals", "show", "apr_zz", "--json")
    assert (done.code, done.error["kind"]) == (3, "NotFound")
