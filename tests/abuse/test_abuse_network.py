"""Attempts to reach what is not on the list, to be taken for someone else, and to get the key."""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
import socket
import ssl
import struct
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.sandbox import AllowedHost, Network
from holdfast.sandbox.egress import dns, protocol_detection, proxy
from holdfast.sandbox.egress.authority import Authority
from holdfast.sandbox.inside.packets import parse
from holdfast.sandbox.inside.relay import leaves
from sandbox.support import Answering, create, observed, serving, shared_host, until

ASK = """
import socket, struct, sys
labels = eval(sys.argv[1])
packet = struct.pack('!HHHHHH', 7, 0x100, 1, 0, 0, 0)
packet += b''.join(bytes([len(l)]) + l for l in labels) + b'\\0' + struct.pack('!HH', 1, 1)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(3)
s.sendto(packet, ('127.0.0.1', 53))
answer = s.recv(512)
print(answer[3] & 15, struct.unpack_from('!H', answer, 6)[0])
"""

NAMES = {
    "another name": [b"evil", b"com"],
    "a zero in a label": [b"evil.com\0", b"allowed", b"test"],
    "a dot in a label": [b"evil.com", b"allowed", b"test"],
    "all in one label": [b"allowed.test"],
    "a longer name": [b"allowed", b"test", b"evil", b"com"],
    "a name with the same end": [b"notallowed", b"test"],
    "a space in a label": [b"allowed ", b"test"],
    "a name below": [b"sub", b"allowed", b"test"],
    "a wildcard's own name": [b"wild", b"test"],
    "another name with a wildcard's end": [b"notwild", b"test"],
    "a high byte": [b"\xffallowed", b"test"],
    "nothing at all": [],
}


async def test_only_names_on_the_list_are_answered(backend: str) -> None:
    network = ["allowed.test", "*.wild.test"]
    with observed(shared_host()) as observer:
        async with await create(backend, network=network) as sandbox:
            for good in (
                [b"allowed", b"test"],
                [b"ALLOWED", b"Test"],
                [b"a", b"b", b"wild", b"test"],
            ):
                said = await sandbox.run("python", "-c", ASK, repr(good))
                assert said.stdout == "0 1\n", (good, said)
            for kind, labels in NAMES.items():
                said = await sandbox.run("python", "-c", ASK, repr(labels))
                assert said.stdout == "5 0\n", (kind, said)
    assert len([a for a in observer.attempts if not a.allowed]) >= len(NAMES) - 1


@pytest.mark.parametrize(
    "garbage", [b"", b"\0", b"\xff" * 40, b"\0" * 600, bytes(12) + b"\xc0\x0c", b"\0\1" * 200]
)
async def test_garbage_to_the_name_server_changes_nothing(garbage: bytes) -> None:
    send = f"import socket\ns = socket.socket(2, 2)\nfor _ in range(50): s.sendto({garbage!r}, ('127.0.0.1', 53))"
    async with await create(network=["allowed.test"]) as sandbox:
        await sandbox.run("python", "-c", send)
        said = await sandbox.run("python", "-c", ASK, repr([b"allowed", b"test"]))
    assert said.stdout == "0 1\n"


@pytest.mark.parametrize(
    "where",
    [
        "169.254.169.254",
        "10.0.0.1",
        "127.0.0.1",
        "192.168.1.1",
        "1.1.1.1",
        "100.100.100.200",
        "[::1]",
        "[::ffff:169.254.169.254]",
        "[fd00:ec2::254]",
        "0x7f000001",
        "2130706433",
        "017700000001",
    ],
)
async def test_an_address_not_on_the_list_is_not_connected(where: str, backend: str) -> None:
    with serving() as port:
        async with await create(
            backend, network=[AllowedHost("a.test", to=f"127.0.0.1:{port}")]
        ) as box:
            result = await box.shell(f"curl -sS -g -m 4 http://{where}/latest/meta-data/")
            allowed = await box.shell("curl -sS -m 4 http://a.test/")
    assert result.exit_code != 0 and result.stdout == ""
    assert allowed.ok, "void: nothing gets out at all"


@pytest.mark.parametrize("port", [22, 25, 53, 3306, 5432, 6379, 8080])
async def test_another_port_than_the_allowed_is_not_connected(port: int) -> None:
    with serving() as open_port, observed(shared_host()) as observer:
        rule = AllowedHost("a.test", ports=(80,), to=f"127.0.0.1:{open_port}")
        async with await create(network=[rule]) as sandbox:
            result = await sandbox.shell(f"curl -sS -m 4 http://a.test:{port}/")
            assert (await sandbox.shell("curl -sS http://a.test:80/")).ok
    assert result.exit_code != 0
    told = [(a.host, a.port, a.allowed) for a in observer.attempts]
    assert told == [("a.test", port, False), ("a.test", 80, True)]


