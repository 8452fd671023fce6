"""Calls through the proxies of the environment (`trust_env`): aiohttp's business, not ours."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any

from holdfast.gateway.config import Timeouts
from holdfast.gateway.http1 import HttpFault, HungUp

if TYPE_CHECKING:
    import aiohttp


class ProxiedAnswer:
    """An answer of aiohttp's, as an `Answer`."""

    def __init__(self, response: Any) -> None:
        self._response = response
        self.status: int = response.status
        self.headers = {name.lower(): value for name, value in response.headers.items()}

    @property
    def at_end(self) -> bool:
        return bool(self._response.content.at_eof())

    def take(self) -> bytes:
        return b""

    async def read(self) -> bytes:
        import aiohttp

        try:
            return await self._response.content.readany()
        except aiohttp.ClientError as error:
            raise HungUp from error

    def done(self) -> None:
        self._response.release()

    def close(self) -> None:
        self._response.close()


class Proxied:
    """One event loop's session."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> ProxiedAnswer:
        """Raises TimeoutError or OSError if there was no connection, HttpFault for the rest."""
        import aiohttp

        try:
            response = await self._session.post(
                url, data=body, headers=headers, allow_redirects=False
            )
        except aiohttp.ConnectionTimeoutError as error:
            raise TimeoutError from error
        except aiohttp.ClientConnectorError as error:
            raise OSError(error.errno or 0, error.strerror or "no connection") from error
        except aiohttp.ClientResponseError as error:
            raise HttpFault(error.message) from error
        except (aiohttp.ClientError, OSError) as error:
            raise HungUp from error
        return ProxiedAnswer(response)


async def kept_session(timeouts: Timeouts) -> AsyncGenerator[Proxied]:
    """This loop's session, closed with the loop (see `connections.kept_connections`)."""
    import aiohttp

    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=60),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=timeouts.connect),
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=True,
        read_bufsize=2**16,
    )
    try:
        yield Proxied(session)
    finally:
        await session.close()
