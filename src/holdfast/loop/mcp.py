"""MCP servers as sources of tools, by the official SDK (`pip install 'mcp>=2'`).

    files = McpServer.stdio("uvx", "mcp-server-git", "--repository", "/srv/repo")
    wiki = McpServer.http("https://wiki.example.com/mcp", headers={"Authorization": "…"})
    agent = Agent("anthropic/claude-sonnet-4.6", tools=[files, wiki])

In a workflow the list of a server's tools is a step, and so is each call. The connection itself
is no part of the run: it is made where a step needs it, kept for the next, and made anew when it
is lost. A server's word that a tool is harmless to repeat counts only if it is trusted.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from holdfast.errors import OutcomeUnknown, ToolSourceLost, UsageError
from holdfast.gateway.messages import FilePart, ImagePart, TextPart
from holdfast.loop.arguments import OpenArguments
from holdfast.loop.results import ToolOutput
from holdfast.loop.tools import AgentTool, ToolSource
from holdfast.runtime.context import execution
from holdfast.runtime.definitions import Step
from holdfast.session import on_store_close, opened_store

if TYPE_CHECKING:
    from mcp import StdioServerParameters
    from mcp.types import CallToolResult


_MAX_PAGES = 100


@dataclass(frozen=True, slots=True)
class ToolInfo:
    """A server's tool, as the journal keeps it."""

    name: str
    description: str
    schema: dict[str, Any]
    idempotent: bool
    """What the server says about it."""


class McpServer(ToolSource):
    """An MCP server: `McpServer.stdio(command, …)` or `McpServer.http(url)`.

    `only`: the tools to take. `prefix`: put before their names. `idempotent`: names of those
    that are harmless to repeat; with `trust_hints` also those that the server says are.
    `tool_options`: what `tool` takes, for all of them: `{"needs_approval": True, …}`.
    """

    def __init__(
        self,
        target: str | StdioServerParameters,
        *,
        name: str,
        headers: Mapping[str, str] | None = None,
        prefix: str = "",
        only: Collection[str] | None = None,
        idempotent: Collection[str] = (),
        trust_hints: bool = False,
        tool_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self._target, self._headers = target, dict(headers or {})
        self._prefix, self._only = prefix, only
        self._idempotent, self._trust_hints = idempotent, trust_hints
        self._tool_options = dict(tool_options or {})
        self._connections: dict[asyncio.AbstractEventLoop, Connection] = {}
        self._listing = Step[..., Any](self._make_listing(), name=f"list tools of {name}")

    @classmethod
    def stdio(
        cls,
        command: str,
        *args: str,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        name: str | None = None,
        **options: Any,
    ) -> McpServer:
        """A server that is a program: started when needed, spoken to over its pipes.

        It gets none of this process's environment but PATH, HOME and the like, and `env`.
        """
        parameters = _sdk().StdioServerParameters(
            command=command, args=list(args), env=dict(env or {}), cwd=cwd
        )
        return cls(parameters, name=name or command, **options)

    @classmethod
    def http(cls, url: str, *, name: str | None = None, **options: Any) -> McpServer:
        """A server at a URL (streamable HTTP)."""
        _sdk()
        return cls(url, name=name or url, **options)

    # --- its tools ---

    async def tools(self) -> list[AgentTool]:
        """The tools it has now; in a workflow, those it had when the agent first asked."""
        listed: Sequence[ToolInfo] = await self._listing()
        found = [each for each in listed if self._only is None or each.name in self._only]
        missing = set(self._only or ()) - {each.name for each in found}
        if missing:
            raise UsageError(f"{self.name} has no tool {', '.join(sorted(missing))}")
        return [self._tool(each) for each in found]

    def _make_listing(self) -> Any:
        async def list_tools() -> list[ToolInfo]:
            return await self._listed()

        return list_tools

    async def _listed(self) -> list[ToolInfo]:
        client = await self._client()
        found: list[ToolInfo] = []
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            for each in page.tools:
                hints = each.annotations
                harmless = hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)
                found.append(
                    ToolInfo(each.name, each.description or "", dict(each.input_schema), harmless)
                )
            cursor = page.next_cursor
            if not cursor:
                return found
        raise UsageError(f"{self.name} lists tools without end")

    def _tool(self, info: ToolInfo) -> AgentTool:
        idempotent = info.name in self._idempotent or (self._trust_hints and info.idempotent)

        async def call(**arguments: Any) -> ToolOutput:
            return await self._call(info.name, arguments, idempotent=idempotent)

        return AgentTool(
            call,
            name=f"{self._prefix}{info.name}",
            description=info.description,
            arguments=OpenArguments(info.schema),
            idempotent=idempotent,
            **self._tool_options,
        )

    async def _call(self, name: str, arguments: dict[str, Any], *, idempotent: bool) -> ToolOutput:
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED, REQUEST_TIMEOUT

        client = await self._client()
        try:
            return _output(await client.call_tool(name, arguments))
        except Exception as error:
            if isinstance(error, MCPError) and error.code not in (
                CONNECTION_CLOSED, REQUEST_TIMEOUT,
            ):  # fmt: skip
                raise  # the server's answer
            await self._drop()
            what = f"{self.name} was lost in the middle of {name}: {error}"
            if idempotent:
                raise ToolSourceLost(what) from error
            raise OutcomeUnknown(what) from error

    # --- the connection ---

    async def _client(self) -> Any:
        assert execution() is None, "connections are made in steps"
        loop = asyncio.get_running_loop()
        found = self._connections.get(loop)
        if found is None or found.ended:
            found = self._connections[loop] = Connection(self.name, self._target, self._headers)
            store = opened_store()
            if store is not None:
                on_store_close(store, self.close)
        return await found.client()

    async def _drop(self) -> None:
        found = self._connections.pop(asyncio.get_running_loop(), None)
        if found is not None:
            await found.close()

    async def close(self) -> None:
        """Close the connection; a program that was started for it ends."""
        await self._drop()

    async def __aenter__(self) -> McpServer:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<MCP server {self.name}>"


