"""Sandboxes of other processes of this user: found by id, reached through their control socket.

A handle got this way does what a handle of one's own does; the sandbox still belongs to the
process that made it, and ends with that.
"""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from holdfast import errors
from holdfast.errors import HoldfastError, NotFound, SandboxError
from holdfast.records.sandboxes import SandboxRecord
from holdfast.sandbox.base import Listeners, Usage
from holdfast.sandbox.channel import Channel
from holdfast.sandbox.control import sockets
from holdfast.sandbox.inside.frames import Header


@dataclass(slots=True)
class RemoteInstance:
    """A sandbox that another process holds."""

    id: str
    channel: socket.socket
    control: Channel | None = None
    listeners: Listeners | None = None
    relayed: bool = False
    upper: int | None = None

    def usage(self) -> Usage:
        return Usage()  # the process that holds it tells what was killed

    def kill(self) -> None:
        """Asked for by `stop`, through the process that holds it."""

    async def destroy(self) -> None:
        """Done by the process that holds it."""


async def find(
    state: Path, id: str
) -> tuple[RemoteInstance, Channel, SandboxRecord, dict[str, str]]:
    """Reach the sandbox of this id, whichever process holds it."""
    for path in sockets(state):
        if not (path.parent / "sandboxes" / f"{id}.json").exists():
            continue
        connection = connect(path)
        if connection is None:
            continue
        channel = await Channel.open(connection)
        try:
            answer = await ask(channel, "attach", sandbox=id)
        except BaseException:
            channel.close()
            raise
        instance = RemoteInstance(id, connection, channel)
        return instance, channel, as_record(answer["record"]), dict(answer["env"])
    raise NotFound(
        f"no sandbox {id} runs here", hint="it has stopped, or the process that made it has ended"
    )


def connect(path: Path) -> socket.socket | None:
    """Connect to a control socket; None if nobody serves it any more."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(f"/proc/self/fd/{folder}/{path.name}")
    except (ConnectionRefusedError, FileNotFoundError):
        connection.close()
        return None
    finally:
        os.close(folder)
    return connection


async def ask(channel: Channel, op: str, **header: Any) -> Header:
    """Ask the process that serves the socket; its refusals are raised here."""
    done: asyncio.Future[Header] = asyncio.get_running_loop().create_future()

    def listen(answer: Header, _: bytes) -> None:
        if not done.done():
            done.set_result(answer)

    key = await channel.post(op, header, b"", listen)
    answer = await done
    channel.drop(key)
    if answer["ev"] == "refused":
        kind = getattr(errors, str(answer.get("kind")), SandboxError)
        kind = kind if isinstance(kind, type) and issubclass(kind, HoldfastError) else SandboxError
        raise kind(str(answer.get("message")))
    if answer["ev"] != "ok":
        raise SandboxError("the process that holds the sandbox has gone")
    return answer


def as_record(data: dict[str, Any]) -> SandboxRecord:
    """A record from its JSON."""
    fields = dict(data)
    fields["network"] = tuple(fields["network"])
    for name in ("created_at", "stopped_at"):
        if fields[name] is not None:
            fields[name] = datetime.fromisoformat(fields[name])
    return SandboxRecord(**fields)


async def listing(state: Path) -> list[SandboxRecord]:
    """Every sandbox of every process of this user, as they tell it themselves."""
    found: list[SandboxRecord] = []
    for path in sockets(state):
        connection = connect(path)
        if connection is None:
            continue
        channel = await Channel.open(connection)
        try:
            answer = await ask(channel, "list")
        finally:
            channel.close()
        found += [as_record(record) for record in answer["sandboxes"]]
    return sorted(found, key=lambda record: record.id)
