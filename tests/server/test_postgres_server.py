"""The server, its pages and streams on a store in PostgreSQL: what its clients see is the same.

The tests are those of the files they come from, on another store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import postgres_server

from .conftest import Server, running
from .test_api import (  # noqa: F401 - they are the tests
    ended,
    started,
    test_a_failed_run_is_retried_from_where_it_failed,
    test_a_large_payload_is_named_and_can_be_had,
    test_a_run_is_forked_from_a_step_with_other_input,
    test_a_run_is_paused_and_resumed,
    test_a_run_is_terminated,
    test_a_stream_is_followed_live_and_goes_on_by_index,
    test_a_webhook_repeated_with_its_id_counts_once,
    test_an_approval_is_decided_once_about_these_arguments,
    test_an_event_reaches_the_run_that_waits_for_it,
    test_fifty_runs_submitted_at_once_all_finish,
    test_of_many_requests_with_one_key_one_starts_the_run,
    test_runs_are_listed_by_every_filter,
)
from .test_change_feed import (  # noqa: F401
    test_a_client_that_loses_its_connection_all_the_time_misses_nothing,
    test_events_of_all_runs_come_live_in_the_order_of_the_log,
)
from .test_live_runs import (  # noqa: F401
    test_a_chain_is_shown_and_a_key_policy_is_obeyed,
    test_an_update_is_answered_and_can_be_asked_for_again,
    test_many_runs_are_steered_by_a_filter,
    test_runs_that_have_ended_are_deleted,
)
from .test_probes import test_the_servers_numbers_are_read_by_prometheus  # noqa: F401
from .test_schedules import (  # noqa: F401
    test_a_held_run_is_listed_and_not_deleted,
    test_a_schedule_is_paused_triggered_and_backfilled,
)

pytestmark = pytest.mark.skipif(postgres_server.programs() is None, reason=postgres_server.MISSING)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with running(postgres_server.fresh_url()) as found:
        yield found


async def test_every_page_is_shown(server: Server) -> None:
    run = await started(server, "doubling", number=21)
    await ended(server, run)
    pages = (
        "runs",
        f"runs/{run}",
        "approvals",
        "schedules",
        "calls",
        "sandboxes",
        "models",
        "workers",
    )
    shown = {page: await server.get(f"/{page}") for page in pages}
    assert {page: answer.status for page, answer in shown.items()} == dict.fromkeys(pages, 200)
    assert run in shown["runs"].text and "doubling" in shown[f"runs/{run}"].text
    assert "PostgreSQL" in shown["workers"].text
