"""An agent in hostile hands: whatever it says, the host stays well and the lie stays small."""

from __future__ import annotations

import asyncio
import json
import socket
import struct

import pytest

from holdfast.errors import SandboxError, SandboxFileError, SandboxGone
from holdfast.sandbox.channel import Channel
from holdfast.sandbox.inside import frames
from holdfast.sandbox.streams import dial
from holdfast.sandbox.watch import Watch
from waiting import LIMIT


async def _talk(said: bytes) -> tuple[Channel, socket.socket]:
    ours, theirs = socket.socketpair()
    channel = await Channel.open(ours)
    theirs.sendall(said)
    return channel, theirs


def _frame(header: object, payload: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("!II", len(text), len(payload)) + text + payload


BROKEN = {
    "an enormous header": struct.pack("!II", 1 << 31, 0),
    "an enormous payload": struct.pack("!II", 2, 1 << 31) + b"{}",
    "no json": struct.pack("!II", 4, 0) + b"nope",
    "no object": _frame([1, 2]),
    "no id": _frame({"ev": "ok"}),
    "no event": _frame({"id": 1}),
    "an id that is no number": _frame({"id": "1", "ev": "ok"}),
    "an event that is no text": _frame({"id": 1, "ev": {"a": 1}}),
    "deep json": struct.pack("!II", 200_000, 0) + b"[" * 200_000,
    "no text": struct.pack("!II", 2, 0) + b"\xff\xfe",
}


@pytest.mark.parametrize("kind", BROKEN, ids=lambda name: name.replace(" ", "-"))
async def test_a_broken_frame_ends_the_conversation(kind: str) -> None:
    channel, theirs = await _talk(BROKEN[kind])
    with theirs:
        async with asyncio.timeout(30):
            await channel.closed
        assert "broke the protocol" in (channel.error or "")
        with pytest.raises(SandboxGone):
            await channel.request("ping")


async def test_a_good_frame_does_not() -> None:
    channel, theirs = await _talk(_frame({"id": 7, "ev": "ok"}))
    with theirs:
        asking = asyncio.create_task(channel.request("ping"))
        await asyncio.sleep(0)
        theirs.sendall(_frame({"id": 1, "ev": "ok", "x": 1}))
        assert (await asking)["x"] == 1
        channel.close()


async def test_more_data_than_was_asked_for_is_refused() -> None:
    ours, theirs = socket.socketpair()
    channel = await Channel.open(ours)
    with theirs:
        asking = asyncio.create_task(channel.collect("read", most=1000, path="x"))
        await asyncio.sleep(0)
        theirs.sendall(_frame({"id": 1, "ev": "data"}, b"x" * 1001))
        with pytest.raises(SandboxFileError, match="more than 1000"):
            await asking
        channel.close()


async def test_an_error_with_strange_contents_is_told_in_few_words() -> None:
    ours, theirs = socket.socketpair()
    channel = await Channel.open(ours)
    with theirs:
        asking = asyncio.create_task(channel.request("ping"))
        await asyncio.sleep(0)
        bad = {"id": 1, "ev": "error", "errno": "x", "message": "m" * 100_000, "path": ["p"]}
        theirs.sendall(_frame(bad))
        with pytest.raises(SandboxFileError) as told:
            await asking
        assert len(str(told.value)) < 1100 and told.value.errno == 0
        channel.close()


def test_frames_survive_any_cut() -> None:
    whole = b"".join(frames.encode({"id": n, "t": "\udcffü"}, bytes([n]) * n) for n in range(50))
    for step in (1, 3, 7, 64, len(whole)):
        decoder, found = frames.Decoder(), []
        for start in range(0, len(whole), step):
            found += decoder.feed(whole[start : start + step])
        assert [(h["id"], len(p)) for h, p in found] == [(n, n) for n in range(50)]


async def test_a_stream_that_sends_more_than_its_window_is_ended() -> None:
    ours, theirs = socket.socketpair()
    channel = await Channel.open(ours)
    with theirs:
        dialling = asyncio.create_task(dial(channel, 8000))
        await asyncio.sleep(0)
        await asyncio.get_running_loop().run_in_executor(
            None, theirs.sendall, _frame({"id": 1, "ev": "connected"})
        )
        stream = await dialling
        flood = _frame({"id": 1, "ev": "data"}, b"x" * 500_000) * 4
        await asyncio.get_running_loop().run_in_executor(None, theirs.sendall, flood)
        async with asyncio.timeout(LIMIT):
            with pytest.raises(SandboxError, match="more than it was asked for"):
                while await stream.read():
                    pass
        assert stream.closed
        channel.close()


LIES = {
    "another batch": [_frame({"id": 1, "ev": "changes"}, b'["created", "a", null]')] * 2,
    "no change": [_frame({"id": 1, "ev": "changes"}, b'["exploded", "a", null]')],
    "no json": [_frame({"id": 1, "ev": "changes"}, b"nope")],
    "too few": [_frame({"id": 1, "ev": "changes"}, b'["created"]')],
}


@pytest.mark.parametrize("kind", LIES, ids=lambda name: name.replace(" ", "-"))
async def test_a_watch_that_is_lied_to_ends_with_an_error(kind: str) -> None:
    ours, theirs = socket.socketpair()
    channel = await Channel.open(ours)
    with theirs:
        beginning = asyncio.create_task(Watch.begin(channel, "/workspace", recursive=True))
        await asyncio.sleep(0)
        theirs.sendall(_frame({"id": 1, "ev": "watching"}) + b"".join(LIES[kind]))
        watch = await beginning
        async with asyncio.timeout(LIMIT):
            with pytest.raises(SandboxError, match="told"):
                while True:
                    await anext(watch)
        channel.close()
