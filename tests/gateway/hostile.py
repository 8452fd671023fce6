"""What a broken or hostile provider may send, as scripts for the fake provider."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator

from holdfast.testing.providers import Raw

SSE = {"Content-Type": "text/event-stream"}
JSON = {"Content-Type": "application/json"}
MB = 2**20


def chunk(text: str = "word ", **more: object) -> bytes:
    """One event of a chat stream."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None, **more}
    data = {"id": "x", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def tool(arguments: str, **first: object) -> bytes:
    call = {"index": 0, "function": {"arguments": arguments, **first}}
    if first:
        call |= {"id": "c1", "type": "function"}
    return chunk("", delta={"tool_calls": [call]})


FINISH = chunk("", delta={}, finish_reason="stop")
DONE = b"data: [DONE]\n\n"


def long_line() -> Iterator[bytes]:
    yield b"data: "
    for _ in range(300 * 16):
        yield b"x" * (MB // 16)


def endless() -> Iterator[bytes]:
    event = chunk("a word " * 40) * 50
    while True:
        yield event


def drip() -> Iterator[bytes | float]:
    yield chunk()
    while True:
        yield b":"
        yield 0.05


def bomb() -> bytes:
    """1 GB of zeros in about a megabyte."""
    one = gzip.compress(b"\0" * (64 * MB), 9)
    return one * 16


STREAMS: dict[str, Raw] = {
    "cut": Raw([chunk(), chunk()], headers=SSE, cut=True),
    "no terminal event": Raw([chunk(), chunk()], headers=SSE),
    "done without a finish": Raw([chunk(), DONE], headers=SSE),
    "empty": Raw([], headers=SSE),
    "malformed JSON": Raw([chunk(), b'data: {"choices": [{\n\n', FINISH, DONE], headers=SSE),
    "malformed SSE": Raw([b"\x00\xff\xfe garbage\n\n" * 50], headers=SSE),
    "wrong shape": Raw([b'data: {"choices": "none"}\n\n', FINISH, DONE], headers=SSE),
    "an array": Raw([b"data: [1, 2]\n\n", FINISH, DONE], headers=SSE),
    "deep nesting": Raw([b"data: " + b"[" * 100_000 + b"\n\n"], headers=SSE),
    "tool cut mid-way": Raw([tool("", name="f"), tool('{"a": [1,')], headers=SSE, cut=True),
    "error event": Raw(
        [chunk(), b'data: {"error": {"message": "overloaded", "code": "overloaded"}}\n\n'],
        headers=SSE,
    ),
    "300 MB line": Raw(long_line, headers=SSE),
    "endless": Raw(endless, headers=SSE),
    "slow drip": Raw(drip, headers=SSE),
    "silence": Raw([chunk(), 3600.0], headers=SSE),
    "never begins": Raw([3600.0], headers=SSE),
    "HTML": Raw([b"<html>Please log in</html>"], headers={"Content-Type": "text/html"}),
    "JSON error with 200": Raw([b'{"error": {"message": "nope"}}'], headers=JSON),
    "gzip bomb": Raw([bomb()], headers={**SSE, "Content-Encoding": "gzip"}),
    "unknown encoding": Raw([b"abc"], headers={**SSE, "Content-Encoding": "br"}),
    "broken gzip": Raw([b"abcdef"], headers={**SSE, "Content-Encoding": "gzip"}),
    "redirect": Raw([], status=302, headers={"Location": "http://127.0.0.1:9/steal"}),
}  # fmt: skip

REPLIES: dict[str, Raw] = {
    "cut": Raw([b'{"id": "x", "choices": ['], headers=JSON, cut=True),
    "malformed JSON": Raw([b'{"id": "x", "choices": ['], headers=JSON),
    "empty": Raw([], headers=JSON),
    "no finish": Raw([b'{"choices": [{"message": {"content": "short"}}]}'], headers=JSON),
    "no choices": Raw([b'{"choices": []}'], headers=JSON),
    "null": Raw([b"null"], headers=JSON),
    "deep nesting": Raw([b"[" * 100_000], headers=JSON),
    "HTML": Raw([b"<html></html>"], headers={"Content-Type": "text/html"}),
    "endless": Raw(endless, headers=JSON),
    "slow drip": Raw(drip, headers=JSON),
    "never begins": Raw([3600.0], headers=JSON),
    "gzip bomb": Raw([bomb()], headers={**JSON, "Content-Encoding": "gzip"}),
    "redirect": Raw([], status=307, headers={"Location": "http://169.254.169.254/"}),
}  # fmt: skip
