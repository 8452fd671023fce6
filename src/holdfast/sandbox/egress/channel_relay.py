"""The host's end of a network that is carried over the agent's channel.

Questions go to the proxy and its answers back; each connection becomes a socket pair, one end of
which the proxy serves as if it had accepted it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from holdfast.sandbox.channel import Channel
from holdfast.sandbox.egress.proxy import Proxy
from holdfast.sandbox.inside.frames import Header

_CHUNK = 64 * 1024
_MOST = 128
_MOST_WAITING = 4 * 1024 * 1024


class ChannelRelay:
    """Bridges one channel and one proxy."""

    def __init__(self, channel: Channel, proxy: Proxy) -> None:
        self._channel, self._proxy = channel, proxy
        self._connections: dict[int, _Connection] = {}
        channel.listen(0, self._receive)

    def _receive(self, header: Header, payload: bytes) -> None:
        event, key = header["ev"], header.get("connection")
        if event == "question" and isinstance(header.get("port"), int):
            answer = self._proxy.answer(payload)
            if answer is not None:
                self._channel.tell("answer", answer, port=header["port"])
        elif event == "connected" and isinstance(key, int):
            self._connect(key, str(header.get("address")), header.get("port"))
        elif event == "packet":
            self._proxy.packet(payload)
        elif event == "sent" and isinstance(key, int) and key in self._connections:
            self._connections[key].feed(payload)

    def _connect(self, key: int, address: str, port: object) -> None:
        if not isinstance(port, int) or len(self._connections) >= _MOST:
            self._channel.tell("deliver", b"", connection=key)
            return
        ours, theirs = socket.socketpair()
        self._connections[key] = _Connection(ours, lambda data: self._deliver(key, data))
        self._proxy.admit(theirs, address, port)

    def _deliver(self, key: int, data: bytes) -> None:
        if not data:
            self._connections.pop(key, None)
        self._channel.tell("deliver", data, connection=key)

    def close(self) -> None:
        for connection in list(self._connections.values()):
            connection.close()


class _Connection:
    """Our end of a socket pair: bytes from the sandbox in, bytes for it out."""

    def __init__(self, sock: socket.socket, deliver: Callable[[bytes], None]) -> None:
        sock.setblocking(False)
        self._socket, self._deliver = sock, deliver
        self._waiting = bytearray()
        self._ended = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock.fileno(), self._readable)

    def feed(self, data: bytes) -> None:
        """What the sandbox sent; nothing means it will send no more."""
        if self._socket.fileno() < 0:
            return
        self._ended = self._ended or not data
        self._waiting += data
        if len(self._waiting) > _MOST_WAITING:
            self.close()
            return
        self._writable()

    def _writable(self) -> None:
        try:
            while self._waiting:
                del self._waiting[: self._socket.send(self._waiting)]
        except BlockingIOError:
            self._loop.add_writer(self._socket.fileno(), self._writable)
            return
        except OSError:
            self.close()
            return
        self._loop.remove_writer(self._socket.fileno())
        if self._ended:
            self._socket.shutdown(socket.SHUT_WR)

    def _readable(self) -> None:
        try:
            data = self._socket.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._deliver(data)
        else:
            self.close()

    def close(self) -> None:
        if self._socket.fileno() < 0:
            return
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        self._deliver(b"")
