"""The head of an answer goes with what follows it, and is never kept from a client."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from typing import Any, cast

import uvicorn

from holdfast.gateway.service.server import Cork, CorkedProtocol

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"


class Recorder:
    """Notes what is written, and in which pieces."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def writelines(self, pieces: Iterable[bytes]) -> None:
        self.writes.append(b"".join(pieces))

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


def corked() -> tuple[Cork, Recorder]:
    recorder = Recorder()
    return Cork(cast(Any, recorder), asyncio.get_running_loop()), recorder


async def test_a_head_and_its_body_are_one_write() -> None:
    cork, recorder = corked()
    cork.write(HEAD)
    cork.write(b"ok")
    await asyncio.sleep(0)
    assert recorder.writes == [HEAD + b"ok"]


async def test_a_head_alone_leaves_with_the_turn_of_the_loop() -> None:
    cork, recorder = corked()
    cork.write(HEAD)
    assert recorder.writes == []
    await asyncio.sleep(0)
    assert recorder.writes == [HEAD]
    cork.write(b"ok")
    assert recorder.writes == [HEAD, b"ok"]


async def test_closing_lets_a_head_go_first() -> None:
    cork, recorder = corked()
    cork.write(HEAD)
    cork.close()
    assert (recorder.writes, cork.is_closing()) == ([HEAD], True)


async def test_uvicorn_answers_one_request_after_another_through_it() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = str(scope["path"]).encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for piece in (body, b"!"):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, http=CorkedProtocol, lifespan="off", log_level="warning")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        asked = "".join(f"GET /{n} HTTP/1.1\r\nHost: x\r\n\r\n" for n in range(3))
        writer.write(asked.encode())  # all at once: answers keep their order
        for n in range(3):
            answer = await reader.readuntil(b"0\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
            assert answer.endswith(b"2\r\n/%d\r\n1\r\n!\r\n0\r\n\r\n" % n)
        writer.close()
        await writer.wait_closed()
    finally:
        server.should_exit = True
        await serving
