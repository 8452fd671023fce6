"""A command in a sandbox, from the host's side: its output as it comes, and its result.

Output is kept up to a limit. A command that is waited for is killed when it passes it; of one
that runs detached the oldest output is dropped instead.
"""

from __future__ import annotations

import asyncio
import codecs
import shlex
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Literal

from holdfast.durations import Duration, seconds
from holdfast.errors import CommandNotStarted, SandboxGone
from holdfast.ids import new_id
from holdfast.records.sandboxes import CommandRecord
from holdfast.sandbox.base import Instance
from holdfast.sandbox.channel import Channel, file_error
from holdfast.sandbox.inside.frames import Header
from holdfast.sandbox.namespace.view import WORKSPACE
from holdfast.sandbox.recording import Observer, of_step
from holdfast.sandbox.spec import DEFAULT_OUTPUT, Size, check_arguments, checked_env, inside, size
from holdfast.sandbox.usage import Meter, Metering, Use


class Ended(StrEnum):
    """How a command ended."""

    EXITED = "exited"
    SIGNALLED = "signalled"
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
    OUTPUT_LIMIT = "output_limit"
    STOPPED = "stopped"
    """With its sandbox, which was stopped or ended while the command ran."""


class Limit(StrEnum):
    """A limit that was reached while a command ran, though the command ended by itself."""

    DISK = "disk"
    INODES = "inodes"
    PROCESSES = "processes"


@dataclass(frozen=True, slots=True)
class CommandResult:
    """A finished command."""

    id: str
    argv: tuple[str, ...]
    ended: Ended
    exit_code: int | None
    """None unless it exited by itself."""
    signal: int | None
    stdout_bytes: bytes = field(repr=False)
    stderr_bytes: bytes = field(repr=False)
    seconds: float
    limits_hit: frozenset[Limit] = frozenset()
    cpu_seconds: float | None = None
    """User and system time, its children's included; None if nobody could tell."""
    peak_memory: int | None = None
    """The most memory that was held while it ran, in bytes; None if nobody could tell."""

    @property
    def ok(self) -> bool:
        """It ended by itself with exit code 0."""
        return self.ended is Ended.EXITED and self.exit_code == 0

    @property
    def stdout(self) -> str:
        """Standard output as text; bytes that are no UTF-8 are replaced."""
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        """Standard error as text; bytes that are no UTF-8 are replaced."""
        return self.stderr_bytes.decode("utf-8", "replace")

    def __str__(self) -> str:
        how = {
            Ended.EXITED: f"exited with {self.exit_code}",
            Ended.SIGNALLED: f"killed by signal {self.signal}",
        }.get(self.ended, self.ended.replace("_", " "))
        return f"{shlex.join(self.argv)}: {how} after {self.seconds:.2f} s"


Stream = Literal["stdout", "stderr"]
OnText = Callable[[str], None]
_STREAMS: dict[object, Stream] = {1: "stdout", 2: "stderr"}


@dataclass(frozen=True, slots=True)
class Output:
    """A piece of what a command wrote."""

    stream: Stream
    data: bytes = field(repr=False)

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Judge:
    """What the sandbox knows of a command's end that the agent can't: asked once, at the end."""

    why_gone: Callable[[], Ended]
    """How a command ended whose sandbox is no more."""
    refine: Callable[[Ended, int | None], tuple[Ended, frozenset[Limit]]]
    """How it really ended, and which limits were reached, given how the agent saw it."""
    use: Callable[[object, object], Use]
    """What it used, given what the agent says of time and memory."""


