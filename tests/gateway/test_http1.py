"""Our side of HTTP/1.1, against a server that sends exactly the bytes it is told to."""

from __future__ import annotations

import asyncio
import datetime
import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.support import fake_providers, make_gateway
from holdfast.errors import (
    BadReply,
    ConfigError,
    ProviderError,
    ProviderTimeout,
    ProviderUnavailable,
    UsageError,
)
from holdfast.gateway import http_client
from holdfast.gateway.accounting import Meter
from holdfast.gateway.calls import generate_text
from holdfast.gateway.config import GatewayConfig, Timeouts
from holdfast.gateway.exchange import Exchange
from holdfast.gateway.http1 import head
from holdfast.gateway.http_client import HttpClient, place
from waiting import LIMIT

CONFIG = GatewayConfig()
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Peer:
    """A server on loopback; each connection is answered from `answers`, request by request."""

    def __init__(self, *answers: bytes, close: bool = False) -> None:
        self._answers, self._close = list(answers), close
        self.connections = 0
        self.requests: list[bytes] = []
        self.lost = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while self._answers:
                first = await reader.readuntil(b"\r\n\r\n")
                size = int(first.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
                self.requests.append(first + await reader.readexactly(size))
                writer.write(self._answers.pop(0))
                await writer.drain()
            if not self._close:
                await reader.read()  # until the client goes
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.lost.set()
            writer.close()


@asynccontextmanager
async def listening(peer: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    server = await asyncio.start_server(peer, "127.0.0.1", 0, ssl=tls)
    try:
        port = server.sockets[0].getsockname()[1]
        yield f"{'https' if tls else 'http'}://127.0.0.1:{port}/v1"
    finally:
        server.close()
        await server.wait_closed()


def exchange(transport: HttpClient, url: str, body: bytes = b"{}", **headers: str) -> Exchange:
    return Exchange(
        transport, "peer", url, headers=headers, body=body, meter=Meter(),
        timeouts=CONFIG.timeouts, bounds=CONFIG.bounds, streams=False,
    )  # fmt: skip


async def ask(transport: HttpClient, url: str, **more: Any) -> tuple[int, dict[str, str], bytes]:
    async with exchange(transport, url, **more) as answer:
        return answer.status, dict(answer.headers), await answer.read()


async def ask_once(*answers: bytes, close: bool = False) -> tuple[int, dict[str, str], bytes]:
    transport = HttpClient(CONFIG.timeouts)
    async with listening(Peer(*answers, close=close)) as url:
        try:
            return await asyncio.wait_for(ask(transport, url), LIMIT)
        finally:
            await transport.close()


@pytest.mark.parametrize(
    "answer",
    [
        WHOLE,
        b"HTTP/1.1 100 Continue\r\n\r\n" + WHOLE,
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + WHOLE,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nDigest: x\r\n\r\n",
    ],
    ids=["length", "continue", "early hints", "chunks", "trailers"],
)
async def test_an_answer_is_read_however_it_is_framed(answer: bytes) -> None:
    status, headers, body = await ask_once(answer)
    assert (status, body) == (200, b"hello")
    assert not {"link", "digest"} & headers.keys()


async def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    _, _, body = await ask_once(b"HTTP/1.1 200 OK\r\nA: 1\r\na: 2\r\n\r\nhello", close=True)
    assert body == b"hello"


async def test_repeated_headers_are_joined() -> None:
    _, headers, _ = await ask_once(b"HTTP/1.1 200 OK\r\nA: 1\r\na: 2\r\nContent-Length: 0\r\n\r\n")
    assert headers["a"] == "1, 2"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhello",
    ],
)
async def test_a_cut_answer_is_no_answer(answer: bytes) -> None:
    with pytest.raises(BadReply, match="cut"):
        await ask_once(answer, close=True)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-"])
async def test_hanging_up_before_the_answer_may_have_cost(answer: bytes) -> None:
    with pytest.raises(ProviderUnavailable, match="hung up") as caught:
        await ask_once(answer, close=True)
    assert caught.value.bought


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 2**20 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: 1\r\n" * 2**17 + b"\r\n",
        b"HTTP/1.1 103 Early Hints\r\n\r\n" * 2**15,
    ],
    ids=["no HTTP", "two lengths", "length and chunks", "switch", "long header", "many", "hints"],
)
async def test_broken_http_is_said_to_be(answer: bytes) -> None:
    with pytest.raises(BadReply, match="broken HTTP"):
        await ask_once(answer)


@pytest.mark.parametrize("end", [b"0\r\nX: " + b"x" * 2**20, b"1;" + b"x" * 2**20])
async def test_marks_and_trailers_without_end_are_cut_off(end: bytes) -> None:
    start = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
    with pytest.raises(BadReply):
        await ask_once(start + end)


