"""The watchdog: a thread that keeps a worker's runs when its event loop is held up.

Bodies and async steps run on the worker's loop. Code that computes there for long, or never ends,
keeps everything else waiting: the renewal of the lease, and with it all other runs. So:

- While the loop is held up, the watchdog renews the lease by a connection of its own: seconds of
  computing cost no run.
- A body that computes for longer than `body_seconds` is interrupted, and its run is parked as
  `stuck` with the line it was at. The others go on.
- A body that can't be interrupted (it catches everything, or is inside one long call of C code) is
  parked all the same, and the lease is no longer renewed: other workers take over the other runs.
- A step that holds the loop up is not interrupted, for it may be in the middle of something. The
  log says which line it is at, and after `stall_seconds` the lease is left to run out.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import sys
import threading
import time
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

from holdfast.errors import HoldfastError, RunError
from holdfast.runtime import failures

if TYPE_CHECKING:
    from holdfast.runtime.engine import Engine
    from holdfast.runtime.loop import WorkflowLoop

log = logging.getLogger("holdfast")

TICK_SECONDS = 0.5
IDLE_FACTOR = 4
"""A body that holds the loop up without computing (it waits for a lock, say) has so much longer."""
ATTEMPTS = 10
"""How often to interrupt a body before it is given up."""


class BodyInterrupted(BaseException):
    """Raised in a body that computes without end.

    No error: `except Exception` must not catch it.
    """


class Stopped(NamedTuple):
    """Why a body was interrupted."""

    seconds: float
    place: str

    def error(self) -> RunError:
        return RunError(
            f"the workflow's body ran for {self.seconds:.0f} s without waiting for anything, "
            f"at {self.place}",
            hint="a body only decides what to do: put what computes into a @step, then resume it",
        )


class BodyWatch:
    """Which body a thread is executing, if any. Entered and left by that thread alone."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.body: WorkflowLoop | None = None
        self.turn = 0
        """How many bodies were entered: the same turn is the same body, still at it."""
        self.stopped: Stopped | None = None
        self._lock = threading.Lock()

    def enter(self, body: WorkflowLoop) -> None:
        self.turn += 1
        self.stopped = None
        self.body = body

    def leave(self) -> Stopped | None:
        """The body has stopped; was it interrupted? May be asked twice: the interruption may
        strike in here."""
        with self._lock:
            self.body = None
            if self.stopped is not None:
                _raise_in(self.thread, None)  # if it has not struck yet, it must not any more
        return self.stopped

    def interrupt(self, turn: int, why: Stopped) -> bool:
        """Raise BodyInterrupted in the body, from another thread; False if it has stopped."""
        with self._lock:
            if self.body is None or self.turn != turn:
                return False
            self.stopped = self.stopped or why
            _raise_in(self.thread, BodyInterrupted)
            return True


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    raised = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), raised)


class Watchdog:
    """See the module's text."""

    def __init__(self, engine: Engine, watch: BodyWatch) -> None:
        self._engine, self._watch = engine, watch
        self._loop = asyncio.get_running_loop()
        settings = engine.settings
        self._tick = min(TICK_SECONDS, settings.lease_seconds / 10, settings.body_seconds / 4)
        self._ended = threading.Event()
        self._renewed = 0.0
        self._warned = 0.0
        self._given_up: int | None = None
        """The turn of a body that could not be interrupted."""
        self._turn = 0
        self._computed = self._waited = 0.0
        self._cpu = 0.0
        self._attempts = 0
        self._thread = threading.Thread(target=self._work, name="holdfast-watchdog", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        self._ended.set()
        await asyncio.to_thread(self._thread.join)

    def _work(self) -> None:
        while not self._ended.wait(self._tick):
            if not self._loop.is_running():
                continue  # nobody carries on with the runs: the lease is left to run out
            try:
                self._look_at_body()
                self._keep_lease()
            except HoldfastError as error:
                log.error("the store can't be written while the worker is held up: %s", error)

    # --- the lease ---

    def _keep_lease(self) -> None:
        engine = self._engine
        lease, now = engine.settings.lease_seconds, engine.clock.steady()
        last = engine.renew_at - lease / 3
        held_up = now - last
        if engine.renew_at == 0.0 or held_up < lease / 2 or now - self._renewed < lease / 3:
            return
        if self._given_up == self._watch.turn or held_up > engine.settings.stall_seconds:
            return
        self._renewed = now
        if self._warned != last:
            self._warned = last
            place = place_in_body(sys._current_frames().get(self._watch.thread))  # pyright: ignore[reportPrivateUsage]
            log.warning("the worker has been held up for %.1f s, at %s", held_up, place)
        engine.store.renew_apart(engine.me)

    # --- bodies ---

    def _look_at_body(self) -> None:
        watch, limit = self._watch, self._engine.settings.body_seconds
        turn, body, cpu = watch.turn, watch.body, _cpu_time(watch.thread)
        if body is None or turn != self._turn:
            self._turn, self._cpu = turn, cpu
            self._computed = self._waited = 0.0
            self._attempts = 0
            return
        self._computed += cpu - self._cpu
        self._waited += self._tick
        self._cpu = cpu
        seconds = max(self._computed, self._waited / IDLE_FACTOR)
        if seconds < limit or self._given_up == turn:
            return
        frame = sys._current_frames().get(watch.thread)  # pyright: ignore[reportPrivateUsage]
        if self._computed < limit and _is_debugged(frame):
            return
        why = Stopped(
            self._computed if self._computed >= limit else self._waited, place_in_body(frame)
        )
        self._attempts += 1
        if self._attempts > ATTEMPTS:
            self._give_up(body, turn, why)
        else:
            watch.interrupt(turn, why)

    def _give_up(self, body: WorkflowLoop, turn: int, why: Stopped) -> None:
        """Park the run without the loop's help, and let others take over the rest."""
        self._given_up = turn
        run = self._engine.runs.get(body.owner.run_id)
        error = why.error()
        log.critical(
            "%s can't be interrupted; its worker is given up: %s", body.owner.run_id, error
        )
        if run is not None:
            facts = {"error": failures.describe(error).as_json()}
            self._engine.store.park_apart(run.id, run.fence, facts, self._engine.clock.now())


def _cpu_time(thread: int) -> float:
    """Seconds that a thread has computed; where the system does not say, those that have passed."""
    if sys.platform == "linux":
        return time.clock_gettime(time.pthread_getcpuclockid(thread))
    return time.monotonic()


def _is_debugged(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_trace is not None:
            return True
        frame = frame.f_back
    return False


def place_in_body(frame: FrameType | None) -> str:
    """The line of the user's code that a thread is at, and the line of the body that called it."""
    lines: list[str] = []
    while frame is not None and frame.f_code.co_name not in ("run_until_blocked", "_run_once"):
        module = str(frame.f_globals.get("__name__", ""))
        if not module.startswith(("asyncio", "holdfast.runtime")):
            code = frame.f_code
            lines.append(f"{code.co_filename}:{frame.f_lineno} in {code.co_name}")
        frame = frame.f_back
    if not lines:
        return "an unknown line"
    return lines[0] if len(lines) == 1 else f"{lines[0]}, called from {lines[-1]}"
