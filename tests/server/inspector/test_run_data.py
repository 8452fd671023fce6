"""Steps as pages show them, put together from journals."""

from __future__ import annotations

from typing import Any

from holdfast.records import Event, Run
from holdfast.runtime.step_records import StepRecord, records_of, steps_of
from holdfast.server.inspector.actions import reuse
from holdfast.server.inspector.run_data import opens_on
from holdfast.server.inspector.timeline import outline_of
from holdfast.store.inspection import JournalRow


class Journal:
    def __init__(self) -> None:
        self.rows: list[JournalRow] = []

    def add(self, type: str, key: str = "", at: float = 0.0, **more: Any) -> Journal:
        facts = more.pop("facts", {})
        self.rows.append(JournalRow(len(self.rows) + 1, type, key, at, facts, **more))
        return self


def run(status: str = "running", **more: Any) -> Run:
    return Run("run_1", "shop", "1", status, 0.0, **more)  # type: ignore[arg-type]


def error(message: str) -> dict[str, Any]:
    return {"type": "ValueError", "message": message, "traceback": "Traceback …"}


def test_a_step_that_was_retried_keeps_every_attempt_with_its_error() -> None:
    journal = Journal().add("step.started", "0/0", 1, facts={"name": "pay"})
    journal.add("step.retrying", "0/0", 2, facts={"attempt": 1, "error": error("a"), "next_at": 3})
    journal.add("step.retrying", "0/0", 4, facts={"attempt": 2, "error": error("b"), "next_at": 6})
    journal.add("step.completed", "0/0", 7, size=5)
    (step,) = records_of(journal.rows)
    assert (step.status, step.attempts, step.error) == ("completed", 3, None)
    assert [(t.number, t.started_at, t.ended_at, t.error.message) for t in step.tries] == [
        (1, 1, 2, "a"),
        (2, 3, 4, "b"),
    ]
    assert (step.attempt_from, step.ended_at, step.output_seq) == (6, 7, 4)


def test_a_failure_that_a_retry_of_the_run_made_void_is_an_attempt_of_the_past() -> None:
    journal = Journal().add("step.started", "0/0", 1, facts={"name": "pay"})
    journal.add("step.failed", "0/0", 2, facts={"error": error("declined"), "attempts": 1})
    journal.add("run.failed", at=2, facts={"error": error("declined")})
    journal.add("run.retried", at=50, facts={"void": [2]})
    (step,) = records_of(journal.rows)
    assert (step.status, step.attempts, step.ended_at) == ("running", 2, None)
    assert [found.error.message for found in step.tries] == ["declined"]
    journal.add("step.completed", "0/0", 51)
    (step,) = records_of(journal.rows)
    assert (step.status, step.ended_at, len(step.tries)) == ("completed", 51, 1)


def test_a_result_that_says_it_did_not_pass_is_no_success() -> None:
    journal = Journal().add("step.started", "0/0", 1, facts={"name": "run_tests"}, round=1)
    journal.add("step.completed", "0/0", 2, passed=False, summary="1 failed")
    (step,) = records_of(journal.rows)
    assert (step.status, step.outcome, step.verdict) == ("completed", "not passed", "1 failed")
    assert step.went_wrong


def test_what_a_run_left_open_when_it_ended_was_cancelled() -> None:
    journal = Journal().add("step.started", "0/0", 1, facts={"name": "pay"})
    journal.add("run.cancelled", at=9)
    (step,) = records_of(journal.rows)
    assert (step.status, step.ended_at) == ("cancelled", 9.0)


def test_a_failed_run_opens_on_its_failed_step_and_a_live_one_on_what_it_is_at() -> None:
    steps = [
        StepRecord("0/0", "step", "a", 1, 0, status="completed", ended_at=1),
        StepRecord("0/1", "step", "b", 2, 1, status="failed", ended_at=2),
        StepRecord("0/2", "step", "c", 3, 2, status="completed", ended_at=3),
    ]
    assert opens_on(steps, run("failed")) is steps[1]
    steps[0].ended_at = None
    assert opens_on(steps, run("running")) is steps[0]
    assert opens_on([], run()) is None


def test_an_input_that_a_fork_edited_is_the_one_that_is_shown() -> None:
    journal = Journal().add("step.edited", "0/0", 1, size=7)
    journal.add("step.started", "0/0", 2, facts={"name": "pay"}, size=3)
    (step,) = records_of(journal.rows)
    assert (step.edited, step.input_seq, step.input_size) == (True, 1, 7)


def test_a_fork_reuses_what_ended_before_its_step_and_does_the_rest_again() -> None:
    journal = Journal()
    journal.add("step.started", "0.0/0", 1, facts={"name": "a"})
    journal.add("step.started", "0.1/0", 1, facts={"name": "slow"})
    journal.add("step.completed", "0.0/0", 2, size=1)
    journal.add("step.started", "0/2", 3, facts={"name": "b"})
    journal.add("step.completed", "0.1/0", 4, size=1)
    journal.add("step.completed", "0/2", 5, size=1)
    steps = records_of(journal.rows)
    split = reuse(steps, steps[2])
    assert [step.name for step in split.reused] == ["a"]
    assert [step.name for step in split.again] == ["slow", "b"]


def test_rounds_hold_the_steps_of_one_attempt_and_waits_between_them_stand_alone() -> None:
    steps = [
        StepRecord("0/0", "step", "code", 1, 0, ended_at=1, round=1, status="completed"),
        StepRecord("0/1", "timer", "sleep", 2, 1, ended_at=2, status="completed"),
        StepRecord(
            "0/2", "step", "tests", 3, 2, ended_at=3, round=1, status="completed", passed=False
        ),
        StepRecord("0/3", "wait", "approval", 4, 3, ended_at=9, status="completed"),
        StepRecord("0/4", "step", "code", 5, 9, ended_at=10, round=2, status="completed"),
    ]
    rounds = outline_of(steps, [], {}, 0, 10).rounds
    assert [(found.number, len(found.lines), found.status) for found in rounds] == [
        (1, 3, "not passed"),
        (None, 1, "completed"),
        (2, 1, "completed"),
    ]


def test_a_long_run_is_drawn_a_page_at_a_time_with_an_overview_of_the_whole() -> None:
    steps = [
        StepRecord(f"0/{n}", "step", "s", n, n, ended_at=n + 0.5, status="completed")
        for n in range(5000)
    ]
    steps[4000].status = "failed"
    outline = outline_of(steps, [], {}, 0, 5000, first=300, rows=300)
    assert (outline.first, outline.last, outline.total) == (300, 600, 5000)
    assert (outline.axis.begin, outline.axis.end) == (300, 599.5)
    assert [found.wrong for found in outline.bins].count(True) == 1
    assert outline.shown is not None
    assert 5.9 < outline.shown.left < 6.1


def test_steps_of_whole_events_are_the_same_with_their_payloads() -> None:
    at = {"run_id": "run_1"}
    journal = [
        Event(seq=1, type="step.edited", key="0/0", at=1, value=b'{"n": 2}', **at),
        Event(seq=2, type="step.started", key="0/0", at=2, meta='{"name": "pay"}', **at),
        Event(seq=3, type="step.completed", key="0/0", at=3, value=b"7", **at),
        Event(seq=4, type="wait.created", key="0/1", at=4, meta='{"name": "mail"}', **at),
    ]
    pay, mail = steps_of(journal)
    assert (pay.status, pay.input, pay.output) == ("completed", b'{"n": 2}', b"7")
    assert (mail.kind, mail.status, mail.output) == ("wait", "waiting", None)
    assert [step.key for step in records_of(journal)] == [pay.key, mail.key]
