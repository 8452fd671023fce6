"""Servers in sandboxes, reached through the server's reverse proxy by stock clients."""

from __future__ import annotations

import asyncio
import io
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from holdfast import open_engine
from holdfast.errors import SandboxUnavailable
from holdfast.sandbox import Host, Sandbox
from holdfast.sandbox.host import default_host
from holdfast.server.app import create_app
from holdfast.server.http_server import bind, port_of, serve
from holdfast.server.sandbox_ports import PortProxy
from holdfast.server.settings import ServerSettings
from waiting import LIMIT

TOKEN = "a token of more than sixteen characters"

SERVER = r"""
import base64, hashlib, http.server, threading, time

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.headers.get("upgrade", "").lower() == "websocket":
            return self.websocket()
        if self.path == "/slow":
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("connection", "close")
            self.end_headers()
            self.wfile.write(b"data: first\n\n")
            self.wfile.flush()
            released.wait()
            self.wfile.write(b"data: second\n\n")
            return
        if self.path == "/release":
            released.set()
        self.say(f"{self.path} {self.headers['host']} {self.headers.get('cookie')} "
                 f"{self.headers.get('x-forwarded-for')} {self.headers.get('connection')}".encode())

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.say(hashlib.sha256(body).hexdigest().encode())

    def say(self, body):
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def websocket(self):
        key = self.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.send_response(101)
        self.send_header("upgrade", "websocket")
        self.send_header("connection", "upgrade")
        self.send_header("sec-websocket-accept", accept)
        self.end_headers()
        while True:
            head = self.rfile.read(2)
            size = head[1] & 127
            if size == 126:
                size = int.from_bytes(self.rfile.read(2), "big")
            mask = self.rfile.read(4)
            data = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(size)))
            long = size.to_bytes(2, "big") if size > 125 else b""
            self.wfile.write(bytes([head[0], 126 if long else size]) + long + data)
            self.wfile.flush()
            if head[0] & 15 == 8:
                return self.close()

    def close(self):
        self.close_connection = True

    def log_message(self, *_):
        pass

released = threading.Event()
server = http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Handler)
print("up", flush=True)
server.serve_forever()
"""


class ToLoopback(AbstractResolver):
    """Names below `localhost`, as browsers and curl resolve them."""

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[ResolveResult]:
        assert host.endswith(".localhost")
        where = ResolveResult(
            hostname=host, host="127.0.0.1", port=port, family=socket.AF_INET, proto=0, flags=0
        )
        return [where]

    async def close(self) -> None:
        pass


@pytest.fixture
async def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Path]:
    """A folder that the server and a host beside it share, as two processes of a user do."""
    folder = tmp_path / "s"
    folder.mkdir(mode=0o700)
    for above in (folder.parent, *folder.parent.parents[:2]):
        above.chmod(0o755)  # the sandbox's user must reach what lies below
    monkeypatch.setenv("HOLDFAST_SANDBOX_DIR", str(folder))
    default_host().close()  # one that an earlier test has made knows another folder
    yield folder
    await default_host().aclose()


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(resolver=ToLoopback())
    timeout = aiohttp.ClientTimeout(total=LIMIT)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        yield session


@pytest.fixture
async def server(state: Path, tmp_path: Path) -> AsyncIterator[ServerSettings]:
    """A server with a token, which nobody needs who has a port's address."""
    listener = bind("127.0.0.1", 0)
    settings = ServerSettings(port=port_of(listener), token=TOKEN)
    async with open_engine(tmp_path / "store.db", worker=False) as engine:
        stop: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        ready = asyncio.Event()
        ports = PortProxy(settings.sandbox_domain, settings.port)
        app = create_app(engine, settings)
        serving = asyncio.create_task(serve(app, listener, stop, ready.set, ports))
        await ready.wait()
        yield settings
        stop.set_result("test over")
        await serving


@pytest.fixture
async def sandbox(state: Path) -> AsyncIterator[Sandbox]:
    """One that another host than the server's holds."""
    host = Host(state, pool=0)
    try:
        async with await Sandbox.create(host=host, backend="namespace", timeout=LIMIT) as made:
            up = asyncio.Event()
            await made.start("python", "-c", SERVER, on_stdout=lambda _: up.set())
            async with asyncio.timeout(LIMIT):
                await up.wait()
            yield made
    finally:
        await host.aclose()


