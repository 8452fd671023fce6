"""A real server on loopback, on a store of its own, and a client that speaks HTTP to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from fastapi import FastAPI

from holdfast import Engine, open_engine
from holdfast.server.app import create_app
from holdfast.server.http_server import bind, port_of, serve
from holdfast.server.settings import ServerSettings
from waiting import LIMIT, pauses

from . import jobs  # noqa: F401 - so that its workflows are known

TOKEN = "a token of more than sixteen characters"


@dataclass
class Answer:
    status: int
    headers: Any
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def error(self) -> dict[str, Any]:
        return self.json["error"]


@dataclass
class Frame:
    """An event of a stream, as a browser would see it."""

    id: str = ""
    event: str = "message"
    data: str = ""

    @property
    def json(self) -> Any:
        return json.loads(self.data)


@dataclass
class Server:
    """A server under test."""

    engine: Engine
    app: FastAPI
    settings: ServerSettings
    client: aiohttp.ClientSession
    stop: asyncio.Future[str]
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return self.settings.url

    async def ask(self, method: str, path: str, **options: Any) -> Answer:
        headers = {**self.headers, **options.pop("headers", {})}
        options.setdefault("allow_redirects", False)
        async with self.client.request(
            method, self.url + path, headers=headers, **options
        ) as reply:
            return Answer(reply.status, reply.headers, await reply.text())

    async def get(self, path: str, **options: Any) -> Answer:
        return await self.ask("GET", path, **options)

    async def post(self, path: str, body: Any = None, **options: Any) -> Answer:
        if body is not None:
            options["json"] = body
        return await self.ask("POST", path, **options)

    async def stream(self, path: str, **headers: str) -> AsyncIterator[Frame]:
        """The frames of an event stream, as they come."""
        url = self.url + path
        async with self.client.get(url, headers={**self.headers, **headers}) as reply:
            assert reply.status == 200, await reply.text()
            assert reply.headers["content-type"].startswith("text/event-stream")
            frame = Frame()
            async for raw in reply.content:
                line = raw.decode().rstrip("\n")
                if not line:
                    if frame.data:
                        yield frame
                    frame = Frame(id=frame.id)
                    continue
                name, _, value = line.partition(": ")
                if name in ("id", "event", "data"):
                    setattr(frame, name, value)


@asynccontextmanager
async def running(
    store: Path | str, *, worker: bool = True, token: str | None = None, **settings: Any
) -> AsyncIterator[Server]:
    """A server on any free port."""
    listener = bind("127.0.0.1", 0)
    chosen = ServerSettings(port=port_of(listener), token=token, **settings)
    async with open_engine(store, worker=worker) as engine:
        app = create_app(engine, chosen)
        loop = asyncio.get_running_loop()
        stop: asyncio.Future[str] = loop.create_future()
        ready = asyncio.Event()
        serving = loop.create_task(serve(app, listener, stop, ready.set))
        await ready.wait()
        timeout = aiohttp.ClientTimeout(total=60)
        async with aiohttp.ClientSession(timeout=timeout) as client:
            headers = {"authorization": f"Bearer {token}"} if token else {}
            try:
                yield Server(engine, app, chosen, client, stop, headers)
            finally:
                if not stop.done():
                    stop.set_result("test over")
                await serving


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with running(tmp_path / "store.db") as found:
        yield found


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Server]:
    """A server with a token; the client shows it unless told otherwise."""
    async with running(tmp_path / "store.db", token=TOKEN) as found:
        yield found


async def until(condition: Callable[[], Awaitable[Any]], what: str, seconds: float = LIMIT) -> Any:
    """Wait for a condition, and return what it found."""
    try:
        async with asyncio.timeout(seconds):
            pause = pauses()
            while not (found := await condition()):
                await asyncio.sleep(next(pause))
            return found
    except TimeoutError:
        raise AssertionError(f"{what}: not within {seconds} s") from None
