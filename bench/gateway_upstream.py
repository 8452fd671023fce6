"""An upstream that answers at once: canned replies, as little work as Python allows.

python gateway_upstream.py        prints its port, serves until stdin closes
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading

TEXT = "The sky is blue because air scatters short waves more than long ones. " * 4
CHAT = json.dumps(
    {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "bench",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": TEXT},
                     "finish_reason": "stop", "logprobs": None}],
        "usage": {"prompt_tokens": 20, "completion_tokens": 60, "total_tokens": 80},
    }
).encode()  # fmt: skip
ANTHROPIC = json.dumps(
    {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "bench",
        "content": [{"type": "text", "text": TEXT}], "stop_reason": "end_turn",
        "stop_sequence": None, "usage": {"input_tokens": 20, "output_tokens": 60},
    }
).encode()  # fmt: skip


def _reply(body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


REPLIES = {True: _reply(CHAT), False: _reply(ANTHROPIC)}


class Instant(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._buffer = b""

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while True:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self._buffer[:end].lower()
            at = head.find(b"content-length:")
            size = int(head[at + 15 :].partition(b"\r\n")[0]) if at >= 0 else 0
            if len(self._buffer) < end + 4 + size:
                return
            self._buffer = self._buffer[end + 4 + size :]
            self._transport.write(REPLIES[b"/chat/completions" in head[:80]])


async def main() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Instant, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    done = asyncio.Event()
    threading.Thread(
        target=lambda: (sys.stdin.read(), loop.call_soon_threadsafe(done.set)), daemon=True
    ).start()
    await done.wait()


if __name__ == "__main__":
    try:
        import uvloop

        uvloop.run(main())
    except ImportError:
        asyncio.run(main())
