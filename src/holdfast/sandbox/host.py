"""This process as a host of sandboxes: its folder, backends, queue, pool, observers and registry.

One per process, made on first use; another can be made for tests or for other settings.
Making it sweeps up after processes that are gone. Its sandboxes end with the process, however
that ends.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast import session
from holdfast.errors import NotFound, SandboxUnavailable, UsageError
from holdfast.ids import new_id
from holdfast.sandbox import cleanup
from holdfast.sandbox.base import Backend, Instance, Isolation, Probe, Standing
from holdfast.sandbox.cleanup import Janitor
from holdfast.sandbox.control import ControlServer
from holdfast.sandbox.gvisor import GvisorBackend
from holdfast.sandbox.microvm import MicrovmBackend
from holdfast.sandbox.namespace.backend import NamespaceBackend
from holdfast.sandbox.probes import Probes
from holdfast.sandbox.recording import Observer, StoreObserver
from holdfast.sandbox.runtimes import DEFAULT_PACKAGES
from holdfast.sandbox.settings import DEFAULT_MOST, DEFAULT_POOL, BackendName, IsolationName, load
from holdfast.sandbox.spec import Spec
from holdfast.sandbox.state import HostFolder, default_state

if TYPE_CHECKING:
    from holdfast.sandbox.egress.authority import Authority
    from holdfast.sandbox.sandbox import Sandbox

log = logging.getLogger("holdfast")
_REFILL_AFTER = 0.02  # seconds: first the caller's first command, then the next sandbox


class Turns:
    """A queue for sandboxes: so many at a time, the rest in the order they came, from any thread.

    A host has at most `max_sandboxes` at a time, and makes only a few at once, since many that are
    made together under load would all be late. Waiting has no limit of its own: put one around it.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._free = most
        self._lock = threading.Lock()
        self._waiting: deque[Future[None]] = deque()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """Whether the next one has to wait."""
        return self._free == 0

    async def take(self) -> None:
        """Wait for a turn."""
        with self._lock:
            if self._free and not self._waiting:
                self._free -= 1
                return
            turn: Future[None] = Future()
            self._waiting.append(turn)
        try:
            await asyncio.wrap_future(turn)
        except asyncio.CancelledError:
            if not turn.cancelled():  # it had come in the same moment
                self.give_back()
            raise

    def give_back(self) -> None:
        """Let the next one have it."""
        with self._lock:
            while self._waiting:
                turn = self._waiting.popleft()
                if turn.set_running_or_notify_cancel():
                    turn.set_result(None)
                    return
            self._free += 1


class Pool:
    """A warm pool: instances of one backend made ahead, of the kind last asked for.

    Bounded in number; each is fresh, and used once. Only plain sandboxes are pooled: what differs
    in limits or layers from what was asked lately is let go.
    """

    def __init__(self, backend: Backend, size: int) -> None:
        self._backend = backend
        self.size = size
        self._ready: deque[Instance] = deque()
        self._key: tuple[object, ...] | None = None
        self._filling: asyncio.Task[None] | None = None
        self._dropping: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._ready)

    def take(self, spec: Spec) -> Instance | None:
        """A ready instance of this kind, or None; from now on `refill` makes this kind."""
        if self.size <= 0:
            return None
        if spec.pool_key != self._key:
            self._key = spec.pool_key
            for instance in self._ready:
                self._spawn(instance.destroy())
            self._ready.clear()
        return self._ready.popleft() if self._ready else None

    def refill(self, spec: Spec) -> None:
        """Make more in the background, as many as are lacking."""
        if self.size <= 0:
            return
        if self._filling is None or self._filling.done():
            self._filling = asyncio.get_running_loop().create_task(self._fill_later(spec))

    async def _fill_later(self, spec: Spec) -> None:
        await asyncio.sleep(self._backend.refill_after)
        await self._fill(spec)

    async def _fill(self, spec: Spec) -> None:
        key = spec.pool_key
        while len(self._ready) < self.size and self._key == key:
            instance = await self._backend.create(new_id("sbx"), spec)
            if self._key == key and len(self._ready) < self.size:
                self._ready.append(instance)
            else:
                await instance.destroy()

    async def warm(self, spec: Spec) -> None:
        """Fill the pool for this kind now, and wait for it."""
        self._key = spec.pool_key
        await self._fill(spec)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._dropping.add(task)
        task.add_done_callback(self._dropping.discard)

    async def drain(self) -> None:
        """Remove everything that is ready, and stop refilling."""
        if self._filling is not None and not self._filling.done():
            self._filling.cancel()
            await asyncio.wait([self._filling])
        self._key = None
        while self._ready:
            await self._ready.popleft().destroy()
        if self._dropping:
            await asyncio.wait(self._dropping)


@dataclass(frozen=True, slots=True)
class Found:
    """A backend and what its probe said."""

    backend: Backend
    probe: Probe


