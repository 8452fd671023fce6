"""A worker, the server, and both at once, killed with -9 while runs go on."""

from __future__ import annotations

import asyncio

import dev_server
import killed_processes


def test_runs_end_as_if_nobody_had_been_killed() -> None:
    dev_server.shared()  # or it says why there is none
    with killed_processes.Trial(workers=1, seed=1) as trial:
        harms = ["worker", "server", "both"]
        outcome = asyncio.run(killed_processes.drive(trial, 4, harms, 3.0))
    assert outcome.problems == {}
    assert dict(outcome.harmed) == {"worker": 1, "server": 1, "both": 1}
