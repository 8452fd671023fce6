"""An MCP server for tests: `python mcp_server.py` over pipes, `… http PORT` at a URL.

What its tools do is noted in the file that NOTES names.
"""

import os
import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("test tools")


def note(line: str) -> None:
    with Path(os.environ["NOTES"]).open("a") as file:
        file.write(f"{line}\n")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Add two numbers."""
    note(f"add {a} {b}")
    return a + b


@server.tool()
def pay(amount: int) -> str:
    """Pay."""
    note(f"pay {amount}")
    if amount == 13:
        os._exit(1)  # in the middle of it
    return f"paid {amount}"


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("no luck")


if __name__ == "__main__":
    if sys.argv[1:2] == ["http"]:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
    else:
        server.run("stdio")
