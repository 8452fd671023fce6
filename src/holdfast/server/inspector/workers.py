"""The page on workers and health: who holds what, what waits, how large the store is."""

from __future__ import annotations

import os
import platform
import time
from typing import Any, cast

from starlette.requests import Request

from holdfast import __version__
from holdfast.runtime.engine import Engine
from holdfast.server.inspector.pages import Page, inspection
from holdfast.server.inspector.runs import status_of

BEHIND_SECONDS = 2.0
"""A run that is due for longer than this waits for a worker that is not there."""


async def workers_page(request: Request) -> Page:
    """The page at /workers."""
    now = time.time()
    engine = cast("Engine", request.app.state.engine)
    reader = inspection(request)
    state = await reader.ask(lambda view: view.state(now))
    waiting = [due for due in state.due if due.runs]
    lag = max((now - due.since for due in waiting if due.since is not None), default=0.0)
    context: dict[str, Any] = {
        "state": state,
        "alive": state.processes,
        "me": engine.me.id,
        "here": platform.node(),
        "lag": lag,
        "behind": lag > BEHIND_SECONDS,
        "waiting": waiting,
        "store_path": reader.name,
        "files": state.files,
        "bytes": sum(size for _name, size in state.files),
        "facts": {
            "Holdfast": __version__,
            "Python": platform.python_version(),
            "Store": state.software,
            "System": f"{platform.system()} {platform.release()}",
            "This server": f"pid {os.getpid()} on {platform.node()}",
        },
        "status_of": status_of,
        "log": state.log,
    }

    def as_json() -> dict[str, Any]:
        return {
            "version": __version__,
            "workers": [
                {
                    "id": each.worker.id,
                    "pid": each.worker.pid,
                    "host": each.worker.host,
                    "started_at": each.worker.started_at,
                    "expires_at": each.worker.expires_at,
                    "runs": each.worker.runs,
                }
                for each in state.workers
            ],
            "due": [
                {"workflow": due.workflow, "runs": due.runs, "since": due.since} for due in waiting
            ],
            "lag_seconds": lag,
            "runs": state.counts,
            "store": {"path": reader.name, "bytes": context["bytes"], "schema": state.schema},
            "events": state.log,
        }

    return Page("workers.html", "Workers", "workers", context, as_json, live="/api/events", every=5)
