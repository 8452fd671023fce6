"""Runs as traces, as a collector receives them: OTLP over HTTP, read by the standard's own messages."""

from __future__ import annotations

import asyncio
import gzip
import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from holdfast import RunFailed, open_engine, start, step, workflow
from holdfast.server.trace_export import exporting
from waiting import LIMIT, until

CANARY = "what-nobody-else-is-to-read"


class Collector:
    """Takes what is sent to it; refuses while it is `down`."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.paths: list[str] = []
        self.bodies = b""
        self.down = False
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                if collector.down:
                    self.send_response(400)
                    self.end_headers()
                    return
                collector.paths.append(self.path)
                collector.bodies += body
                collector.requests.append(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    @property
    def spans(self) -> list[Span]:
        return [
            span
            for request in list(self.requests)
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def named(self, name: str) -> Span:
        (found,) = [span for span in self.spans if span.name == name]
        return found


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    made = Collector()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.url)
    yield made
    made.server.shutdown()
    made.server.server_close()


def attributes(span: Span) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in span.attributes:
        kind = each.value.WhichOneof("value")
        assert kind is not None
        found[each.key] = getattr(each.value, kind)
    return found


@step
async def add(a: int, secret: str) -> int:
    return a + 1


@workflow
async def inner(n: int) -> int:
    return await add(n, CANARY)


@workflow
async def outer(n: int) -> int:
    first = await add(n, CANARY)
    return await inner(first)


async def test_a_run_with_a_child_is_one_trace_in_which_nothing_is_said(
    tmp_path: Path, collector: Collector
) -> None:
    async with open_engine(tmp_path / "store.db") as engine, exporting(engine):
        run = await start(outer, 1)
        assert await run.result() == 3
    assert collector.paths[0] == "/v1/traces"
    spans = collector.spans
    assert len({span.trace_id for span in spans}) == 1
    assert len({span.span_id for span in spans}) == len(spans) == 5
    top, below = collector.named("run outer"), collector.named("run inner")
    assert (top.parent_span_id, below.parent_span_id) == (b"", top.span_id)
    parents = sorted(span.parent_span_id for span in spans if span.name == "step add")
    assert parents == sorted([top.span_id, below.span_id])
    assert attributes(top)["holdfast.run.id"] == run.id
    assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in spans)
    assert CANARY.encode() not in collector.bodies
    service = {
        a.key: a.value.string_value
        for a in collector.requests[0].resource_spans[0].resource.attributes
    }
    assert service["service.name"] == "holdfast"


async def test_a_failure_is_an_error_and_a_retry_another_span_of_the_same_trace(
    tmp_path: Path, collector: Collector
) -> None:
    works = False

    @step(retries=0)
    async def fragile() -> int:
        if not works:
            raise LookupError(CANARY)
        return 1

    @workflow
    async def flow() -> int:
        await add(1, "")
        return await fragile()

    async with open_engine(tmp_path / "store.db") as engine, exporting(engine):
        run = await start(flow)
        with pytest.raises(RunFailed):
            await run.result()
        await asyncio.to_thread(until, lambda: len(collector.spans) == 3)
        failed = collector.named("run flow")
        assert failed.status.code == 2
        assert attributes(collector.named("step fragile"))["error.type"].endswith("LookupError")
        works = True
        await run.retry()
        assert await run.result() == 1
    again = [span for span in collector.spans if span.name == "run flow"][1]
    assert (again.trace_id, again.status.code) == (failed.trace_id, 0)
    assert again.span_id != failed.span_id
    assert attributes(again)["holdfast.run.retries"] == 1
    tried = [span for span in collector.spans if span.name == "step fragile"]
    assert [span.parent_span_id for span in tried] == [failed.span_id, again.span_id]
    assert len([span for span in collector.spans if span.name == "step add"]) == 1
    assert CANARY.encode() not in collector.bodies


async def test_a_collector_that_refuses_holds_up_nothing(
    tmp_path: Path, collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    collector.down = True
    async with open_engine(tmp_path / "store.db") as engine, exporting(engine):
        assert await (await start(inner, 1)).result() == 2
    assert "was not sent" in caplog.text
    assert collector.spans == []


@pytest.mark.parametrize(
    "off", [{"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}], ids=str
)
async def test_the_standard_switches_are_heeded(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch, off: dict[str, str]
) -> None:
    for name, value in off.items():
        monkeypatch.setenv(name, value)
    async with open_engine(tmp_path / "store.db") as engine, exporting(engine):
        assert await (await start(inner, 1)).result() == 2
    assert collector.spans == []


def test_the_code_agents_calls_and_commands_are_in_the_trace(
    tmp_path: Path, collector: Collector
) -> None:
    command = [sys.executable, "-m", "holdfast.cli.main", "run", "Write is_palindrome"]
    done = subprocess.run(
        [*command, "--model", "scripted/demo", "--store", str(tmp_path / "store.db")],
        cwd=tmp_path,
        env={**os.environ, "OTEL_SERVICE_NAME": "trial"},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    by_id = {span.span_id: span for span in collector.spans}
    calls = [span for span in collector.spans if span.name == "chat scripted/demo"]
    assert {by_id[span.parent_span_id].name for span in calls} == {
        "step generate_code",
        "step generate_tests",
    }
    said = attributes(calls[0])
    assert said["gen_ai.operation.name"] == "chat"
    assert said["gen_ai.usage.output_tokens"] > 0
    ran = [span for span in collector.spans if span.name.startswith("sandbox ")]
    assert ran and {by_id[span.parent_span_id].name for span in ran} == {"step run_tests"}
    assert b"palindrome" not in collector.bodies.lower()


def test_without_a_collector_nothing_is_loaded(tmp_path: Path) -> None:
    code = "import sys\nfrom holdfast.cli.main import main\nassert main(sys.argv[1:]) == 0\n"
    code += "assert not any(name.startswith('opentelemetry') for name in sys.modules)\n"
    (tmp_path / "flow.py").write_text(
        "from holdfast import workflow\n@workflow\nasync def flow() -> int:\n    return 1\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "run", "flow.py:flow"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