CONNECT = """
import socket, sys
for where in sys.argv[1:]:
    kind, address, port = where.split(",")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, getattr(socket, kind)) as s:
        s.settimeout(60)  # a refusal comes at once, or the test's own limit does
        try:
            s.connect((address, int(port))); s.send(b"x"); s.send(b"x"); print(where)
        except OSError: pass
"""


@pytest.mark.parametrize("network", [["allowed.test"], []], ids=["a-list", "no-network"])
async def test_attempts_by_address_on_any_port_are_on_record(
    backend: str, network: list[str]
) -> None:
    """The sandbox's own kernel refuses them; they are seen all the same."""
    where = [
        "SOCK_STREAM,10.0.0.1,22",
        "SOCK_STREAM,169.254.169.254,8080",
        "SOCK_STREAM,1.1.1.1,65535",
        "SOCK_STREAM,192.168.7.7,443",
        "SOCK_DGRAM,8.8.8.8,53",
        "SOCK_STREAM,2606:4700::1111,443",
        "SOCK_STREAM,fd00:ec2::254,80",
        "SOCK_STREAM,::ffff:10.9.9.9,22",
        "SOCK_DGRAM,2001:4860:4860::8888,53",
    ]
    with observed(shared_host()) as observer:
        async with await create(backend, network=network) as sandbox:
            result = await sandbox.run("python", "-c", CONNECT, *where)
            met = [line for line in result.stdout.splitlines() if "STREAM" in line]
            assert result.ok and met in ([], ["SOCK_STREAM,192.168.7.7,443"]), "by our listener"
            await until(lambda: len(observer.attempts) >= len(where))
    told = {(a.host, a.port): a for a in observer.attempts}
    assert sorted(told) == [
        ("1.1.1.1", 65535),
        ("10.0.0.1", 22),
        ("10.9.9.9", 22),
        ("169.254.169.254", 8080),
        ("192.168.7.7", 443),
        ("2001:4860:4860::8888", 53),
        ("2606:4700::1111", 443),
        ("8.8.8.8", 53),
        ("fd00:ec2::254", 80),
    ]
    assert not any(attempt.allowed for attempt in told.values())
    places = [("10.0.0.1", 22), ("8.8.8.8", 53), ("2606:4700::1111", 443)]
    reasons = [told[place].reason for place in places]
    if network:
        known = ["no rule has this port", "UDP is not let out", "IPv6 is not let out"]
        assert reasons == known
    else:
        assert reasons == ["the sandbox has no network"] * 3
    assert len(observer.attempts) == len(where), "each attempt is told once"


async def test_names_asked_for_in_vain_are_on_record(backend: str) -> None:
    """Without a network nobody answers; what was asked for is seen all the same."""
    asking = "curl -sS -m 9 http://evil.example/x; curl -sS -m 9 https://other.example/"
    with observed(shared_host()) as observer:
        async with await create(backend) as sandbox:
            result = await sandbox.shell(asking, timeout=30)
            assert result.exit_code == 6, "the name could not be resolved, and at once"
            await until(lambda: len(observer.attempts) >= 2)
    told = [(a.host, a.port, a.allowed, a.reason) for a in observer.attempts]
    why = "the sandbox has no network"
    assert told == [("evil.example", None, False, why), ("other.example", None, False, why)]


async def test_a_port_no_rule_has_is_on_record_by_its_name(backend: str) -> None:
    with observed(shared_host()) as observer:
        async with await create(backend, network=["a.test:443"]) as sandbox:
            await sandbox.shell("curl -sS -m 4 http://a.test:9999/")
            await until(lambda: observer.attempts)
    (attempt,) = observer.attempts
    assert (attempt.host, attempt.port, attempt.allowed) == ("a.test", 9999, False)


@pytest.mark.parametrize("network", [["allowed.test"], []], ids=["a-list", "no-network"])
async def test_what_a_sandbox_says_to_itself_is_no_attempt_to_leave(
    backend: str, network: list[str]
) -> None:
    serve = "python -u -m http.server --bind {0} 8000 >log{1} 2>&1 & "
    wait = "until grep -q Serving log{1}; do sleep 0.02; done; curl -gsS http://{2}:8000/log{1}; "
    itself = [("127.0.0.1", 4, "127.0.0.1"), ("::1", 6, "[::1]")]
    told = "".join((serve + wait).format(*names) for names in itself)
    with observed(shared_host()) as observer:
        async with await create(backend, network=network) as sandbox:
            result = await sandbox.shell(told)
            assert result.stdout.count("Serving") == 2
            await sandbox.run("python", "-c", CONNECT, "SOCK_STREAM,10.9.8.7,99")
            await until(lambda: observer.attempts)
    assert [a.host for a in observer.attempts] == ["10.9.8.7"]