async def test_a_connection_is_used_again() -> None:
    transport, peer = HttpClient(CONFIG.timeouts), Peer(WHOLE, WHOLE, WHOLE)
    async with listening(peer) as url:
        for _ in range(3):
            assert (await ask(transport, url))[2] == b"hello"
        await transport.close()
    assert peer.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        WHOLE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
        WHOLE.replace(b"1.1", b"1.0"),
        WHOLE + WHOLE,  # what follows is nobody's answer
        WHOLE + b"HTTP/1.1 2",
        WHOLE + b"x",
    ],
    ids=["close", "1.0", "two answers", "one and a half", "more"],
)
async def test_a_connection_that_is_not_fit_is_not_used_again(answer: bytes) -> None:
    transport, peer = HttpClient(CONFIG.timeouts), Peer(answer, WHOLE)
    async with listening(peer) as url:
        for _ in range(2):
            assert (await ask(transport, url))[2] == b"hello"
        await transport.close()
    assert peer.connections == 2


async def test_a_peer_that_speaks_unasked_is_left() -> None:
    transport = HttpClient(CONFIG.timeouts)
    told = asyncio.Event()

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(WHOLE)
        await told.wait()
        writer.write(WHOLE)
        assert await reader.read() == b""  # it was closed from the other side
        writer.close()

    async with listening(peer) as url:
        await ask(transport, url)
        [(pool, _)] = transport._pools.values()
        [[connection]] = pool._idle.values()
        told.set()
        await asyncio.wait_for(connection.gone(), LIMIT)
        assert pool.idle(place(url).peer) is None
        await transport.close()


async def test_old_connections_are_closed_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "KEEP", 0.01)
    transport, peer = HttpClient(CONFIG.timeouts), Peer(WHOLE, WHOLE)
    async with listening(peer) as url:
        await ask(transport, url)
        await asyncio.wait_for(peer.lost.wait(), LIMIT)
        await transport.close()


async def test_a_large_request_arrives_whole() -> None:
    transport, peer = HttpClient(CONFIG.timeouts), Peer(WHOLE)
    body = b"0123456789" * 700_000
    async with listening(peer) as url:
        await ask(transport, url, body=body)
        await transport.close()
    assert peer.requests[0].endswith(b"\r\n\r\n" + body)


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\rb", "a\0b"])
async def test_a_header_cant_hold_another(value: str) -> None:
    transport = HttpClient(CONFIG.timeouts)
    async with listening(Peer(WHOLE)) as url:
        with pytest.raises(UsageError, match="line break"):
            await ask(transport, url, **{"X-Key": value})
        await transport.close()


@pytest.mark.parametrize(
    ("url", "peer", "host", "path"),
    [
        ("http://127.0.0.1:8080/v1/x", ("127.0.0.1", 8080, False), "127.0.0.1:8080", "/v1/x"),
        ("https://api.example.com/v1", ("api.example.com", 443, True), "api.example.com", "/v1"),
        ("http://[::1]:9", ("::1", 9, False), "[::1]:9", "/"),
        ("https://bücher.example/v1", ("xn--bcher-kva.example", 443, True),
         "xn--bcher-kva.example", "/v1"),
    ],
)  # fmt: skip
def test_an_address_is_taken_apart(
    url: str, peer: tuple[str, int, bool], host: str, path: str
) -> None:
    found = place(url)
    assert (found.peer, found.host, found.path) == ((*peer, None), host, path)
    assert head("POST", path, host, {}, 2).startswith(
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\n".encode()
    )


async def test_a_connection_nobody_takes_is_given_up_in_time_and_cost_nothing() -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=0)
    port = listener.getsockname()[1]
    full = [socket.socket() for _ in range(3)]  # the kernel takes no more than these
    for each in full:
        each.setblocking(False)
        each.connect_ex(("127.0.0.1", port))
    transport = HttpClient(Timeouts(connect=0.3))
    meter = Meter()
    with pytest.raises(TimeoutError):
        await transport.request("POST", f"http://127.0.0.1:{port}/v1", {}, b"{}", meter)
    assert not meter.sent
    gateway = make_gateway(
        providers=fake_providers(f"http://127.0.0.1:{port}/v1", "chat", free=True),
        timeouts={"connect": 0.3}, retries={"attempts": 1},
    )  # fmt: skip
    with pytest.raises(ProviderTimeout, match=r"took no connection within 0\.3 s") as caught:
        await generate_text("fake-chat/m", prompt="hi", gateway=gateway)
    assert not caught.value.bought
    await gateway.close()
    await transport.close()
    for each in (listener, *full):
        each.close()


