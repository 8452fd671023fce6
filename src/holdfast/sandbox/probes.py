"""Trying a backend for real: a sandbox that runs one command and is removed.

However many ask at once, from whatever loop or thread, one trial is made and all get its answer;
whoever gives up waiting does not end it. What worked, or can't, is known for the life of the
process; a failure is tried again by the next who asks.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future

from holdfast.errors import HoldfastError
from holdfast.ids import new_id
from holdfast.sandbox.base import Backend, Instance, Probe, Standing
from holdfast.sandbox.channel import Channel
from holdfast.sandbox.inside.frames import Header
from holdfast.sandbox.spec import Spec

_LIMIT = 75.0
_CLOSE_LIMIT = 5.0
Create = Callable[[str, Spec], Awaitable[Instance]]


class Probes:
    """The trials of one host's backends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, Future[Probe]] = {}
        self._trying: set[threading.Thread] = set()

    async def of(self, backend: Backend) -> Probe:
        """What the trial of this backend says, waiting for it if it is going on."""
        return await asyncio.wrap_future(self._flight(backend))

    def _flight(self, backend: Backend) -> Future[Probe]:
        with self._lock:
            flight = self._known.get(backend.name)
            if flight is None:
                flight = self._known[backend.name] = Future()
                flight.set_running_or_notify_cancel()  # from here on no caller can cancel it
                # A loop of its own: it must not end with the first caller's.
                trial = threading.Thread(
                    target=self._try, args=(backend, flight), name=f"probe {backend.name}"
                )
                self._trying.add(trial)
                trial.start()
            return flight

    def _try(self, backend: Backend, flight: Future[Probe]) -> None:
        try:
            found = asyncio.run(backend.probe())
        except BaseException as error:  # noqa: BLE001 - whoever waits gets it, whatever it is
            self._settle(backend, forget=True)
            flight.set_exception(error)
        else:
            self._settle(backend, forget=found.standing is Standing.FAILED)
            flight.set_result(found)

    def _settle(self, backend: Backend, *, forget: bool) -> None:
        with self._lock:
            self._trying.discard(threading.current_thread())
            if forget:
                del self._known[backend.name]

    def close(self) -> None:
        """Wait for what is being tried, so that it leaves nothing behind."""
        for trial in list(self._trying):
            trial.join(_CLOSE_LIMIT)


async def try_out(create: Create, warnings: tuple[str, ...] = (), limit: float = _LIMIT) -> Probe:
    """Whether a sandbox made like this comes up, echoes, and goes."""
    try:
        async with asyncio.timeout(limit):
            said = await _echo(create)
    except TimeoutError:
        return Probe(Standing.FAILED, f"no answer within {limit:.0f} s")
    except (HoldfastError, OSError) as error:
        return Probe(Standing.FAILED, str(error).splitlines()[0])
    if said != b"holdfast\n":
        return Probe(Standing.FAILED, f"a probe in it said {said!r}")
    return Probe(Standing.WORKS, "works", warnings)


async def _echo(create: Create) -> bytes:
    instance = await create(new_id("sbx"), Spec())
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
