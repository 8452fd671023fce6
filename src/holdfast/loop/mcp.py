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
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from holdfast.errors import OutcomeUnknown, ToolSourceLost, UsageError
from holdfast.gateway.messages import ImagePart, TextPart
from holdfast.loop.arguments import OpenArguments
from holdfast.loop.mcp_connection import Connection
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


def _part(block: Any) -> TextPart | ImagePart:
    if block.type == "text":
        return TextPart(block.text)
    if block.type == "image":
        return ImagePart(data=block.data, media_type=block.mime_type)
    if block.type == "resource" and hasattr(block.resource, "text"):
        return TextPart(block.resource.text)
    # A link, a sound, a binary file: say what it is; the model could not read it.
    described = block.model_dump(mode="json", exclude_none=True, by_alias=True)
    for field in ("data", "blob"):
        described.pop(field, None)
        described.get("resource", {}).pop(field, None)
    return TextPart(str(described))
