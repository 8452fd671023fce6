"""How much of the server a client may have."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import TooManyRequests
from holdfast.server.http_server import MAX_HEAD
from holdfast.server.security import CLIENTS_REMEMBERED, RateLimit
from holdfast.server.settings import ServerSettings
from waiting import LIMIT

from .conftest import TOKEN, Server, running


async def raw(server: Server, data: bytes, *, close: bool = False) -> bytes:
    """Everything that is answered to some bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.settings.port)
    writer.write(data)
    if close:
        writer.write_eof()
    async with asyncio.timeout(LIMIT):
        answer = await reader.read()
    writer.close()
    return answer


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[Server]:
    async with running(tmp_path / "store.db", max_body=1000) as server:
        yield server


@pytest.fixture
async def hurried(tmp_path: Path) -> AsyncIterator[Server]:
    limits = {"max_body": 1000, "body_seconds": 0.3, "header_seconds": 0.3}
    async with running(tmp_path / "store.db", **limits) as server:
        yield server


def event(size: int) -> bytes:
    """A body of exactly this size."""
    empty = len(json.dumps({"name": "x", "payload": ""}))
    return json.dumps({"name": "x", "payload": "y" * (size - empty)}).encode()


async def test_a_body_up_to_the_limit_is_taken_and_no_more(small: Server) -> None:
    kind = {"content-type": "application/json"}
    assert (await small.ask("POST", "/api/events", data=event(1000), headers=kind)).status == 202
    answer = await small.ask("POST", "/api/events", data=event(1001), headers=kind)
    assert (answer.status, answer.error["kind"]) == (413, "PayloadTooLarge")


async def test_a_body_of_unknown_length_has_the_same_limit(small: Server) -> None:
    async def pieces(size: int) -> AsyncIterator[bytes]:
        for place in range(0, size, 100):
            yield event(size)[place : place + 100]

    kind = {"content-type": "application/json"}
    ok = await small.ask("POST", "/api/events", data=pieces(1000), headers=kind)
    assert ok.status == 202
    answer = await small.ask("POST", "/api/events", data=pieces(1100), headers=kind)
    assert (answer.status, answer.error["kind"]) == (413, "PayloadTooLarge")


async def test_an_endless_body_is_not_read_to_its_end(small: Server) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", small.settings.port)
    writer.write(b"POST /hooks/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    sent = 0
    with pytest.raises(ConnectionError):
        while sent < 500_000_000:
            writer.write(b"ffff\r\n" + b"x" * 0xFFFF + b"\r\n")
            await writer.drain()
            sent += 0xFFFF
    assert sent < 50_000_000
    writer.close()
    del reader


async def test_a_client_that_declares_much_and_sends_little_is_refused_at_once(
    small: Server,
) -> None:
    for length in (b"1001", b"99999999999999999999999999", b"9" * 400):
        answer = await raw(
            small,
            b"POST /hooks/x HTTP/1.1\r\nHost: x\r\nContent-Length: " + length + b"\r\n\r\n",
        )
        assert answer[:12] in (b"HTTP/1.1 413", b"HTTP/1.1 400"), answer


async def test_a_body_that_does_not_come_is_not_waited_for(hurried: Server) -> None:
    answer = await raw(
        hurried,
        b"POST /api/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 100\r\n\r\n{",
    )
    assert answer.startswith(b"HTTP/1.1 408")
    assert b'"kind":"TooSlow"' in answer


@pytest.mark.parametrize("begun", [b"", b"GET", b"GET /healthz HTTP/1.1\r\nHost: loc"])
async def test_a_head_that_does_not_come_is_not_waited_for(hurried: Server, begun: bytes) -> None:
    assert (await raw(hurried, begun)).startswith(b"HTTP/1.1 408")


async def test_the_second_head_of_a_connection_has_its_time_too(hurried: Server) -> None:
    whole = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    answer = await raw(hurried, whole + b"GET /healthz HTTP/1.1\r\nHo")
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"HTTP/1.1 408" in answer


async def test_a_refusal_waits_for_the_answer_before_it(hurried: Server) -> None:
    gate = asyncio.Event()

    async def slow(_: Request) -> Response:
        await gate.wait()
        return Response("at last")

    hurried.app.router.add_route("/slow", slow)
    asyncio.get_running_loop().call_later(3 * hurried.settings.header_seconds, gate.set)
    answer = await raw(
        hurried, b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\nGET /healthz HTTP/1.1"
    )
    assert answer.startswith(b"HTTP/1.1 200") and b"at last" in answer
    assert answer.index(b"at last") < answer.index(b"HTTP/1.1 408")


async def test_an_endless_head_is_not_kept(small: Server) -> None:
    for beginning in (b"GET /", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: "):
        head = beginning + b"a" * (MAX_HEAD - len(beginning) + 1)
        assert (await raw(small, head)).startswith(b"HTTP/1.1 431")


async def test_what_is_no_http_is_refused(small: Server) -> None:
    for data in (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x00" * 100):
        assert (await raw(small, data)).startswith(b"HTTP/1.1 4")
    assert (await small.get("/healthz")).status == 200


async def test_a_client_that_asks_too_often_is_told_when_to_come_back(tmp_path: Path) -> None:
    async with running(tmp_path / "store.db", requests_per_minute=60) as server:
        answers = [await server.get("/api/runs") for _ in range(30)]
        statuses = [answer.status for answer in answers]
        assert statuses[:10] == [200] * 10 and 429 in statuses
        refused = next(answer for answer in answers if answer.status == 429)
        assert refused.error["kind"] == "TooManyRequests"
        assert 1 <= int(refused.headers["retry-after"]) <= 2


def test_a_client_may_come_in_bursts_and_then_at_its_rate() -> None:
    now = 0.0
    limit = RateLimit(60, lambda: now)

    def taken(client: str) -> bool:
        try:
            limit.take(client)
        except TooManyRequests as error:
            assert error.retry_after > 0
            return False
        return True

    assert [taken("a") for _ in range(12)] == [True] * 10 + [False] * 2
    assert taken("b")  # another client
    now = 1.0
    assert [taken("a") for _ in range(2)] == [True, False]
    now = 1000.0
    assert [taken("a") for _ in range(12)] == [True] * 10 + [False] * 2


def test_only_so_many_clients_are_remembered() -> None:
    limit = RateLimit(60, lambda: 0.0)
    for number in range(CLIENTS_REMEMBERED + 100):
        limit.take(str(number))
    assert len(limit._clients) == CLIENTS_REMEMBERED


def test_there_is_no_limit_on_loopback_and_one_beyond_unless_set() -> None:
    assert ServerSettings().rate == 0
    assert ServerSettings("0.0.0.0", token=TOKEN).rate == 600
    assert ServerSettings("0.0.0.0", token=TOKEN, requests_per_minute=0).rate == 0
    assert ServerSettings(requests_per_minute=5).rate == 5
