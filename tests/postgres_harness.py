"""Which tests in virtual time run on PostgreSQL as well.

In every suite these, chosen so that each kind of operation meets the server's locks and commits: the
others would take minutes. With HOLDFAST_TEST_STORE=postgres all that have a harness (`make
test-postgres`).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import postgres_server

ALL = os.environ.get("HOLDFAST_TEST_STORE") == "postgres"
PLAIN, REPLAYED, POSTGRES, POSTGRES_REPLAYED = (
    "in memory", "replayed after every event", "postgres", "postgres-replayed",
)  # fmt: skip
SOME = frozenset({
    "test_an_event_sent_before_the_wait_begins_is_delivered",
    "test_each_event_is_taken_once_by_a_run_and_by_every_run_that_waits",
    "test_a_waiting_run_that_was_evicted_is_woken_by_its_event",
    "test_an_event_sent_by_a_workflow_is_sent_once",
    "test_the_same_id_is_carried_out_once_and_gives_the_same_answer",
    "test_children_survive_a_crash_of_the_worker",
    "test_cancelling_a_parent_cancels_the_child_it_waits_for",
    "test_a_limit_per_key_lets_other_keys_run",
    "test_attributes_are_set_at_start_and_by_the_body_and_searched",
    "test_a_stream_is_read_live_from_any_index_and_not_doubled_by_replay",
    "test_timers_that_pass_during_a_pause_fire_on_resume",
    "test_a_retry_keeps_what_parallel_branches_did_after_the_failure",
    "test_a_fork_takes_over_what_came_before_and_runs_the_rest_again",
    "test_a_failure_handler_is_started_with_the_failure_and_once",
    "test_a_run_that_only_waits_leaves_memory_and_comes_back",
    "test_forks_and_retries_queue_like_new_runs",
    "test_terminating_interrupts_the_step_under_way",
    "test_a_key_can_start_anew_after_the_end_and_only_once_for_all_who_ask",
    "test_a_failing_step_is_tried_again_with_growing_delays",
    "test_many_are_deleted_by_a_filter_and_counted_first",
    "test_failed_runs_are_retried_a_page_at_a_time",
    "test_values_survive_a_retry_and_go_with_a_fork",
    "test_a_pause_survives_crashes_and_nothing_before_it_is_done_again",
    "test_of_two_deciders_at_once_one_is_refused",
    "test_each_call_is_a_step_and_none_is_repeated_after_a_crash",
})  # fmt: skip


def kinds(test: str) -> list[str]:
    """The harnesses that a test is run with, by its name."""
    if ALL:
        return [POSTGRES, POSTGRES_REPLAYED]
    return [PLAIN, REPLAYED, *([POSTGRES] if test in SOME else [])]


def store_for(kind: str) -> str | None:
    """Where the harness of a kind keeps its runs; None: in memory."""
    if kind in (PLAIN, REPLAYED):
        return None
    if postgres_server.programs() is None:
        pytest.skip(postgres_server.MISSING)
    return postgres_server.shared().url(postgres_server.emptied_namespace())


def unknown() -> list[str]:
    """Names here that no test has any more."""
    files = [*Path(__file__).parent.glob("runtime/test_*.py"),
             *Path(__file__).parent.glob("loop/test_*.py")]  # fmt: skip
    text = "".join(file.read_text() for file in files)
    return sorted(name for name in SOME if f"def {name}(" not in text)
