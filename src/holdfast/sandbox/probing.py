"""Trying a backend for real: a sandbox that runs one command and is removed."""

from __future__ import annotations

import asyncio

from holdfast.errors import HoldfastError
from holdfast.ids import new_id
from holdfast.sandbox.base import Backend, Probe
from holdfast.sandbox.channel import Channel
from holdfast.sandbox.inside.frames import Header
from holdfast.sandbox.spec import Spec

_LIMIT = 30.0


async def try_out(backend: Backend, warnings: tuple[str, ...] = (), limit: float = _LIMIT) -> Probe:
    """Whether a sandbox of this backend comes up, echoes, and goes."""
    try:
        async with asyncio.timeout(limit):
            said = await _echo(backend)
    except TimeoutError:
        return Probe(False, f"no answer within {limit:.0f} s")
    except (HoldfastError, OSError) as error:
        return Probe(False, str(error).splitlines()[0])
    if said != b"holdfast\n":
        return Probe(False, f"a probe in it said {said!r}")
    return Probe(True, "works", warnings)


async def _echo(backend: Backend) -> bytes:
    instance = await backend.create(new_id("sbx"), Spec())
    try:
        channel = await Channel.open(instance.channel)
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        said = bytearray()

        def listen(header: Header, payload: bytes) -> None:
            if header["ev"] == "out":
                said.extend(payload)
            elif header["ev"] in ("ended", "error", "gone") and not ended.done():
                ended.set_result(None)

        run: Header = {"argv": ["/bin/echo", "holdfast"], "env": {}, "cwd": "/", "timeout": 10}
        await channel.post("run", run, b"", listen)
        await ended
        channel.close()
        return bytes(said)
    finally:
        await instance.destroy()