async def test_what_sees_the_attempts_is_not_for_the_code_inside(backend: str) -> None:
    code = (
        "import os, socket\n"
        "for family, kind in ((2, 3), (17, 3)):\n"
        "    for protocol in (6, 17):\n"
        "        try: socket.socket(family, kind, protocol); print('raw')\n"
        "        except OSError: pass\n"
        "print(sorted(os.listdir('/proc/self/fd'))[:3])\n"
        "for fd in os.listdir('/proc/self/fd'):\n"
        "    try: print(os.readlink('/proc/self/fd/' + fd))\n"
        "    except OSError: pass\n"
    )
    async with await create(backend) as sandbox:
        for program in (["python", "-c", code], ["python", "-S", "-c", code]):  # forked, and not
            told = (await sandbox.run(*program)).stdout
            assert "raw" not in told and "socket" not in told, told
            assert "['0', '1', '2']" in told


@given(st.binary(max_size=80))
def test_a_packet_of_any_bytes_is_read_or_passed_over(data: bytes) -> None:
    packet = parse(data)
    if packet is None:
        return
    assert 0 <= packet.port < 65536 and len(data) >= 20
    assert ipaddress.ip_address(packet.address).packed == packet.target
    assert leaves(packet) in (True, False)


def _packet(protocol: int, address: str, port: int, flags: int = 0x02) -> bytes:
    to = ipaddress.ip_address(address)
    if to.version == 4:
        head = bytes([0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1])
    else:
        head = bytes([0x60, 0, 0, 0, 0, 20, protocol, 64, *bytes(15), 1])
    segment = struct.pack("!HHIIBBHHH", 5000, port, 0, 0, 0x50, flags, 0, 0, 0)
    return head + to.packed + segment


@pytest.mark.parametrize(
    ("packet", "left"),
    [
        (_packet(6, "10.0.0.1", 22), True),
        (_packet(6, "10.0.0.1", 22, flags=0x12), False),  # an answer
        (_packet(6, "10.0.0.1", 22, flags=0x18), False),  # data
        (_packet(6, "127.64.0.1", 22), True),  # an address that stands for a name
        (_packet(6, "127.0.0.1", 22), False),
        (_packet(6, "127.128.0.1", 22), False),
        (_packet(17, "10.0.0.1", 9), True),
        (_packet(17, "127.0.0.1", 53), True),  # a question
        (_packet(17, "127.0.0.1", 54), False),
        (_packet(1, "10.0.0.1", 0), False),
        (_packet(6, "10.0.0.1", 22)[:30], False),
        (_packet(6, "2001:db8::1", 443), True),
        (_packet(6, "2001:db8::1", 443, flags=0x10), False),
        (_packet(6, "::1", 443), False),
        (_packet(17, "fe80::1", 9), True),
        (_packet(17, "::1", 9), False),
        (_packet(58, "2001:db8::1", 0), False),
        (_packet(6, "2001:db8::1", 443)[:43], False),
    ],
)
def test_what_leaves_is_told_from_what_stays(packet: bytes, left: bool) -> None:
    found = parse(packet)
    assert (found is not None and leaves(found)) is left


def test_a_packet_with_options_is_read_where_they_end() -> None:
    header = bytes([0x46, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2])
    packet = parse(header + bytes(4) + b"\x12\x34\x00\x16")
    assert packet is not None
    assert (packet.protocol, packet.address, packet.port) == (6, "10.0.0.2", 22)


async def test_there_is_no_way_by_udp_to_another_name_server() -> None:
    question = repr([b"evil", b"com"])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        asking = ASK.replace("'127.0.0.1', 53", f"'127.0.0.1', {port}")
        outside = subprocess.Popen([sys.executable, "-c", asking, question], stdout=-1, text=True)
        asked, sender = await asyncio.to_thread(server.recvfrom, 512)
        server.sendto(asked[:3] + b"\x05" + asked[4:], sender)
        told, _ = await asyncio.to_thread(outside.communicate)
        assert told == "5 0\n", "void: it does not even work outside"
        server.settimeout(0.2)
        for address in (f"'127.0.0.1', {port}", "'8.8.8.8', 53", "'10.0.0.1', 53"):
            code = ASK.replace("'127.0.0.1', 53", address)
            async with await create(network=["allowed.test"]) as sandbox:
                result = await sandbox.run("python", "-c", code, question)
            assert result.exit_code != 0
        with pytest.raises(TimeoutError):
            server.recv(512)