def _sdk() -> Any:
    try:
        import mcp
    except ImportError as error:
        raise UsageError(
            "MCP servers need the official SDK", hint="pip install 'mcp>=2'"
        ) from error
    return mcp


def _output(result: CallToolResult) -> ToolOutput:
    content = tuple(_part(block) for block in result.content)
    if not content:
        content = (TextPart("done"),)
    return ToolOutput(content, result.is_error, "failed" if result.is_error else "done")


def _part(block: Any) -> TextPart | ImagePart | FilePart:
    if block.type == "text":
        return TextPart(block.text)
    if block.type == "image":
        return ImagePart(data=block.data, media_type=block.mime_type)
    if block.type == "resource" and hasattr(block.resource, "text"):
        return TextPart(block.resource.text)
    if block.type == "resource" and block.resource.mime_type == "application/pdf":
        name = str(block.resource.uri).rpartition("/")[2] or None
        return FilePart(data=block.resource.blob, media_type=block.resource.mime_type, name=name)
    # A link, a sound, another binary file: say what it is; not every model could read it.
    described = block.model_dump(mode="json", exclude_none=True, by_alias=True)
    for field in ("data", "blob"):
        described.pop(field, None)
        described.get("resource", {}).pop(field, None)
    return TextPart(str(described))


# --- a connection, held open by a task of its own ---


class Connection:
    """A connection, made at once; lives on the loop it was made on.

    The SDK's contexts have to be entered and left by one task, while steps of many runs use what
    is in them. So a task enters them, hands the client out, and leaves them when it is told to.
    """

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
                    ToolSourceLost(
                        f"the MCP server {self._name} can't be reached: {_innermost(error)}"
                    )
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


def _innermost(error: BaseException) -> str:
    """The innermost of what task groups have wrapped."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:  # pyright: ignore[reportUnknownMemberType]
        error = error.exceptions[0]  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return str(error) or type(error).__name__  # pyright: ignore[reportUnknownArgumentType]