class Command:
    """A started command. `await command.wait()` gives its result."""

    def __init__(
        self,
        id: str,
        argv: tuple[str, ...],
        channel: Channel,
        judge: Judge,
        *,
        max_output: int,
        keep_latest: bool,
        on_stdout: OnText | None = None,
        on_stderr: OnText | None = None,
        on_start: Callable[[], None],
        on_end: Callable[[CommandResult], None],
    ) -> None:
        self.id, self.argv = id, argv
        self.pid: int | None = None
        self._channel, self._judge = channel, judge
        self._max_output, self._keep_latest = max_output, keep_latest
        self._callbacks: dict[Stream, OnText | None] = {"stdout": on_stdout, "stderr": on_stderr}
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders = {s: decoder("replace") for s in _STREAMS.values()}
        self._on_start, self._on_end = on_start, on_end
        self._chunks: deque[Output] = deque()
        self._dropped = 0
        self._size = 0
        self.written: dict[Stream, int] = dict.fromkeys(_STREAMS.values(), 0)
        """How many bytes came of each stream, kept or not."""
        self._news = asyncio.Event()
        self._failure: Exception | None = None
        self._began = time.monotonic()
        loop = asyncio.get_running_loop()
        self.started: asyncio.Future[Header] = loop.create_future()
        self._result: asyncio.Future[CommandResult] = loop.create_future()
        self.key = -1

    def take_number(self, key: int) -> None:
        """The number its request goes by."""
        self.key = key

    def receive(self, header: Header, payload: bytes) -> None:
        """An event from the agent."""
        event = header["ev"]
        if event == "out" and not self._result.done():
            self._output(_STREAMS.get(header.get("fd"), "stdout"), payload)
        elif event == "started":
            self.pid = header["pid"] if isinstance(header.get("pid"), int) else None
            if not self.started.done():
                # At once: its end may already be in the bytes that came with this.
                self._on_start()
            self._settle(header)
        elif event == "error":
            self._settle(header)
        elif event == "ended":
            self._settle(header)
            self._finish(header)
        elif event == "gone":
            self._settle(header)
            if not self._result.done():
                used = self._judge.use(None, None)
                self._end(self._judge.why_gone(), None, None, frozenset(), used)

    def _settle(self, header: Header) -> None:
        if not self.started.done():
            self.started.set_result(header)

    def _output(self, stream: Stream, data: bytes) -> None:
        self.written[stream] += len(data)
        if not self._keep_latest and self._size + len(data) > self._max_output:
            data = data[: self._max_output - self._size]  # the agent should have stopped it
        self._chunks.append(Output(stream, data))
        self._size += len(data)
        while self._keep_latest and self._size > self._max_output and len(self._chunks) > 1:
            self._size -= len(self._chunks.popleft().data)
            self._dropped += 1
        self._tell(stream, data, final=False)
        self._news.set()

    def _tell(self, stream: Stream, data: bytes, *, final: bool) -> None:
        callback = self._callbacks[stream]
        if callback is None or self._failure is not None:
            return
        text = self._decoders[stream].decode(data, final)
        if not text:
            return
        try:
            callback(text)
        except Exception as error:  # noqa: BLE001 - raised to whoever waits for the command
            self._failure = error
            self._channel.tell("kill", command=self.key, how=Ended.STOPPED.value)

    def _finish(self, header: Header) -> None:
        if self._result.done():
            return
        try:
            ended = Ended(str(header.get("how")))
        except ValueError:
            ended = Ended.STOPPED
        code, killer = header.get("code"), header.get("signal")
        code = code if isinstance(code, int) else None
        ended, limits = self._judge.refine(ended, code)
        if header.get("disk_full") and not (ended is Ended.EXITED and code == 0):
            limits |= {Limit.DISK}
        if header.get("inodes_full") and not (ended is Ended.EXITED and code == 0):
            limits |= {Limit.INODES}
        used = self._judge.use(header.get("cpu"), header.get("peak"))
        self._end(ended, code, killer if isinstance(killer, int) else None, limits, used)

    def _end(
        self,
        ended: Ended,
        code: int | None,
        killer: int | None,
        limits: frozenset[Limit],
        used: Use,
    ) -> None:
        self._channel.drop(self.key)
        for stream in self._callbacks:
            self._tell(stream, b"", final=True)
        result = CommandResult(
            id=self.id,
            argv=self.argv,
            ended=ended,
            exit_code=code if ended is Ended.EXITED or killer is None else None,
            signal=killer,
            stdout_bytes=self._gathered("stdout"),
            stderr_bytes=self._gathered("stderr"),
            seconds=time.monotonic() - self._began,
            limits_hit=limits,
            cpu_seconds=used.cpu_seconds,
            peak_memory=used.peak_memory,
        )
        self._result.set_result(result)
        self._news.set()
        self._on_end(result)

    def _gathered(self, stream: Stream) -> bytes:
        return b"".join(chunk.data for chunk in self._chunks if chunk.stream == stream)

    @property
    def running(self) -> bool:
        return not self._result.done()

    def logs(self) -> str:
        """What is kept of its output so far, both streams as they came."""
        return b"".join(chunk.data for chunk in self._chunks).decode("utf-8", "replace")

    async def wait(self) -> CommandResult:
        """Its result, once it has ended; raises what `on_stdout` or `on_stderr` raised."""
        result = await asyncio.shield(self._result)
        if self._failure is not None:
            raise self._failure
        return result

    def __aiter__(self) -> AsyncIterator[Output]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[Output]:
        seen = self._dropped
        while True:
            seen = max(seen, self._dropped)
            while seen - self._dropped < len(self._chunks):
                yield self._chunks[seen - self._dropped]
                seen = max(seen + 1, self._dropped)
            if not self.running:
                return
            self._news.clear()
            await self._news.wait()

    async def kill(self, signal: int = 9) -> None:
        """Send a signal to it and all it started."""
        if self.running:
            await self._channel.request("kill", command=self.key, signal=int(signal))

    async def end(self, how: Ended) -> None:
        """Kill it for a reason that its result will tell."""
        if self.running:
            try:
                await self._channel.request("kill", command=self.key, how=how.value)
            except SandboxGone:
                return

    async def write_stdin(self, data: bytes | str, *, last: bool = False) -> bool:
        """Write to its standard input; False once it no longer reads."""
        raw = data.encode() if isinstance(data, str) else data
        step = 256 * 1024
        for start in range(0, max(len(raw), 1), step):
            piece = raw[start : start + step]
            final = last and start + step >= len(raw)
            answer = await self._channel.request("stdin", piece, command=self.key, last=final)
            if not answer.get("open"):
                return False
        return True

    async def close_stdin(self) -> None:
        """Let it read the end of its standard input."""
        await self.write_stdin(b"", last=True)


