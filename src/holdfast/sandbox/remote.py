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

ANSWER_LIMIT = 2.0
"""Seconds a process has to answer; one that is blocked, or whose loop has ended, never does."""


@dataclass(slots=True)
class RemoteInstance:
    """A sandbox that another process holds."""

    id: str
    channel: socket.socket
    control: Channel | None = None
    listeners: Listeners | None = None
    relayed: bool = False
    upper: int | None = None

    def usage(self, *, thorough: bool = False) -> Usage:
        return Usage()  # the process that holds it tells what was killed, and used

    def restart_peak(self) -> bool:
        return False

    def freeze(self) -> bool:
        return False

    def thaw(self) -> None:
        """It is never frozen from here."""

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
            async with asyncio.timeout(ANSWER_LIMIT):
                answer = await ask(channel, "attach", sandbox=id)
        except TimeoutError:
            channel.close()
            raise SandboxError(
                f"the process that holds {id} does not answer",
                hint="its event loop is blocked or has ended; end the process to end the sandbox",
            ) from None
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
    connection.settimeout(ANSWER_LIMIT)  # a queue full of others that wait is no answer either
    try:
        connection.connect(f"/proc/self/fd/{folder}/{path.name}")
    except (ConnectionRefusedError, FileNotFoundError, TimeoutError):
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


@dataclass(frozen=True, slots=True)
class Listing:
    """The sandboxes of every process of this user."""

    sandboxes: list[SandboxRecord]
    silent: list[str]
    """Ids of those whose process lives and does not answer: nothing else is known of them."""


async def listing(state: Path) -> Listing:
    """What runs here, as the processes tell it themselves, each given a moment to answer."""
    told = await asyncio.gather(*(_ask_one(path) for path in sockets(state)))
    found = [record for records, _ in told for record in records]
    silent = [id for _, ids in told for id in ids]
    return Listing(sorted(found, key=lambda record: record.id), sorted(silent))


async def _ask_one(path: Path) -> tuple[list[SandboxRecord], list[str]]:
    connection = await asyncio.to_thread(connect, path)
    if connection is None:
        return [], []
    channel = await Channel.open(connection)
    try:
        async with asyncio.timeout(ANSWER_LIMIT):
            answer = await ask(channel, "list")
    except TimeoutError:
        return [], [file.stem for file in path.parent.glob("sandboxes/sbx_*.json")]
    except SandboxError:
        return [], []  # it has ended meanwhile, and its sandboxes with it
    finally:
        channel.close()
    return [as_record(record) for record in answer["sandboxes"]], []
