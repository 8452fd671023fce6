"""One HTTP exchange with a provider, bounded in time and memory whatever the provider does.

Redirects are not followed, compressed bodies are unpacked within bounds, every wait has a limit.
What the bytes mean is the formats' business.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
)
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

from holdfast.errors import BadReply, ProviderError, ProviderTimeout, ProviderUnavailable
from holdfast.gateway.config import Bounds, Timeouts
from holdfast.gateway.meter import Meter

if TYPE_CHECKING:
    import aiohttp

Phase = Literal["first_token", "idle", "total"]
_READ_OUT_SECONDS, _READ_OUT_BYTES = 1.0, 65536
_WORDS = {
    "first_token": "did not begin to answer within {} s",
    "idle": "was silent for {} s in mid-reply",
    "total": "was not done after {} s",
}


class Transport:
    """A pool of connections per event loop, closed with the loop."""

    def __init__(self, timeouts: Timeouts, *, trust_env: bool = False) -> None:
        self._timeouts = timeouts
        self._trust_env = trust_env
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, _Pool] = WeakKeyDictionary()
        self._reading: set[asyncio.Task[None]] = set()

    async def session(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            keeper = _keep_session(self._timeouts, self._trust_env)
            pool = self._pools[loop] = _Pool(await anext(keeper), keeper)
        return pool.session

    def finish_reading(self, response: aiohttp.ClientResponse) -> None:
        """Read what little is left of a reply, so that its connection can be used again."""
        task = asyncio.create_task(_read_out(response))
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)

    async def close(self) -> None:
        """Close this loop's connections."""
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.keeper.aclose()


class _Pool:
    def __init__(
        self, session: aiohttp.ClientSession, keeper: AsyncGenerator[aiohttp.ClientSession]
    ) -> None:
        self.session, self.keeper = session, keeper


async def _keep_session(
    timeouts: Timeouts, trust_env: bool
) -> AsyncGenerator[aiohttp.ClientSession]:
    # A generator, because an event loop closes its generators when it ends: a script that calls
    # `asyncio.run(main())` and never heard of sessions leaves none behind.
    import aiohttp

    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=60),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=timeouts.connect),
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=trust_env,
        read_bufsize=2**16,
    )
    try:
        yield session
    finally:
        await session.close()


async def _read_out(response: aiohttp.ClientResponse) -> None:
    import aiohttp

    try:
        async with asyncio.timeout(_READ_OUT_SECONDS):
            rest = await response.content.read(_READ_OUT_BYTES)
            if len(rest) < _READ_OUT_BYTES and response.content.at_eof():
                response.release()
                return
    except (TimeoutError, aiohttp.ClientError):
        pass  # it holds on to its stream: the connection is not worth waiting for
    finally:
        response.close()  # nothing, if it was released


class Exchange:
    """`async with Exchange(…) as exchange`: the reply's status and headers, then its chunks."""

    def __init__(
        self,
        transport: Transport,
        provider: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes,
        meter: Meter,
        timeouts: Timeouts,
        bounds: Bounds,
        streams: bool,
    ) -> None:
        self._transport, self._provider, self._url = transport, provider, url
        self._headers, self._body, self._meter = headers, body, meter
        self._timeouts, self._bounds, self._streams = timeouts, bounds, streams
        self._response: Any = None
        self._phase: Phase = "total"
        self.status = 0
        self.headers: Mapping[str, str] = {}

    async def __aenter__(self) -> Exchange:
        session = await self._transport.session()
        loop = asyncio.get_running_loop()
        self._deadline = loop.time() + self._timeouts.total
        self._guard = asyncio.timeout_at(self._deadline)
        await self._guard.__aenter__()
        try:
            self._first_by = loop.time() + self._timeouts.first_token
            if self._streams:
                self._until("first_token", self._first_by)
            self._response = await self._post(session)
            self.status = self._meter.status = self._response.status
            self.headers = self._response.headers
        except BaseException as error:
            await self._leave(type(error), error, error.__traceback__)
            raise
        return self

    async def _post(self, session: aiohttp.ClientSession) -> Any:
        import aiohttp

        try:
            self._meter.sent = True
            return await session.post(
                self._url, data=self._body, headers=self._headers, allow_redirects=False
            )
        except aiohttp.ConnectionTimeoutError as error:
            self._meter.sent = False
            raise ProviderTimeout(
                f"{self._provider} took no connection within {self._timeouts.connect:g} s"
            ) from error
        except aiohttp.ClientConnectorError as error:
            self._meter.sent = False
            raise ProviderUnavailable(
                f"{self._provider} is out of reach: {error.strerror or 'no connection'}"
            ) from error
        except aiohttp.ClientResponseError as error:
            raise BadReply(
                f"{self._provider} answered with broken HTTP: {error.message[:200]}", bought=True
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise ProviderUnavailable(
                f"{self._provider} hung up before it answered", bought=True
            ) from error

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._response is not None:
            if error is not None:
                self._response.close()
            elif self._response.content.at_eof():
                self._response.release()
            else:  # a stream is done before its last bytes are in
                self._transport.finish_reading(self._response)
        await self._leave(kind, error, trace)

    async def _leave(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self._guard.__aexit__(kind, error, trace)
        except TimeoutError:
            seconds = getattr(self._timeouts, self._phase)
            words = _WORDS[self._phase].format(f"{seconds:g}")
            raise ProviderTimeout(
                f"{self._provider} {words}", status=self.status or None, bought=self._meter.sent
            ) from None

    def _until(self, phase: Phase, limit: float) -> None:
        """Wait for something until `limit`, and never past the total."""
        if phase == "total" or limit >= self._deadline:
            self._phase, limit = "total", self._deadline
        else:
            self._phase = phase
        self._guard.reschedule(limit)

    async def chunks(self, limit: int | None = None) -> AsyncIterator[bytes]:
        """The body, unpacked, as it comes; raises BadReply if it is cut or passes `limit`."""
        limit = self._bounds.reply if limit is None else limit
        unpack = _unpacker(self._provider, self.headers.get("Content-Encoding", ""))
        taken = 0
        while packed := await self._more():
            for chunk in unpack(packed):
                taken += len(chunk)
                if taken > limit:
                    raise BadReply(f"{self._provider} sent more than {limit} bytes", bought=True)
                yield chunk

    async def _more(self) -> bytes:
        """The next bytes, waited for within the limit of the phase we are in."""
        import aiohttp

        if self._streams and self._meter.first_token is None:
            self._until("first_token", self._first_by)
        else:
            now = asyncio.get_running_loop().time()
            self._until("idle", now + self._timeouts.idle)
        try:
            packed = await self._response.content.readany()
        except aiohttp.ClientError as error:
            raise BadReply(f"{self._provider} cut its reply short", bought=True) from error
        self._until("total", self._deadline)  # a slow reader of ours is not the provider's fault
        return packed

    async def read(self, limit: int | None = None) -> bytes:
        """The whole body."""
        return b"".join([chunk async for chunk in self.chunks(limit)])


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


def named(error: ProviderError, provider: str, model: str) -> ProviderError:
    """The error with the provider and model it belongs to."""
    error.provider, error.model = error.provider or provider, error.model or model
    return error
