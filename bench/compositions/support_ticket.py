"""The task that every composition does: a ticket, a model, two tools, a person who has to agree.

What is done is put down in a file (`mark`), which also says when the process is to kill itself: so
what was done twice or not at all can be counted afterwards. Not counted as user code.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

TICKET = "A-1 arrived broken: 40 back, please."
CHECK = "print(len(input()))"


class World:
    """Where this trial keeps its files, and at which of its moments it dies (0: at none)."""

    folder = Path()
    die_at = 0
    moments = 0


def mark(what: str) -> None:
    """A moment in which the process can die: before something is done, and after."""
    World.moments += 1
    with (World.folder / "done.log").open("a") as log:
        log.write(f"{what}\n")
        log.flush()
        if World.moments == World.die_at:
            os.fsync(log.fileno())
            os.kill(os.getpid(), signal.SIGKILL)


def done(what: str) -> int:
    """How often something was done, in all processes."""
    file = World.folder / "done.log"
    return file.read_text().splitlines().count(what) if file.exists() else 0


class Bank:
    """Pays whatever it is told to, as often as it is told to."""

    def refund(self, order: str, amount: int) -> str:
        mark("refund begins")
        mark("refund")
        return f"R-{order}"


class Shop:
    def look_up(self, order: str) -> str:
        mark("look up begins")
        mark("look up")
        return f"{order}: a lamp, 40 paid"


def model(results: list[str]) -> dict[str, Any]:
    """What the model says after so many results of tools: look up, pay back, answer."""
    mark("model begins")
    said: list[dict[str, Any]] = [
        {"tool": "look_up", "arguments": {"order": "A-1"}},
        {"tool": "refund", "arguments": {"order": "A-1", "amount": 40}},
        {"text": "40 are on their way."},
    ]
    answer = said[min(len(results), 2)]
    mark("model")
    return json.loads(json.dumps(answer))


def scripted(request: Any) -> Any:
    """The same model, as Holdfast asks it."""
    from holdfast.gateway import Say

    results = [
        str(part)
        for message in request.messages
        if message.role == "tool"
        for part in message.parts
    ]
    answer = model(results)
    if "text" in answer:
        return Say(answer["text"])
    return Say(tools=[(answer["tool"], answer["arguments"])])
