"""Workers on PostgreSQL while everything fails: `make chaos` (SECONDS_OF_CHAOS=600, WORKERS=4, SEED).

Two servers of its own, one following the other in step, a pgbouncer, and workers in network namespaces
of their own with wrong clocks; every second one speaks through the pooler. Again and again a worker is
killed with -9, stopped past its lease or cut off the network, the database is stopped at once and started
again, the standby takes its place for good, or the pooler is killed. Meanwhile runs are started that have
steps, children, waits, sleeps and model calls, and events are sent for them. In the end, with nothing
failing any more:

- every run that was acknowledged is there, and has ended with the right result;
- no journal has a gap, and no step or message was recorded twice;
- every call has been charged once, and what scopes have spent and hold is the sum of their calls;
- no run has an owner, and the counts of runs are those of the runs.

It prints what it did, and exits with 1 if anything is not so.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg

from chaos import flows
from chaos.cluster import Cluster
from chaos.machines import Machine, Network, lacks
from holdfast import open_engine, send_event, start
from holdfast.store.postgres.url import PostgresUrl

LEASE = 8.0
FLOWS = Path(__file__).with_name("flows.py")
SETTINGS = f"""
[runtime]
lease_seconds = {LEASE}
idle_seconds = 0.2
[gateway.prices."scripted/echo"]
input = 1.0
output = 2.0
"""
CHECKS = {
    "journals with a gap": (
        "SELECT run_id, count(*), max(seq) FROM events GROUP BY run_id HAVING count(*) <> max(seq)"
    ),
    "steps recorded twice": (
        "SELECT run_id, key FROM events WHERE type IN ('step.completed', 'wait.received',"
        " 'child.ended') GROUP BY run_id, key HAVING count(*) > 1"
    ),
    "messages taken twice": (
        "SELECT run_id, meta::json ->> 'message' FROM events WHERE type = 'wait.received'"
        " AND meta::json ->> 'message' IS NOT NULL GROUP BY 1, 2 HAVING count(*) > 1"
    ),
    "runs that have not ended well": (
        "SELECT id, status, error FROM runs WHERE owner IS NOT NULL OR (status <> 'completed'"
        " AND coalesce(error, '') NOT LIKE 'OutcomeUnknown:%')"
    ),
    "counts that are wrong": (
        "SELECT workflow, status, runs FROM run_counts EXCEPT"
        " SELECT workflow, status, count(*) FROM runs GROUP BY 1, 2"
    ),
    "places in the log that are not unique": (
        "SELECT log FROM events GROUP BY log HAVING count(*) > 1"
    ),
    "scopes that have not spent what their calls were charged": (
        "SELECT s.scope, s.usd, s.held_usd, c.charge, c.held FROM spend s LEFT JOIN"
        " (SELECT scope, sum(coalesce(charge, 0)) AS charge, sum(held_usd) AS held FROM calls,"
        "  json_array_elements_text(scopes::json) AS scope GROUP BY scope) c ON c.scope = s.scope"
        " WHERE s.usd <> coalesce(c.charge, 0) OR s.held_usd <> coalesce(c.held, 0)"
    ),
    "calls that have not ended": "SELECT id, owner FROM calls WHERE status = 'started'",
}


class Chaos:
    """The servers, the workers, and what is done to them."""

    def __init__(self, workers: int, seed: int) -> None:
        self.luck = random.Random(seed)
        self.done: dict[str, int] = {}
        self.network = Network()
        self._number = workers
        self._cleanup = ExitStack()

    def __enter__(self) -> Chaos:
        with ExitStack() as made:
            folder = Path(made.enter_context(tempfile.TemporaryDirectory()))
            made.enter_context(self.network)
            self.cluster = Cluster(self.network.address)
            made.callback(self.cluster.stop)
            self.cluster.start()
            (folder / "holdfast.toml").write_text(SETTINGS)
            self.machines = [Machine(self.network, folder, FLOWS) for _ in range(self._number)]
            for machine in self.machines:
                pooled = machine.place % 2 == 1
                machine.url = self._pooled if pooled else self.url
                made.callback(machine.kill)
                machine.start()
            self._cleanup = made.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def url(self) -> str:
        return self.cluster.url("chaos")

    def _pooled(self) -> str:
        return self.cluster.pooled_url("chaos")

    async def harm(self) -> None:
        """Do one thing of those that happen."""
        machine = self.luck.choice(self.machines)
        kinds = {
            "kill": (4, self._kill),
            "stop past the lease": (2, self._stop),
            "database restarted": (2, self._restart_database),
            "standby promoted": (1, self._promote),
        }
        if self.cluster.pooler is not None:
            kinds["pooler killed"] = (2, self._restart_pooler)
        if self.network.apart:
            kinds["partition"] = (2, self._cut)
        names = list(kinds)
        [what] = self.luck.choices(names, [kinds[name][0] for name in names])
        await kinds[what][1](machine)
        self.done[what] = self.done.get(what, 0) + 1

    async def _kill(self, machine: Machine) -> None:
        machine.kill()
        machine.start()

    async def _stop(self, machine: Machine) -> None:
        machine.signal(signal.SIGSTOP)
        await asyncio.sleep(LEASE + 2)
        machine.signal(signal.SIGCONT)

    async def _cut(self, machine: Machine) -> None:
        machine.cut(whole=False)
        await asyncio.sleep(self.luck.choice([1.0, LEASE + 2]))
        machine.cut(whole=True)

    async def _restart_database(self, _machine: Machine) -> None:
        await asyncio.to_thread(self.cluster.restart_database)

    async def _promote(self, _machine: Machine) -> None:
        await asyncio.to_thread(self.cluster.promote_standby)

    async def _restart_pooler(self, _machine: Machine) -> None:
        await asyncio.to_thread(self.cluster.restart_pooler)


async def drive(chaos: Chaos, seconds: float) -> dict[str, int]:
    """Start runs and send their events while things are harmed; then wait for all to end."""
    expected: dict[str, int] = {}
    begun = asyncio.Event()

    async def harming() -> None:
        await begun.wait()
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            await asyncio.sleep(chaos.luck.uniform(1, 3))
            await chaos.harm()

    harm = asyncio.create_task(harming())
    async with open_engine(chaos.url(), worker=False) as engine:
        number = 0
        while not harm.done():
            number += 1
            run = await start(flows.chaos_mixed.options(key=f"mixed-{number}"), number)
            expected[run.id] = flows.result_of(number)
            paid = await start(flows.chaos_paid.options(key=f"paid-{number}"), number)
            expected[paid.id] = 3 * number
            await send_event("go", {"number": number}, id=f"go-{number}")
            if number == 5:
                begun.set()
            await asyncio.sleep(0.2)
        await harm

        async def all_ended() -> bool:
            found = [await engine.store.get(run) for run in expected]
            return all(run is not None and run.ended for run in found)

        last = time.monotonic() + 300
        while not await all_ended() and time.monotonic() < last:
            await asyncio.sleep(1)
        wrong = unknown = 0
        for run, result in expected.items():
            found = await engine.store.get(run)
            if found is not None and (found.error or "").startswith("OutcomeUnknown:"):
                unknown += 1  # its call was cut short: that it says so, and asks no second time
                continue
            value = (await engine.store.last_event(run)).value or b"null"
            wrong += json.loads(value) != result
    return {"runs": len(expected), "wrong results": wrong, "calls of unknown outcome": unknown}


def checked(url: str) -> dict[str, list[Any]]:
    known = PostgresUrl.parse(url)
    with psycopg.connect(known.conninfo, target_session_attrs="read-write") as connection:
        connection.execute(f"SET search_path = {known.schema}".encode())
        return {what: connection.execute(sql.encode()).fetchall() for what, sql in CHECKS.items()}


def settled(found: Callable[[], dict[str, list[Any]]]) -> dict[str, list[Any]]:
    """What is wrong and stays so: calls of the dead are settled when their leases have ended."""
    last = time.monotonic() + 120
    while True:
        problems = {what: rows for what, rows in found().items() if rows}
        if set(problems) - {"calls that have not ended"} or not problems:
            return problems
        if time.monotonic() > last:
            return problems
        time.sleep(2)


def main() -> int:
    seconds = float(os.environ.get("SECONDS_OF_CHAOS", "600"))
    workers = int(os.environ.get("WORKERS", "4"))
    seed = int(os.environ.get("SEED", str(random.randrange(10**6))))
    with Chaos(workers, seed) as chaos:
        skews = ", ".join(machine.skew or "none" for machine in chaos.machines)
        print(f"{workers} workers for {seconds:g} s, seed {seed}, clocks wrong by {skews}")
        for what in lacks(chaos.network):
            print(f"NOT TRIED here: {what}")
        found = asyncio.run(drive(chaos, seconds))
        problems = settled(lambda: checked(chaos.url()))
    print(", ".join(f"{number} × {what}" for what, number in sorted(chaos.done.items())))
    print(", ".join(f"{number} {what}" for what, number in found.items()))
    for what, rows in problems.items():
        print(f"{what}: {rows[:10]}")
    return 1 if problems or found["wrong results"] or not chaos.done else 0


if __name__ == "__main__":
    sys.exit(main())
