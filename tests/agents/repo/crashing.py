"""A worker on a store, to be killed: carries out one run of the repo agent, found by its key.

The model plays a script by how far the conversation is, so that it goes on in any process.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from agents.repo import repos
from agents.repo.conftest import as_say, edit, finish
from holdfast import open_engine, start
from holdfast.agents.repo import repair_repo
from holdfast.gateway import ScriptedModel
from holdfast.gateway.messages import Request

SCRIPT: list[Any] = [
    ("list_files", {"recursive": True}),
    edit(repos.SLUGS_FIX),
    ("run", {"command": "echo line >> notes.txt; sleep 1.5; python -m pytest -q"}),
    ("write_file", {"path": "CHANGES.md", "content": "fixed\n"}),
    ("run", {"command": "cat notes.txt CHANGES.md"}),
    finish("Fixed."),
]


def play(request: Request) -> Any:
    return as_say(SCRIPT[sum(message.role == "tool" for message in request.messages)])


async def main(store: str, repo: str) -> None:
    with ScriptedModel("coder", play):
        async with open_engine(store):
            work = repair_repo.options(key="the-one")
            run = await start(work, repo, "Make the tests pass", model="scripted/coder")
            await run.result()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
