"""What probes and monitors ask of a process: whether it is alive and ready, and its numbers.

`/healthz`: the process answers and can read the store; one that can't should be started anew.
`/readyz`: it should be given work; not while it is being stopped, nor before its lease is renewed.
`/metrics`: in the text format of Prometheus, from the store, so that any process tells of all.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from holdfast import __version__
from holdfast.errors import HoldfastError, ServerUnavailable
from holdfast.runtime.engine import Engine
from holdfast.server.http_server import PlainServer, bind, port_of
from holdfast.server.replies import error_reply
from holdfast.store.inspection import Inspection, StoreState, Sum, View

LOOK_SECONDS = 5.0
KEPT_SECONDS = 5.0
"""How long numbers are good for: several monitors may ask, and counting costs something."""
TEXT = "text/plain; version=0.0.4; charset=utf-8"


async def check_alive(engine: Engine) -> int:
    """Raises ServerUnavailable unless the store can be read; where its log ends."""
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            return await engine.store.log_end()
    except TimeoutError:
        raise ServerUnavailable("the store does not answer") from None


async def check_ready(engine: Engine) -> None:
    """Raises ServerUnavailable unless this process should be given work."""
    if engine.draining:
        raise ServerUnavailable("the process is being stopped")
    if engine.works and engine.clock.steady() > engine.renew_at + engine.settings.lease_seconds:
        raise ServerUnavailable("the worker's lease is not renewed")
    await check_alive(engine)


# --- numbers ---


@dataclass
class _Metric:
    name: str
    kind: str
    help: str
    values: list[tuple[Mapping[str, str], float]] = field(
        default_factory=list[tuple[Mapping[str, str], float]]
    )

    def lines(self) -> Iterable[str]:
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} {self.kind}"
        for labels, value in self.values:
            inside = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
            number = repr(float(value)) if value % 1 else str(int(value))
            yield f"{self.name}{f'{{{inside}}}' if inside else ''} {number}"


def _escaped(text: str) -> str:
    plain = text.encode("utf-8", "replace").decode()
    return plain.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Numbers:
    """The store's numbers, counted now and then."""

    def __init__(self, engine: Engine, inspection: Inspection) -> None:
        self._engine, self._inspection = engine, inspection
        self._text, self._until = "", 0.0
        self._lock = asyncio.Lock()

    async def text(self) -> str:
        """All of them, as Prometheus reads them."""
        async with self._lock:
            if time.monotonic() >= self._until:
                self._text = await self._count()
                self._until = time.monotonic() + KEPT_SECONDS
            return self._text

    async def _count(self) -> str:
        engine, now = self._engine, time.time()

        def look(view: View) -> tuple[StoreState, list[Sum], int]:
            waiting = view.approvals("pending", None, 1000, None, now)
            return view.state(now), view.call_sums(0.0), len(waiting)

        state, calls, approvals = await self._inspection.ask(look)
        schedules = await engine.store.schedules()
        lag = max((now - due.since for due in state.due if due.since is not None), default=0.0)
        metrics = [
            _Metric(
                "holdfast_build_info", "gauge", "The version.", [({"version": __version__}, 1)]
            ),
            _Metric(
                "holdfast_runs",
                "gauge",
                "Runs by workflow and status.",
                [
                    ({"workflow": workflow, "status": status}, count)
                    for workflow, counts in sorted(state.counts.items())
                    for status, count in sorted(counts.items())
                ],
            ),
            _Metric(
                "holdfast_runs_due",
                "gauge",
                "Runs that could go on and that no worker has taken.",
                [({"workflow": due.workflow}, due.runs) for due in state.due],
            ),
            _Metric("holdfast_lag_seconds", "gauge", "How long the oldest is due.", [({}, lag)]),
            _Metric("holdfast_workers", "gauge", "Workers.", [({}, len(state.workers))]),
            _Metric(
                "holdfast_worker_runs",
                "gauge",
                "Runs in a worker's hand.",
                [({"worker": each.worker.id}, each.worker.runs) for each in state.workers],
            ),
            _Metric(
                "holdfast_process_runs",
                "gauge",
                "Runs in the memory of the process that answers.",
                [({}, len(engine.in_hand))],
            ),
            _Metric(
                "holdfast_approvals_pending", "gauge", "Approvals that wait.", [({}, approvals)]
            ),
            _Metric(
                "holdfast_schedules",
                "gauge",
                "Schedules by state.",
                [
                    ({"state": "active"}, sum(not each.paused for each in schedules)),
                    ({"state": "paused"}, sum(each.paused for each in schedules)),
                ],
            ),
            _Metric(
                "holdfast_queued_firings",
                "gauge",
                "Firings that wait for the run before them.",
                [({}, sum(each.queued for each in schedules))],
            ),
            _Metric(
                "holdfast_events_total", "counter", "Events in all journals.", [({}, state.log)]
            ),
            _Metric(
                "holdfast_store_bytes", "gauge", "What the store holds.", [({}, state.page_bytes)]
            ),
            _Metric(
                "holdfast_store_free_bytes", "gauge", "Of it, unused.", [({}, state.free_bytes)]
            ),
            *_of_calls(calls),
        ]
        return "\n".join(line for metric in metrics for line in metric.lines()) + "\n"


def _of_calls(sums: list[Sum]) -> list[_Metric]:
    made = _Metric("holdfast_model_calls_total", "counter", "Model calls on record.")
    tokens = _Metric("holdfast_model_tokens_total", "counter", "Tokens of model calls on record.")
    cost = _Metric("holdfast_model_cost_dollars_total", "counter", "What they cost, in US dollars.")
    found: dict[tuple[str, str], list[int]] = {}
    for each in sums:
        totals = each.totals
        counts = (totals.calls, totals.input_tokens, totals.output_tokens, totals.cost)
        before = found.setdefault((each.model, each.status), [0, 0, 0, 0])
        found[each.model, each.status] = [a + b for a, b in zip(before, counts, strict=True)]
    for (model, status), (calls, given, written, spent) in sorted(found.items()):
        labels = {"model": model, "status": status}
        made.values.append((labels, calls))
        tokens.values.append(({**labels, "direction": "input"}, given))
        tokens.values.append(({**labels, "direction": "output"}, written))
        cost.values.append((labels, spent / 1e9))
    return [made, tokens, cost]


# --- a server of their own, for processes that serve nothing else ---


@asynccontextmanager
async def probed(
    engine: Engine, inspection: Inspection, host: str, port: int
) -> AsyncGenerator[int]:
    """Answer probes at an address while this is open: a worker's way to be watched."""
    numbers = Numbers(engine, inspection)

    async def healthz(_request: Request) -> Response:
        return await _answer(check_alive(engine))

    async def readyz(_request: Request) -> Response:
        return await _answer(check_ready(engine))

    async def metrics(_request: Request) -> Response:
        return PlainTextResponse(await numbers.text(), media_type=TEXT)

    handlers = {"/healthz": healthz, "/readyz": readyz, "/metrics": metrics}
    app = Starlette(routes=[Route(path, handler) for path, handler in handlers.items()])
    listener = bind(host, port)
    config = uvicorn.Config(
        app, ws="none", lifespan="off", log_level="error", access_log=False, server_header=False
    )
    server = PlainServer(config)
    serving = asyncio.get_running_loop().create_task(server.serve(sockets=[listener]))
    try:
        yield port_of(listener)
    finally:
        server.should_exit = True
        await serving
        listener.close()


async def _answer(check: Awaitable[object]) -> Response:
    try:
        await check
    except HoldfastError as error:
        return error_reply(error)
    return JSONResponse({"ok": True})
