"""One connection to an MCP server, held open by a task of its own.

The SDK's contexts have to be entered and left by one task, while steps of many runs use what is
in them. So a task enters them, hands the client out, and leaves them when it is told to.
"""

from __future__ import annotations

import asyncio
import contextvars
from contextlib import AsyncExitStack
from typing import Any

from holdfast.errors import ToolSourceLost


class Connection:
    """A connection, made at once; lives on the loop it was made on."""

    def __init__(self, name: str, target: Any, headers: dict[str, str]) -> None:
        self._name, self._target, self._headers = name, target, headers
        loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[Any] = loop.create_future()
        self._enough = asyncio.Event()
        # In a context of its own: it outlives the step that happened to need it first.
        self._task = loop.create_task(self._hold(), context=contextvars.Context())

    @property
    def ended(self) -> bool:
        return self._task.done() or self._enough.is_set()

    async def client(self) -> Any:
        """The client, once it is connected; raises ToolSourceLost."""
        return await asyncio.shield(self._ready)

    async def close(self) -> None:
        """Leave; a program that was started for it is ended."""
        self._enough.set()
        if not self._ready.done():
            self._task.cancel()  # nobody waits for it any more
        await asyncio.wait([self._task])

    async def _hold(self) -> None:
        from mcp import Client

        try:
            async with AsyncExitStack() as stack:
                client = await stack.enter_async_context(Client(await self._server(stack)))
                self._ready.set_result(client)
                await self._enough.wait()
        except Exception as error:  # noqa: BLE001 - it goes to who asks for the client
            if not self._ready.done():
                self._ready.set_exception(
                    ToolSourceLost(f"the MCP server {self._name} can't be reached: {_words(error)}")
                )
        finally:
            if self._ready.done():
                self._ready.exception() if not self._ready.cancelled() else None  # looked at
            else:
                self._ready.cancel()

    async def _server(self, stack: AsyncExitStack) -> Any:
        if not isinstance(self._target, str) or not self._headers:
            return self._target
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        limits = httpx2.Timeout(30.0, read=300.0)
        http = httpx2.AsyncClient(headers=self._headers, timeout=limits)
        await stack.enter_async_context(http)
        return streamable_http_client(self._target, http_client=http)


def _words(error: BaseException) -> str:
    """The innermost of what task groups have wrapped."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:  # pyright: ignore[reportUnknownMemberType]
        error = error.exceptions[0]  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return str(error) or type(error).__name__  # pyright: ignore[reportUnknownArgumentType]
