"""What sandbox tests share: a host per test process, backends that work here, small servers."""

from __future__ import annotations

import asyncio
import http.server
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.sandbox import Host, MemoryObserver, Sandbox
from waiting import LIMIT

BACKENDS = ("namespace", "gvisor")
_reasons: dict[str, str | None] = {}
_host: Host | None = None
state = Path()
"""Where that host keeps its files: the fixture `sandbox_state` says. No variable of the
environment, which every process a later test starts would inherit and refuse."""


def shared_host() -> Host:
    """One host for all tests of this process: starting its fork server takes a moment."""
    global _host
    if _host is None or _host.closed:
        _host = Host(state, pool=0)
    return _host


def why_not(backend: str) -> str | None:
    """Why a backend can't be tested here, or None if it can."""
    if backend not in _reasons:
        host = shared_host()
        with ThreadPoolExecutor(1) as apart:  # also from within a running loop
            probe = apart.submit(lambda: asyncio.run(host.probe(backend))).result().probe
        _reasons[backend] = None if probe.works else probe.reason
    return _reasons[backend]


def require(backend: str) -> None:
    reason = why_not(backend)
    if reason is not None:
        pytest.skip(f"{backend} does not work here: {reason}")


async def create(backend: str = "namespace", **options: Any) -> Sandbox:
    options.setdefault("host", shared_host())
    options.setdefault("timeout", 60)
    return await Sandbox.create(backend=backend, **options)


@contextmanager
def observed(host: Host) -> Iterator[MemoryObserver]:
    observer = MemoryObserver()
    host.observers.append(observer)
    try:
        yield observer
    finally:
        host.observers.remove(observer)


async def until(condition: Callable[[], object], limit: float = LIMIT) -> None:
    """Wait for a condition, looking often; fails after `limit` seconds."""
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.005)


class Answering(http.server.BaseHTTPRequestHandler):
    """Answers with what it was asked, so that tests see what arrived."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        headers = "".join(f"{k.lower()}: {v}\n" for k, v in self.headers.items())
        self._answer(f"{self.command} {self.path}\n{headers}".encode())

    def do_POST(self) -> None:
        if self.headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self._answer(b"got " + body)

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serving(
    handler: type[http.server.BaseHTTPRequestHandler] = Answering, context: Any = None
) -> Iterator[int]:
    """A small HTTP server on the host's loopback; gives its port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