# --- the commands of one sandbox: starting them, knowing those that run, recording them ---

TIME_LIMIT = "time limit"
"""Why a sandbox stopped that lived as long as it may."""
TAIL = 64 * 1024
"""Bytes of the end of a command's output that are put on record, of each stream."""
_GRACE = 5.0  # beyond a command's time limit, until the host ends the sandbox itself

Tell = Callable[[Callable[[Observer], None]], None]


@dataclass(frozen=True, slots=True)
class Options:
    """How a command is to run, beside its words."""

    cwd: str | None = None
    env: Mapping[str, str] | None = None
    stdin: bool = False
    timeout: Duration | None = None
    max_output: Size = DEFAULT_OUTPUT
    keep_latest: bool = False
    """Drop the oldest output when there is too much, instead of ending the command."""
    on_stdout: OnText | None = None
    on_stderr: OnText | None = None


class Commands:
    """Starts commands through one sandbox's channel, and puts them on record."""

    def __init__(
        self,
        sandbox_id: str,
        instance: Instance,
        channel: Channel,
        *,
        metering: Metering,
        tell: Tell,
        stop: Callable[[str], object],
        why_stopped: Callable[[], str | None],
    ) -> None:
        self._sandbox_id, self._instance, self._channel = sandbox_id, instance, channel
        self._metering = metering
        self._tell, self._stop, self._why_stopped = tell, stop, why_stopped
        self._running: dict[str, CommandRecord] = {}

    def __len__(self) -> int:
        """How many run."""
        return len(self._running)

    async def launch(
        self, argv: tuple[str, ...], env: Mapping[str, str], options: Options
    ) -> Command:
        """Start a program; `env` is what the sandbox gives every command."""
        check_arguments(argv)
        limit = seconds(options.timeout) if options.timeout is not None else None
        folder = inside(options.cwd or WORKSPACE)
        most = size(options.max_output)
        record = CommandRecord(
            new_id("cmd"), self._sandbox_id, argv, folder, datetime.now(UTC), **of_step()
        )
        watchdog: asyncio.TimerHandle | None = None
        late = False

        def expired() -> None:
            nonlocal late
            late = True
            self._stop("a command's time limit passed and the sandbox did not end it")

        def started() -> None:
            nonlocal watchdog
            if limit is not None:
                loop = asyncio.get_running_loop()
                watchdog = loop.call_later(limit + _GRACE, expired)
            self._running[record.id] = record
            self._tell(lambda observer: observer.command_started(record))

        def ended(result: CommandResult) -> None:
            if watchdog is not None:
                watchdog.cancel()
            self._running.pop(record.id, None)
            whole = _with_end(record, result, command.written)
            self._tell(lambda observer: observer.command_ended(whole))

        meter = self._metering.begin()
        command = Command(
            record.id,
            argv,
            self._channel,
            self._judge(meter, lambda: late),
            max_output=most,
            keep_latest=options.keep_latest,
            on_stdout=options.on_stdout,
            on_stderr=options.on_stderr,
            on_start=started,
            on_end=ended,
        )
        header = {
            "argv": list(argv),
            "env": {**env, **checked_env(options.env or {})},
            "cwd": folder,
            "stdin": options.stdin,
            "timeout": limit,
            "max_output": None if options.keep_latest else most,
        }
        try:
            await self._channel.post(
                "run", header, b"", command.receive, numbered=command.take_number
            )
        except SandboxGone:
            meter.drop()
            raise
        told = await command.started
        if told["ev"] == "gone":
            raise SandboxGone(
                f"{self._sandbox_id} is gone: {self._channel.error or 'it was ended'}"
            )
        if told["ev"] == "error":
            self._channel.drop(command.key)
            meter.drop()
            failure = file_error(told)
            raise CommandNotStarted(failure.message, errno=failure.errno, path=failure.path)
        return command

    def write_off(self, now: datetime) -> None:
        """The sandbox is no more, and nobody told how its commands ended."""
        for record in list(self._running.values()):
            ended = replace(record, ended_at=now, ended=Ended.STOPPED.value)
            self._tell(lambda observer, ended=ended: observer.command_ended(ended))
        self._running.clear()

    def _judge(self, meter: Meter, late: Callable[[], bool]) -> Judge:
        before = meter.before

        def refine(ended: Ended, code: int | None) -> tuple[Ended, frozenset[Limit]]:
            if ended is Ended.EXITED and code == 0:
                return ended, frozenset()
            now = self._instance.usage()
            limits = set[Limit]()
            if now.process_refusals > before.process_refusals:
                limits.add(Limit.PROCESSES)
            if ended in (Ended.EXITED, Ended.SIGNALLED) and now.memory_kills > before.memory_kills:
                ended = Ended.OUT_OF_MEMORY
            return ended, frozenset(limits)

        def why_gone() -> Ended:
            if late() or self._why_stopped() == TIME_LIMIT:
                return Ended.TIMED_OUT
            if self._instance.usage().memory_kills > before.memory_kills:
                return Ended.OUT_OF_MEMORY
            return Ended.STOPPED

        return Judge(why_gone, refine, meter.end)


def _with_end(
    record: CommandRecord, result: CommandResult, written: Mapping[Stream, int]
) -> CommandRecord:
    """The record of a command that has ended, with the end of what it wrote."""
    out, err = tail(result.stdout_bytes), tail(result.stderr_bytes)
    return replace(
        record,
        ended_at=datetime.now(UTC),
        ended=result.ended.value,
        exit_code=result.exit_code,
        signal=result.signal,
        seconds=result.seconds,
        limits_hit=tuple(sorted(limit.value for limit in result.limits_hit)),
        stdout_bytes=written["stdout"],
        stderr_bytes=written["stderr"],
        stdout_tail=out.decode("utf-8", "replace"),
        stderr_tail=err.decode("utf-8", "replace"),
        stdout_cut=written["stdout"] - len(out),
        stderr_cut=written["stderr"] - len(err),
        cpu_seconds=result.cpu_seconds,
        peak_memory=result.peak_memory,
    )


def tail(data: bytes) -> bytes:
    """The end of what was written, not beginning inside a character."""
    if len(data) <= TAIL:
        return data
    end = data[-TAIL:]
    inside = next((i for i in range(4) if end[i] & 0xC0 != 0x80), 0)
    return end[inside:]