async def test_a_server_inside_answers_by_its_address(
    server: ServerSettings, sandbox: Sandbox, client: aiohttp.ClientSession
) -> None:
    url = sandbox.url(8000)
    name = urlsplit(url).netloc
    assert name.startswith("8000-sbx-") and name.endswith(f".localhost:{server.port}")
    for path in ("/", "/deep/path?x=1&y=%20"):
        async with client.get(url + path, headers={"cookie": "own=1"}) as reply:
            assert await reply.text() == f"{path} {name} own=1 127.0.0.1 close"
            assert reply.headers["connection"] == "close"  # which this server does not say
            # It is no page of ours: what it may do is its own affair, on its own origin.
            assert "content-security-policy" not in reply.headers
    upload = bytes(range(256)) * 20_000  # larger than any body of the API
    async with client.post(url + "/", data=io.BytesIO(upload)) as reply:
        assert len(await reply.text()) == 64 and reply.status == 200


async def test_a_websocket_goes_through_both_ways(
    server: ServerSettings, sandbox: Sandbox, client: aiohttp.ClientSession
) -> None:
    async with client.ws_connect(sandbox.url(8000) + "/ws") as ws:
        for text in ("hello", "x" * 3000):
            await ws.send_str(text)
            assert await ws.receive_str(timeout=LIMIT) == text
        await ws.send_bytes(b"\x00\xff")
        assert await ws.receive_bytes(timeout=LIMIT) == b"\x00\xff"


async def test_an_answer_is_passed_on_as_it_comes(
    server: ServerSettings, sandbox: Sandbox, client: aiohttp.ClientSession
) -> None:
    async with client.get(sandbox.url(8000) + "/slow") as reply:
        assert await reply.content.readline() == b"data: first\n"
        async with client.get(sandbox.url(8000) + "/release") as other:
            assert other.status == 200
        assert b"second" in await reply.content.read()


async def test_an_address_that_was_not_given_out_leads_nowhere(
    server: ServerSettings, sandbox: Sandbox, client: aiohttp.ClientSession
) -> None:
    url = sandbox.url(8000)
    other = sandbox.url(8001)
    async with client.get(other) as reply:
        assert reply.status == 502 and "8001" in (await reply.json())["error"]["message"]
    forged = url.replace("//8000-", "//8001-")
    async with client.get(forged, headers={"authorization": f"Bearer {TOKEN}"}) as reply:
        assert reply.status == 409 and "not given out" in (await reply.json())["error"]["message"]
    label = urlsplit(url).netloc.split("-")[-1].split(".")[0]
    async with client.get(url.replace(label, label[::-1])) as reply:
        assert reply.status == 409
    await sandbox.stop()
    async with client.get(url) as reply:
        assert reply.status == 404


async def test_the_inspector_is_not_reachable_by_a_sandboxs_name(
    server: ServerSettings, sandbox: Sandbox, client: aiohttp.ClientSession
) -> None:
    """On one connection first the API, then a port, and a name that is none."""
    name = urlsplit(sandbox.url(8000)).netloc
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    assert b" 200 " in head
    size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    await reader.readexactly(size)
    request = f"GET /api/runs HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nHost: {name}\r\n\r\n"
    for byte in request.encode():  # however it is cut
        writer.write(bytes([byte]))
        await asyncio.sleep(0)
    assert b"/api/runs " + name.encode() in await reader.read()
    writer.close()
    for wrong in ("8000-sbx-x.localhost", "x.localhost"):
        headers = {"host": wrong, "authorization": f"Bearer {TOKEN}"}
        async with aiohttp.ClientSession() as plain, plain.get(server.url, headers=headers) as got:
            assert got.status == 421


async def test_garbage_is_refused_at_once_and_not_waited_out(server: ServerSettings) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"NONSENSE\r\n")
    assert b" 400 " in await reader.readline()
    writer.close()


async def test_without_a_server_there_is_no_address(sandbox: Sandbox) -> None:
    with pytest.raises(SandboxUnavailable, match="no server"):
        sandbox.url(8000)