# --- TLS ----------------------------------------------------------------------------------------


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for 127.0.0.1 that nobody signed but itself, with its key."""
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name)
        .public_key(key.public_key()).serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    path = tmp_path / "test.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return path


@pytest.mark.parametrize("trusted", [True, False])
async def test_only_a_trusted_certificate_gets_the_request(
    certificate: Path, trusted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    http_client._trust.cache_clear()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    transport, peer = HttpClient(CONFIG.timeouts), Peer(WHOLE, WHOLE)
    async with listening(peer, context) as url:
        if trusted:
            for _ in range(2):
                assert (await ask(transport, url))[2] == b"hello"
            assert peer.connections == 1
        else:
            with pytest.raises(ProviderUnavailable, match="self-signed") as caught:
                await ask(transport, url)
            assert not caught.value.bought and not peer.requests
        await transport.close()
    http_client._trust.cache_clear()


# --- a proxy ------------------------------------------------------------------------------------


@pytest.mark.parametrize("trust", [True, False])
async def test_the_environments_proxy_is_used_if_asked_for(
    trust: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = {"model": "m", "choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}
    body = json.dumps(reply).encode()
    start = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    proxy = Peer(start.encode() + b"\r\n\r\n" + body)
    async with listening(proxy) as url:
        monkeypatch.setenv("http_proxy", url.removesuffix("/v1"))
        monkeypatch.delenv("no_proxy", raising=False)
        config = fake_providers("http://provider.invalid/v1", "chat")
        gateway = make_gateway(providers=config, trust_env=trust, retries={"attempts": 1})
        if trust:
            assert (await generate_text("fake-chat/m", prompt="hi", gateway=gateway)).text == "hi"
            assert proxy.requests[0].startswith(b"POST http://provider.invalid/v1/chat/")
        else:
            with pytest.raises(ProviderError, match="out of reach"):
                await generate_text("fake-chat/m", prompt="hi", gateway=gateway)
            assert not proxy.requests
        await gateway.close()


class Tunnels:
    """A proxy that makes tunnels, or gives its one answer instead."""

    def __init__(self, answer: bytes | None = None) -> None:
        self._answer = answer
        self.asked: list[bytes] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            first = await reader.readuntil(b"\r\n\r\n")
            self.asked.append(first)
            if self._answer is not None:
                writer.write(self._answer)
                await writer.drain()
                return
            host, _, port = first.split()[1].decode().rpartition(":")
            inner, outer = await asyncio.open_connection(host, int(port))
            writer.write(b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n")
            await asyncio.gather(_pass_on(reader, outer), _pass_on(inner, writer))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


@pytest.mark.parametrize("by_tls", [False, True], ids=["http proxy", "https proxy"])
async def test_a_tunnel_through_the_proxy_is_used_for_https_and_kept(
    by_tls: bool, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.delenv("no_proxy", raising=False)
    http_client._trust.cache_clear()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    provider, proxy = Peer(WHOLE, WHOLE), Tunnels()
    async with (
        listening(provider, context) as url,
        listening(proxy, context if by_tls else None) as way,
    ):
        monkeypatch.setenv("https_proxy", way.removesuffix("/v1").replace("//", "//me:p%40ss@"))
        client = HttpClient(CONFIG.timeouts, trust_env=True)
        for _ in range(2):
            assert (await ask(client, url))[2] == b"hello"
        await client.close()
    http_client._trust.cache_clear()
    port = url.removesuffix("/v1").rpartition(":")[2]
    [asked] = proxy.asked
    assert asked.startswith(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n".encode())
    assert b"Proxy-Authorization: Basic bWU6cEBzcw==\r\n" in asked
    assert b"Proxy-Authorization" not in provider.requests[0]
    assert provider.requests[0].startswith(b"POST /v1 HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "refused the connection: 407"),
        (b"HTTP/1.1 200 OK\r\n\r\nsurprise", "sent data without a request"),
        (b"SSH-2.0-none\r\n\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\nA: " + b"x" * 70000, "answered without end"),
        (b"", "hung up"),
    ],
    ids=["refused", "too much", "no HTTP", "endless", "gone"],
)
async def test_a_proxy_that_makes_no_tunnel_is_named_and_nothing_is_bought(
    answer: bytes, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    async with listening(Tunnels(answer)) as way:
        monkeypatch.setenv("https_proxy", way.removesuffix("/v1"))
        client = HttpClient(CONFIG.timeouts, trust_env=True)
        with pytest.raises(ProviderUnavailable, match=words) as caught:
            await ask(client, "https://provider.invalid/v1")
        assert not caught.value.bought
        await client.close()


async def test_a_proxy_is_not_used_for_what_no_proxy_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    client = HttpClient(CONFIG.timeouts, trust_env=True)
    async with listening(Peer(WHOLE)) as url:
        assert (await ask(client, url))[2] == b"hello"
        await client.close()


async def test_a_plain_proxy_is_told_who_we_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    client, proxy = HttpClient(CONFIG.timeouts, trust_env=True), Peer(WHOLE)
    async with listening(proxy) as way:
        monkeypatch.setenv("http_proxy", way.removesuffix("/v1").replace("//", "//me:secret@"))
        assert (await ask(client, "http://provider.invalid/v1/x?y=z"))[2] == b"hello"
        await client.close()
    assert proxy.requests[0].startswith(b"POST http://provider.invalid/v1/x?y=z HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic bWU6c2VjcmV0\r\n" in proxy.requests[0]


async def test_a_proxy_of_another_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("https_proxy", "socks5://127.0.0.1:1080")
    with pytest.raises(ConfigError, match="no http or https proxy"):
        await ask(HttpClient(CONFIG.timeouts, trust_env=True), "https://provider.invalid/v1")
