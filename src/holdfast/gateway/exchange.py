"""One HTTP exchange with a provider, bounded in time and memory whatever the provider does.

Redirects are not followed, compressed bodies are unpacked within bounds, every wait has a limit.
What the bytes mean is the formats' business.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Literal
from urllib.parse import urlsplit

from holdfast.errors import BadReply, ProviderTimeout, ProviderUnavailable, UsageError
from holdfast.gateway.accounting import Meter
from holdfast.gateway.config import Bounds, Timeouts
from holdfast.gateway.http1 import HttpFault, HungUp
from holdfast.gateway.http_client import Answer, HttpClient

_LOOK = 20.0


class Deadline:
    """Cancels the current task when the limit is reached, until `close`."""

    __slots__ = ("_before", "_expired", "_limit", "_loop", "_task", "_timer")

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._loop, self._task, self._before = task.get_loop(), task, task.cancelling()
        self._timer: asyncio.TimerHandle | None = None
        self._limit = 0.0
        self._expired = False

    def until(self, limit: float) -> None:
        """The limit from now on, by the loop's clock."""
        self._limit = limit
        timer = self._timer
        if timer is None or timer.when() > limit:
            if timer is not None:
                timer.cancel()
            self._set()

    def _set(self) -> None:
        self._timer = self._loop.call_at(min(self._limit, self._loop.time() + _LOOK), self._ring)

    def _ring(self) -> None:
        if self._loop.time() < self._limit:
            self._set()
        else:
            self._timer, self._expired = None, True
            self._task.cancel()

    def close(self, kind: type[BaseException] | None) -> bool:
        """Take the limit away; True if what is being raised (`kind`) is its doing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._expired:
            return False
        mine = self._task.uncancel() <= self._before
        return mine and kind is not None and issubclass(kind, asyncio.CancelledError)


Phase = Literal["first_token", "idle", "total"]
_WORDS = {
    "first_token": "did not begin to answer within {} s",
    "idle": "was silent for {} s in mid-reply",
    "total": "was not done after {} s",
}


class Exchange:
    """`async with Exchange(…) as exchange`: the reply's status and headers, then its chunks."""

    def __init__(
        self,
        client: HttpClient,
        provider: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes,
        meter: Meter,
        timeouts: Timeouts,
        bounds: Bounds,
        streams: bool,
        method: str = "POST",
    ) -> None:
        self._client, self._provider, self._url = client, provider, url
        self._method = method
        self._headers, self._body, self._meter = headers, body, meter
        self._timeouts, self._bounds, self._streams = timeouts, bounds, streams
        self._answer: Answer | None = None
        self._phase: Phase = "total"
        self.status = 0
        self.headers: Mapping[str, str] = {}
        """Names in lower case."""

    async def __aenter__(self) -> Exchange:
        self._now = asyncio.get_running_loop().time
        now = self._now()
        self._total_by = now + self._timeouts.total
        self._first_by = now + self._timeouts.first_token
        self._deadline = Deadline()
        self._until("first_token" if self._streams else "total", self._first_by)
        try:
            self._answer = answer = await self._send()
            self.status = self._meter.status = answer.status
            self.headers = answer.headers
        except BaseException as error:
            self._leave(type(error))
            raise
        return self

    async def _send(self) -> Answer:
        provider = self._provider
        try:
            return await self._client.request(
                self._method, self._url, self._headers, self._body, self._meter
            )
        except HungUp as error:
            raise ProviderUnavailable(
                f"{provider} hung up before it answered", bought=True
            ) from error
        except HttpFault as error:
            raise BadReply(
                f"{provider} answered with broken HTTP: {str(error)[:200]}", bought=True
            ) from error
        except TimeoutError as error:
            raise ProviderTimeout(
                f"{provider} took no connection within {self._timeouts.connect:g} s"
            ) from error
        except ssl.SSLError as error:
            reason = getattr(error, "verify_message", "") or error.reason or "TLS failed"
            raise ProviderUnavailable(
                f"{provider} can't be reached safely: {reason}",
                hint="check the base URL, and the certificates this machine trusts",
            ) from error
        except OSError as error:
            raise ProviderUnavailable(
                f"{provider} is out of reach at {urlsplit(self._url).netloc.rpartition('@')[2]}:"
                f" {_why_unreachable(error)}",
                hint="check the provider's base URL, and that something answers there",
            ) from error
        except ValueError as error:
            raise UsageError(f"a request to {provider} can't be sent: {error}") from error

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        answer = self._answer
        if answer is not None:
            if error is not None:
                answer.close()
            elif answer.at_end:
                answer.done()
            else:  # a stream is done before its last bytes are in
                self._client.finish_reading(answer)
        self._leave(kind)

    def _leave(self, kind: type[BaseException] | None) -> None:
        if self._deadline.close(kind):
            seconds = getattr(self._timeouts, self._phase)
            words = _WORDS[self._phase].format(f"{seconds:g}")
            raise ProviderTimeout(
                f"{self._provider} {words}", status=self.status or None, bought=self._meter.sent
            ) from None

    def _until(self, phase: Phase, limit: float) -> None:
        """Wait for something until `limit`, and never past the total."""
        if phase == "total" or limit >= self._total_by:
            self._phase, limit = "total", self._total_by
        else:
            self._phase = phase
        self._deadline.until(limit)

    async def chunks(self, limit: int | None = None) -> AsyncIterator[bytes]:
        """The body, unpacked, as it comes; raises BadReply if it is cut or passes `limit`."""
        limit = self._bounds.reply if limit is None else limit
        unpack = _unpacker(self._provider, self.headers.get("content-encoding", ""))
        taken = 0
        while packed := await self._more():
            for chunk in unpack(packed):
                taken += len(chunk)
                if taken > limit:
                    raise self._too_much(limit)
                yield chunk

    def _too_much(self, limit: int) -> BadReply:
        return BadReply(f"{self._provider} sent more than {limit} bytes", bought=True)

    async def _more(self) -> bytes:
        """The next bytes, waited for within the limit of the phase we are in."""
        assert self._answer is not None
        if self._answer.at_end:
            return b""
        if self._streams and self._meter.first_token is None:
            self._until("first_token", self._first_by)
        else:
            self._until("idle", self._now() + self._timeouts.idle)
        try:
            packed = await self._answer.read()
        except HttpFault as error:
            raise BadReply(f"{self._provider} cut its reply short", bought=True) from error
        self._until("total", self._total_by)  # a slow reader of ours is not the provider's fault
        return packed

    async def read(self, limit: int | None = None) -> bytes:
        """The whole body."""
        if self.headers.get("content-encoding"):
            return b"".join([chunk async for chunk in self.chunks(limit)])
        limit = self._bounds.reply if limit is None else limit
        assert self._answer is not None
        body = self._answer.take()  # a short answer comes whole, with its head
        while not self._answer.at_end and len(body) <= limit and (packed := await self._more()):
            body += packed
        if len(body) > limit:
            raise self._too_much(limit)
        return body


def _why_unreachable(error: OSError) -> str:
    """In the system's words: asyncio has its own, which name no reason."""
    if isinstance(error, socket.gaierror) or not error.errno:
        refused = "Connect call failed" in str(error)
        return "connection refused" if refused else error.strerror or str(error)[:200]
    return os.strerror(error.errno).lower()


Unpack = Callable[[bytes], Iterable[bytes]]


def _unpacker(provider: str, encoding: str) -> Unpack:
    """A function from packed bytes to unpacked pieces, never more than 64 KiB at a time."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return _as_they_are
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise BadReply(f"{provider} answered in an encoding nobody asked for", bought=True)
    inflater = zlib.decompressobj(zlib.MAX_WBITS | 32)

    def unpack(packed: bytes) -> Iterator[bytes]:
        try:
            while packed:
                yield inflater.decompress(packed, 2**16)
                packed = inflater.unconsumed_tail
        except zlib.error as error:
            raise BadReply(f"{provider} sent a broken {encoding} body", bought=True) from error

    return unpack


def _as_they_are(packed: bytes) -> Iterable[bytes]:
    return (packed,)