class Host:
    """Makes sandboxes and knows those it made."""

    def __init__(
        self,
        state: str | Path | None = None,
        *,
        pool: int = DEFAULT_POOL,
        packages: tuple[str, ...] = DEFAULT_PACKAGES,
        use_cgroups: bool = True,
        backend: BackendName = "auto",
        min_isolation: IsolationName | None = None,
        max_sandboxes: int = DEFAULT_MOST,
    ) -> None:
        if max_sandboxes < 1:
            raise UsageError(f"max_sandboxes={max_sandboxes} leaves none", hint="at least 1")
        self._places = Turns(max_sandboxes)
        self._making = Turns(max(4, 2 * (os.cpu_count() or 1)))
        self._preferred: BackendName = backend
        self._floor = min_isolation
        self.state = Path(state) if state is not None else default_state()
        self.swept = cleanup.sweep(str(self.state))
        self.folder = HostFolder(self.state)
        self.observers: list[Observer] = []
        self.sandboxes: dict[str, Sandbox] = {}
        self._pool_size = pool
        self._pools: dict[str, Pool] = {}
        self._probes = Probes()
        self._said: set[str] = set()
        self._backends: dict[str, Backend] = {}
        self._make: dict[str, Callable[[], Backend]] = {
            "microvm": lambda: MicrovmBackend(self.folder, self.state, packages=packages),
            "gvisor": lambda: GvisorBackend(self.folder, self.state, packages=packages),
            "namespace": lambda: NamespaceBackend(
                self.folder, self.state, packages=packages, use_cgroups=use_cgroups
            ),
        }
        self._authority: Authority | None = None
        self._janitor: Janitor | None = None
        self._control: ControlServer | None = None
        self._served_by: asyncio.AbstractEventLoop | None = None
        self.closed = False
        self._pid = os.getpid()
        session.add_holder(self)

    def backend(self, name: str) -> Backend:
        """The backend of this name, whether it works here or not."""
        if name not in self._make:
            raise UsageError(
                f"no backend {name!r}", hint=f"there are {', '.join(self._make)} and auto"
            )
        if self._janitor is None and not self.closed:
            self._janitor = Janitor(self.folder.path)
        if name not in self._backends:
            self._backends[name] = self._make[name]()
        return self._backends[name]

    async def probe(self, name: str) -> Found:
        """A backend and whether it works here; one trial serves all who ask."""
        backend = self.backend(name)
        return Found(backend, await self._probes.of(backend))

    async def choose(self, name: BackendName, at_least: IsolationName | None) -> Backend:
        """The named backend, or the strongest that works; never a weaker one than asked."""
        name = name if name != "auto" else self._preferred
        floors = [Isolation[each.upper()] for each in (at_least, self._floor) if each]
        floor = max(floors, default=Isolation.NAMESPACE)
        if name != "auto":
            backend = self.backend(name)
            if backend.isolation < floor:
                raise SandboxUnavailable(
                    f"backend {name!r} is weaker than min_isolation={floor.name.lower()!r}",
                    hint="ask for a stronger backend, or for less isolation",
                )
            return backend
        return await self._strongest(floor)

    async def _strongest(self, floor: Isolation) -> Backend:
        """What `auto` takes: a backend is passed over only if it can't be meant to work here."""
        passed: list[str] = []
        less: list[str] = []
        for candidate in self._make:  # strongest first
            if self.backend(candidate).isolation < floor:
                break
            found = await self.probe(candidate)
            if found.probe.works:
                self._say(found.backend, less)
                return found.backend
            passed.append(f"{candidate}: {found.probe.reason}")
            if found.probe.standing is Standing.FAILED:
                raise self._failed(found, floor)
            if found.probe.standing is Standing.UNUSABLE:
                less.append(passed[-1])
        raise SandboxUnavailable(
            f"no backend that is at least {floor.name.lower()} works here ({'; '.join(passed)})",
            hint="`holdfast sandbox doctor` tells what each one needs",
        )

    def _failed(self, found: Found, floor: Isolation) -> SandboxUnavailable:
        hint = "`holdfast sandbox doctor` tries it again"
        weaker = [each for each in self._make if self.backend(each).isolation >= floor]
        weaker = weaker[weaker.index(found.backend.name) + 1 :]
        if weaker:
            named = " or ".join(f"backend={each!r}" for each in weaker)
            hint += f"; to do with less isolation ask for it: {named}, in the call or in [sandbox]"
        return SandboxUnavailable(
            f"{found.backend.name} is installed, but a trial of it failed: {found.probe.reason}",
            hint=hint,
        )

    def _say(self, backend: Backend, stronger: list[str]) -> None:
        """Say once what `auto` came to, as a warning if something stronger is installed."""
        if backend.name in self._said:
            return
        self._said.add(backend.name)
        taken = f"sandboxes are made with {backend.name}: {backend.isolation.words}"
        if stronger:
            log.warning("%s; installed, but not usable here: %s", taken, "; ".join(stronger))
        else:
            log.info("%s", taken)

    async def launch(self, backend: Backend, spec: Spec) -> Instance:
        """A fresh instance, from the pool if one is ready."""
        if self._places.full:
            log.warning(
                "%d sandboxes run, as many as [sandbox] max_sandboxes allows; %d wait for a place",
                self._places.most,
                self._places.waiting + 1,
            )
        await self._places.take()
        try:
            if self.closed:
                raise SandboxUnavailable("this host is closed")
            pool = self._pool(backend)
            instance = pool.take(spec) or await self._create(backend, spec)
        except BaseException:
            self._places.give_back()
            raise
        asyncio.get_running_loop().call_later(_REFILL_AFTER, pool.refill, spec)
        return instance

    async def _create(self, backend: Backend, spec: Spec) -> Instance:
        await self._making.take()
        try:
            return await backend.create(new_id("sbx"), spec)
        finally:
            self._making.give_back()

    @property
    def waiting(self) -> int:
        """How many callers wait for a sandbox: for a place, or for those before them."""
        return self._places.waiting + self._making.waiting

    def make_room(self) -> None:
        """A sandbox that was launched is no more: the next who waits may have its place."""
        self._places.give_back()

    def _pool(self, backend: Backend) -> Pool:
        if backend.name not in self._pools:
            self._pools[backend.name] = Pool(backend, self._pool_size)
        return self._pools[backend.name]

    async def warm(self, backend: BackendName = "auto", spec: Spec | None = None) -> None:
        """Start the backend and fill its pool, so that the first sandbox is as fast as the rest."""
        chosen = await self.choose(backend, None)
        await self._pool(chosen).warm(spec or Spec())

    async def serve(self) -> None:
        """Let other processes of this user reach the sandboxes, as long as this loop runs."""
        loop = asyncio.get_running_loop()
        if self._served_by is not loop:
            if self._control is not None:
                self._control.close()
            self._control, self._served_by = ControlServer(self), loop
            await self._control.start()

    def authority(self) -> Authority:
        """Who vouches, inside sandboxes only, for hosts whose requests get headers."""
        if self._authority is None:
            # Only now: few hosts need it, and it takes a moment to load.
            from holdfast.sandbox.egress.authority import Authority

            self._authority = Authority()
        return self._authority

    def tell(self, what: Callable[[Observer], None]) -> None:
        """Tell every observer."""
        for observer in self.observers:
            what(observer)

    def get(self, id: str) -> Sandbox:
        """The running sandbox of this id."""
        found = self.sandboxes.get(id)
        if found is None:
            raise NotFound(
                f"no sandbox {id} runs here",
                hint="it has stopped, or its process has ended",
            )
        return found

    def runs(self) -> set[str]:
        """The runs that sandboxes of this process were made in."""
        if self._pid != os.getpid():
            return set()  # a forked child must not end its parent's
        made_in = {sandbox.record.run_id for sandbox in list(self.sandboxes.values())}
        return {run_id for run_id in made_in if run_id is not None}

    async def end_run(self, run_id: str) -> None:
        """Stop every sandbox that was made in this run: a run that ended has none."""
        ended = [s for s in list(self.sandboxes.values()) if s.record.run_id == run_id]
        await asyncio.gather(*(sandbox.stop_from_anywhere("its run ended") for sandbox in ended))

    async def aclose(self) -> None:
        """Stop all sandboxes, empty the pool, end the backends."""
        await asyncio.gather(*(s.stop("host closed") for s in list(self.sandboxes.values())))
        for pool in self._pools.values():
            await pool.drain()
        if self._control is not None:
            self._control.close()
            self._control = None
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """End the backends; what still runs is ended by them, or by the kernel."""
        if self.closed:
            return
        self.closed = True
        session.remove_holder(self)
        self._probes.close()
        if self._control is not None:
            self._control.close()
        self.folder.release()
        for sandbox in list(self.sandboxes.values()):
            sandbox.metering.look()
        for backend in self._backends.values():
            backend.close()
        cleanup.clean(str(self.folder.path), wait=1.0)
        if self._janitor is not None:
            self._janitor.close()
        for sandbox in list(self.sandboxes.values()):
            sandbox.write_off("its process ended")
        for observer in self.observers:
            if isinstance(observer, StoreObserver):
                observer.close()


_default: Host | None = None


def default_host() -> Host:
    """This process's host, made on first use."""
    global _default
    if _default is None or _default.closed:
        settings = load()
        _default = Host(
            settings.dir,
            pool=settings.pool,
            backend=settings.backend,
            min_isolation=settings.min_isolation,
            max_sandboxes=settings.max_sandboxes,
        )
        _default.observers.append(StoreObserver())
        atexit.register(_default.close)
    return _default


def _forget_in_child() -> None:
    global _default
    _default = None  # a forked child has no sandboxes of its own, and must not end its parent's


os.register_at_fork(after_in_child=_forget_in_child)
