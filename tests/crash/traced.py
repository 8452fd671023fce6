"""One life of a worker under strace: a program of its own, with as few system calls as can be.

    python traced.py STORE WORKFLOW [NORMAL]

It prints a line for every event the store has acknowledged. `NORMAL` sets SQLite's
`synchronous` so: the negative control of the power cuts.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from crash.worker import watch_answers
from crash.workflows import WORKFLOWS
from holdfast import Settings, list_runs, open_engine, start
from holdfast.store.sqlite import schema
from holdfast.store.sqlite.events import event_hash


def _acknowledged(append: Any, error: Any) -> None:
    if error is None:
        for event in append.events:
            seen = ["ack", event.run_id, event.seq, event.type, event_hash(event).hex()]
            os.write(1, (json.dumps(seen) + "\n").encode())


async def main(store: str, workflow: str) -> None:
    body, arguments = WORKFLOWS[workflow]
    async with open_engine(store, settings=Settings(crash_limit=10_000)) as engine:
        run = await start(body.options(key="the run"), *arguments)
        result = await run.result()
        async for _ in engine.watchers.changes():
            if all(each.ended for each in (await list_runs()).runs):
                break
        os.write(1, (json.dumps(["result", result]) + "\n").encode())


def _less_careful() -> None:
    connect = schema.connect

    def connect_so(path: Any) -> Any:
        connection = connect(path)
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    schema.connect = connect_so


if __name__ == "__main__":
    watch_answers(_acknowledged)
    if sys.argv[3:] == ["NORMAL"]:
        _less_careful()
    asyncio.run(main(sys.argv[1], sys.argv[2]))