LEADS = {
    "private": ["10.1.2.3"],
    "loopback": ["127.0.0.1"],
    "link-local": ["169.254.169.254"],
    "mapped IPv6": ["::ffff:10.0.0.1"],
    "translated IPv6": ["64:ff9b::a00:1"],
    "6to4": ["2002:a00:1::"],
    "unique local IPv6": ["fd00::1"],
    "IPv6 loopback": ["::1"],
    "this network": ["0.0.0.0"],
    "carrier NAT": ["100.64.0.1"],
    "one public one private": ["93.184.216.34", "10.0.0.1"],
    "multicast": ["224.0.0.1"],
    "broadcast": ["255.255.255.255"],
    "site-local IPv6": ["fec0::1"],
    "IPv4-translated IPv6": ["::ffff:0:10.0.0.1"],
    "locally translated IPv6": ["64:ff9b:1::a00:1"],
    "nothing": [],
}


@pytest.mark.parametrize("kind", LEADS, ids=lambda name: name.replace(" ", "-"))
async def test_a_name_that_leads_to_a_private_address_is_refused(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def resolve(name: str, port: int) -> list[str]:
        return LEADS[kind]

    monkeypatch.setattr(dns, "resolve", resolve)
    with observed(shared_host()) as observer:
        async with await create(network=["rebound.test"]) as sandbox:
            result = await sandbox.shell("curl -sS -m 5 http://rebound.test/")
    assert result.exit_code != 0
    assert [a.reason for a in observer.attempts if "not a public address" in a.reason]


async def test_a_name_is_resolved_once_and_that_address_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    async def resolve(name: str, port: int) -> list[str]:
        asked.append(name)
        return ["127.0.0.1"] if len(asked) == 1 else ["169.254.169.254"]

    monkeypatch.setattr(dns, "resolve", resolve)
    with serving() as port, observed(shared_host()) as observer:
        rule = AllowedHost("pinned.test", ports=(port,), private=True)
        async with await create(network=[rule]) as sandbox:
            result = await sandbox.shell(f"curl -sS http://pinned.test:{port}/")
    assert result.ok and asked == ["pinned.test"]
    assert [a.address for a in observer.attempts] == ["127.0.0.1"]


class Redirecting(Answering):
    def do_GET(self) -> None:
        self.send_response(302)
        self.send_header("location", "http://elsewhere.test/stolen")
        self.send_header("content-length", "0")
        self.end_headers()


async def test_a_redirect_to_another_host_is_not_followed(backend: str) -> None:
    with serving(Redirecting) as port, observed(shared_host()) as observer:
        rule = AllowedHost("a.test", to=f"127.0.0.1:{port}")
        async with await create(backend, network=[rule]) as sandbox:
            result = await sandbox.shell("curl -sS -L -m 5 http://a.test/")
        with serving() as other:
            both = [rule, AllowedHost("elsewhere.test", to=f"127.0.0.1:{other}")]
            async with await create(backend, network=both) as sandbox:
                followed = await sandbox.shell("curl -sS -L -m 5 http://a.test/")
    assert "GET /stolen" in followed.stdout, "void: nobody follows it"
    assert result.exit_code == 6
    assert ("elsewhere.test", False) in [(a.host, a.allowed) for a in observer.attempts]


RAW = {
    "another host": b"GET / HTTP/1.1\r\nHost: other.test\r\n\r\n",
    "another host after an empty line": b"\r\nGET / HTTP/1.1\r\nHost: other.test\r\n\r\n",
    "an unknown method for another host": b"FETCH / HTTP/1.1\r\nHost: other.test\r\n\r\n",
    "the next version of the protocol": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: a.test\r\nHost: other.test\r\n\r\n",
    "another host in the target": b"GET http://other.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
    "a tunnel": b"CONNECT other.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n",
    "a trace, to see the headers": b"TRACE / HTTP/1.1\r\nHost: a.test\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "a length and chunks": b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "strange chunks": b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a folded header": b"GET / HTTP/1.1\r\nHost: a.test\r\nX: a\r\n b\r\n\r\n",
    "a space before the colon": b"GET / HTTP/1.1\r\nHost : a.test\r\nHost: a.test\r\n\r\n",
    "a bare line feed": b"GET / HTTP/1.1\nHost: a.test\n\n" + b"x" * 20 + b"\r\n\r\n",
    "a zero in a header": b"GET / HTTP/1.1\r\nHost: a.test\r\nX: \0\r\n\r\n",
    "chunks in a version without": b"POST / HTTP/1.0\r\nHost: a.test\r\nConnection: keep-alive\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a tab after the method": b"GET\t/ HTTP/1.1\r\nHost: other.test\r\n\r\n",
    "a header of the PROXY protocol": b"PROXY TCP4 1.2.3.4 5.6.7.8 1 80\r\n"
    b"GET / HTTP/1.1\r\nHost: other.test\r\n\r\n",
    "another port": b"GET / HTTP/1.1\r\nHost: a.test:81\r\n\r\n",
    "an endless head": b"GET / HTTP/1.1\r\nHost: a.test\r\n" + b"X: y\r\n" * 20_000,
    # Last: its first half is allowed, and may arrive after the client has gone.
    "a second request for another host": b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"
    b"GET /stolen HTTP/1.1\r\nHost: other.test\r\n\r\n",
}
SEND = """
import socket, sys
s = socket.create_connection(('a.test', 80)); s.settimeout(5)
data = sys.stdin.buffer.read()
try:
    s.sendall(data); s.shutdown(1)
    while piece := s.recv(65536): sys.stdout.buffer.write(piece)
except OSError: pass
"""


class Recording(Answering):
    seen: ClassVar[list[tuple[str, str, dict[str, str]]]] = []

    def do_GET(self) -> None:
        self.seen.append((self.command, self.path, dict(self.headers)))
        super().do_GET()

    do_TRACE = do_CONNECT = do_GET


@pytest.mark.parametrize("headers", [{}, {"authorization": "key"}], ids=["plain", "with-a-key"])
async def test_requests_that_try_to_be_others_do_not_arrive(headers: dict[str, str]) -> None:
    with serving(Recording) as port:
        rule = AllowedHost("a.test", to=f"127.0.0.1:{port}", headers=headers)
        async with await create(network=[rule]) as sandbox:
            for kind, request in RAW.items():
                Recording.seen.clear()
                await sandbox.run("python", "-c", SEND, stdin=request)
                arrived = [s for s in Recording.seen if s[1] != "/" or s[0] != "GET"]
                strays = [s for s in Recording.seen if s[2].get("host") != "a.test"]
                expected = 1 if kind == "a second request for another host" else 0
                assert len(Recording.seen) <= expected and not arrived and not strays, kind
            good = b"GET /good HTTP/1.1\r\nHost: a.test\r\n\r\n"
            said = await sandbox.run("python", "-c", SEND, stdin=good)
    assert b"GET /good" in said.stdout_bytes, "void: nothing arrives at all"


HOST = b" / HTTP/1.1\r\nHost: other.test\r\nConnection: close\r\n\r\n"
LATE = {
    "GET": b"GET" + HOST,
    "a method of an extension": b"SEARCH" + HOST,
    "a method of one's own": b"x-7" + HOST,
    "a small letter": b"get" + HOST,
    "a tab": b"GET\t/\tHTTP/1.1\r\nHost: other.test\r\n\r\n",
    "a separator only some split at": b"GET\x0b/\x0bHTTP/1.1\r\nHost: other.test\r\n\r\n",
    "no version": b"GET /\r\nHost: other.test\r\n\r\n",
    "empty lines first": b"\r\n \r\nGET" + HOST,
    "the next version": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "the PROXY protocol": b"PROXY TCP4 1.2.3.4 5.6.7.8 1 80\r\nGET" + HOST,
    "a change of protocol": b"GET / HTTP/1.1\r\nHost: other.test\r\nUpgrade: h2c\r\n\r\n",
}
SPEAK_LATE = """
import socket, sys, time
port, silence, piece = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
data = sys.stdin.buffer.read()
s = socket.create_connection(('a.test', port)); s.settimeout(20); time.sleep(silence)
try:
    for at in range(0, len(data), piece):
        s.sendall(data[at:at + piece])
        if piece < len(data): time.sleep(0.01)
    while got := s.recv(65536): sys.stdout.buffer.write(got)
except OSError: pass
"""


class Everything(Recording):
    """Also answers methods nobody knows."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("do_"):
            return self.do_GET
        raise AttributeError(name)


async def test_the_check_of_the_name_can_not_be_waited_out(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy, "_CLIENT_FIRST", 0.01)
    with serving(Everything) as port, observed(shared_host()) as observer:
        rule = AllowedHost("a.test", ports=(80, 8080), to=f"127.0.0.1:{port}")
        async with await create(backend, network=[rule]) as sandbox:
            Everything.seen.clear()
            for kind, request in LATE.items():
                for where, silence, piece in (("8080", "0.3", "9999"), ("8080", "0", "3")):
                    words = ("python", "-c", SPEAK_LATE, where, silence, piece)
                    said = await sandbox.run(*words, stdin=request)
                    assert not said.stdout_bytes and not Everything.seen, (kind, where)
            right = LATE["a method of an extension"].replace(b"other", b"a")
            for where, silence in (("8080", "0.3"), ("8080", "0"), ("80", "0.3")):
                words = ("python", "-c", SPEAK_LATE, where, silence, "9999")
                said = await sandbox.run(*words, stdin=right)
                assert b"SEARCH /" in said.stdout_bytes, "void: nothing gets through at all"
    assert not [a for a in observer.attempts if a.allowed and a.sent == 0]
    assert len([a for a in observer.attempts if not a.allowed]) == 2 * len(LATE)


async def test_a_server_name_can_not_be_waited_out(
    upstream, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy, "_CLIENT_FIRST", 0.01)
    port, _ = upstream
    rule = AllowedHost("secure.test", ports=(443, 8443), to=f"127.0.0.1:{port}")
    code = (
        "import socket, ssl, sys, time\n"
        "s = socket.create_connection(('secure.test', int(sys.argv[1]))); time.sleep(0.3)\n"
        "c = ssl.create_default_context(); c.check_hostname = False; c.verify_mode = 0\n"
        "t = c.wrap_socket(s, server_hostname=sys.argv[2]); print(t.version())\n"
    )
    async with await create(backend, network=[rule]) as sandbox:
        for where in ("443", "8443"):
            other = await sandbox.run("python", "-c", code, where, "evil.test")
            right = await sandbox.run("python", "-c", code, where, "secure.test")
            assert "TLSv1" in right.stdout, "void: the right name does not get through"
            assert other.exit_code != 0 and other.stdout == ""


async def test_who_says_nothing_where_clients_speak_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(proxy, "_SILENCE", 0.1)
    wait = "import socket, sys\nprint(socket.create_connection(('a.test', 443)).recv(1))"
    with serving() as port, observed(shared_host()) as observer:
        async with await create(network=[AllowedHost("a.test", to=f"127.0.0.1:{port}")]) as box:
            said = await box.run("python", "-c", wait)
    assert said.stdout in ("b''\n", "") and not observer.attempts[-1].allowed
    assert "not a word" in observer.attempts[-1].reason


async def test_a_server_that_speaks_first_is_heard_and_answered(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mail, databases and the like, on ports of their own."""
    monkeypatch.setattr(proxy, "_CLIENT_FIRST", 0.01)

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 hello\r\n")
        while line := await reader.readline():
            writer.write(b"250 " + line)
        writer.close()

    code = (
        "import socket\n"
        "s = socket.create_connection(('a.test', 2525)); f = s.makefile('rwb', 0)\n"
        "print(f.readline()); f.write(b'EHLO me\\r\\n'); print(f.readline())\n"
        "f.write(b'GET / HTTP/1.1\\r\\n'); print(f.readline())\n"
    )
    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        rule = AllowedHost("a.test", ports=(2525,), to=f"127.0.0.1:{port}")
        async with await create(backend, network=[rule]) as sandbox:
            said = await sandbox.run("python", "-c", code)
    heard = [b"220 hello\r\n", b"250 EHLO me\r\n", b"250 GET / HTTP/1.1\r\n"]
    assert said.stdout.splitlines() == [repr(line) for line in heard], said


@pytest.mark.parametrize(
    ("data", "opening"),
    [
        (b"\x16\x03\x01\x02\x00", "TLS"),
        (b"\x16", None),
        (b"\x16\x00\x00\x01login", "another protocol"),
        (b"G", None),
        (b"GET", None),
        (b"GET ", "HTTP"),
        (b"GET /", "HTTP"),
        (b"SEARCH / ", None),
        (b"SEARCH / HTTP/1.1\r\n", "HTTP"),
        (b"\r\n", None),
        (b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", "another protocol"),
        (b"EHLO me\r\n", "another protocol"),
        (b'CONNECT {"verbose":false}\r\n', "another protocol"),  # NATS
        (b"CONNECT\naccept-version:1.2\n\n\0", "another protocol"),  # STOMP
        (b"CONNECT evil.test:443 HTTP/1.1\r\n", "HTTP"),
        (b"*1\r\n$4\r\nPING\r\n", "another protocol"),  # Redis
        (b"AMQP\0\0\x09\x01", "another protocol"),
        (b"\0\0\0\x08\x04\xd2\x16\x2f", "another protocol"),  # PostgreSQL
        (b" \0\0\x01\x85\xa6", "another protocol"),  # MySQL
        (b"0032git-upload-pack /a.git\0host=a\0", "another protocol"),
        (b"0\x0c\x02\x01\x01`\x07\x02\x01\x03\x04\0\x80\0", "another protocol"),  # LDAP
        (b"\x10\x0c\0\x04MQTT", "another protocol"),
        (b"\r\n\r\n\0\r\nQUIT\n!", "the PROXY protocol"),
    ],
)
def test_what_a_client_speaks_is_told_from_how_it_begins(data: bytes, opening: str | None) -> None:
    assert protocol_detection.tell(data) == opening


@given(st.binary(min_size=1, max_size=30), st.sampled_from(sorted(LATE)))
def test_no_request_is_another_protocol_however_it_is_cut(before: bytes, kind: str) -> None:
    """Whatever part of a request has come: it is never passed on unread."""
    request = LATE[kind]
    for end in range(1, len(request) + 1):
        assert protocol_detection.tell(request[:end]) is not protocol_detection.Opening.OTHER
    if before.strip(b" \t\r\n") == b"":
        assert protocol_detection.tell(before + request) is not protocol_detection.Opening.OTHER


async def test_a_flood_of_allowed_connections_does_not_fill_the_record(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy, "_MOST_ALLOWED", 3)
    asks = "for i in 1 2 3 4 5 6 7; do curl -sS http://a.test/ -o /dev/null; done"
    with serving() as port, observed(shared_host()) as observer:
        rule = AllowedHost("a.test", to=f"127.0.0.1:{port}")
        async with await create(backend, network=[rule]) as sandbox:
            assert (await sandbox.shell(asks)).ok
    assert [a.allowed for a in observer.attempts] == [True] * 4
    last = observer.attempts[-1]
    assert "4 further connections" in last.reason
    assert last.sent == 4 * observer.attempts[0].sent and last.host == "a.test"


async def test_a_header_of_ones_own_is_replaced_not_added() -> None:
    with serving() as port:
        rule = AllowedHost("a.test", to=f"127.0.0.1:{port}", headers={"Authorization": "real"})
        async with await create(network=[rule]) as sandbox:
            said = await sandbox.shell(
                "curl -sS -H 'authorization: fake' -H 'X-Y: z' http://a.test/"
            )
    lines = said.stdout.splitlines()
    assert "authorization: real" in lines and "x-y: z" in lines
    assert "fake" not in said.stdout


async def test_the_key_is_nowhere_in_the_sandbox(backend: str) -> None:
    key = secrets.token_hex(16)
    search = f"grep -rs {key[:10]}'{key[10:]}' /proc/*/environ /proc/*/cmdline /etc /home /workspace /tmp /run /opt/holdfast/bin; env"
    with serving() as port:
        rule = AllowedHost("a.test", to=f"127.0.0.1:{port}", headers={"x-key": key})
        async with await create(backend, network=[rule]) as sandbox:
            arrived = await sandbox.shell("curl -sS http://a.test/")
            found = await sandbox.shell(search)
    assert key in arrived.stdout, "void: the key is not even added"
    assert key not in found.stdout.replace(f"{key[:10]}'{key[10:]}'", "")


async def test_a_key_is_not_sent_in_the_clear_to_a_public_host() -> None:
    rule = AllowedHost("public.test", headers={"x-key": "secret"})
    with observed(shared_host()) as observer:
        async with await create(network=[rule]) as sandbox:
            result = await sandbox.shell("curl -sS -m 5 http://public.test/")
    assert result.exit_code != 0
    assert "encrypted" in observer.attempts[-1].reason


@pytest.fixture
def upstream(tmp_path: Path):
    """An HTTPS server with a certificate of its own authority."""
    authority = Authority()
    bundle = tmp_path / "ca.pem"
    bundle.write_text(authority.certificate)
    with serving(context=authority.context("secure.test")) as port:
        yield port, str(bundle)


async def test_tls_under_another_server_name_is_refused(upstream, backend: str) -> None:
    port, _ = upstream
    rule = AllowedHost("secure.test", to=f"127.0.0.1:{port}")
    ask = "curl -sSk -m 5 --connect-to {name}:443:secure.test:443 https://{name}/"
    with observed(shared_host()) as observer:
        async with await create(backend, network=[rule]) as sandbox:
            other = await sandbox.shell(ask.format(name="evil.test"))
            right = await sandbox.shell(ask.format(name="secure.test"))
    assert right.ok, "void: the right name does not get through"
    assert other.exit_code != 0 and other.stdout == ""
    assert [a for a in observer.attempts if "TLS for 'evil.test'" in a.reason]


async def test_a_host_that_is_not_who_it_says_gets_no_key(upstream, tmp_path: Path) -> None:
    port, bundle = upstream
    stranger = tmp_path / "other.pem"
    stranger.write_text(Authority().certificate)
    for ca, arrives in ((bundle, True), (str(stranger), False), (None, False)):
        rule = AllowedHost("secure.test", to=f"127.0.0.1:{port}", headers={"x-key": "k"}, ca=ca)
        async with await create(network=[rule]) as sandbox:
            result = await sandbox.shell("curl -sS -m 8 https://secure.test/")
        assert ("x-key: k" in result.stdout) is arrives


async def test_only_http_goes_to_a_host_with_a_key(upstream) -> None:
    port, bundle = upstream
    rule = AllowedHost("secure.test", to=f"127.0.0.1:{port}", headers={"x-key": "k"}, ca=bundle)
    code = "import socket\ns = socket.create_connection(('secure.test', 443)); s.settimeout(5)\n"
    code += "s.sendall(b'\\x00\\x01raw'); print(s.recv(100))"
    async with await create(network=[rule]) as sandbox:
        result = await sandbox.run("python", "-c", code)
    assert "b''" in result.stdout or "Error" in result.stderr


async def test_a_flood_of_connections_is_bounded_and_ends() -> None:
    code = """
import socket
held = []
for i in range(400):
    s = socket.socket(); s.settimeout(3)
    try: s.connect(('a.test', 80)); held.append(s)
    except OSError: break
print(len(held))
"""
    with serving() as port:
        async with await create(network=[AllowedHost("a.test", to=f"127.0.0.1:{port}")]) as sandbox:
            await sandbox.run("python", "-c", code, timeout=30)
            tasks = len(sandbox._proxy._tasks)
            assert tasks <= 130
            after = await sandbox.shell("curl -sS -m 5 http://a.test/")
            assert after.ok


async def test_a_flood_of_refusals_does_not_fill_the_record() -> None:
    code = ASK.replace(
        "answer = s.recv(512)",
        "answer = s.recv(512)\nfor i in range(3000):\n"
        " s.sendto(packet.replace(b'evil', b'e%03d' % (i % 1000)), ('127.0.0.1', 53))",
    )
    with observed(shared_host()) as observer:
        async with await create(network=["allowed.test"]) as sandbox:
            await sandbox.run("python", "-c", code, repr([b"evil", b"com"]))
            await asyncio.sleep(0.2)
    assert 0 < len(observer.attempts) <= 1000


def test_what_is_public_and_what_is_not() -> None:
    public = [
        "93.184.216.34",
        "1.1.1.1",
        "2606:2800:220:1::1",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
    ]
    other = [
        "",
        "x",
        "10.0.0.1",
        "169.254.169.254",
        "::",
        "fe80::1%eth0",
        "192.0.2.1",
        "168.63.129.16",
        "::ffff:127.0.0.1",
        "::127.0.0.1",
        "ff02::1",
        "2001:db8::1",
        "198.18.0.1",
        "240.0.0.1",
        "fec0::1",
        "feff::1",
        "::ffff:0:8.8.8.8",  # IPv4-translated: nobody's on the public net
        "64:ff9b:1::808:808",
        "100::1",
        "4000::1",
        "5f00::1",
        "e000::1",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "2001:20::1",
        "3fff::1",
        "2606:2800:220:1:0:5efe:a00:1",  # ISATAP, of 10.0.0.1
    ]
    assert [a for a in public if not dns.is_public(a)] == []
    assert [a for a in other if dns.is_public(a)] == []


def test_rules_mean_whole_names() -> None:
    network = Network(allow=["A.Test.", "*.wild.test", "port.test:8443"])
    assert network.rule("a.test", 443) and network.rule("A.TEST.", 80)
    assert network.rule("x.y.wild.test", 443)
    for name in (
        "wild.test",
        "xwild.test",
        "a.test.evil",
        "b.a.test",
        "a.test\0.evil",
        "",
        "a..test",
    ):
        assert network.rule(name, 443) is None, name
    assert network.rule("port.test", 443) is None and network.rule("port.test", 8443)


def test_the_authority_makes_certificates_a_strict_reader_accepts() -> None:
    authority = Authority()
    server = authority.context("name.test")
    client = ssl.create_default_context(cadata=authority.certificate)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    inbound, outbound = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(inbound, outbound, server_hostname="name.test")
    theirs = server.wrap_bio(outbound, inbound, server_side=True)
    for _ in range(4):
        for side in (ours, theirs):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert ours.getpeercert()["subjectAltName"] == (("DNS", "name.test"),)
