"""A command in a sandbox, from the host's side: its output as it comes, and its result.

Output is kept up to a limit. A command that is waited for is killed when it passes it; of one
that runs detached the oldest output is dropped instead. Any number may follow a command.
"""

from __future__ import annotations

import asyncio
import codecs
import shlex
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Literal

from holdfast.errors import SandboxGone
from holdfast.sandbox.channel import Channel, Listener
from holdfast.sandbox.inside.frames import Header
from holdfast.sandbox.usage import Use


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
_NUMBERS: dict[Stream, int] = {"stdout": 1, "stderr": 2}


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


@dataclass(frozen=True, slots=True)
class CommandInfo:
    """A command of a sandbox, whoever started it."""

    id: str
    argv: tuple[str, ...]
    cwd: str
    started_at: datetime
    pid: int | None = None
    """Its process, as the sandbox numbers them."""
    terminal: bool = False
    """Whether it has a terminal."""
    running: bool = True


class Command:
    """A started command. `await command.wait()` gives its result."""

    def __init__(
        self,
        info: CommandInfo,
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
        self.id, self.argv = info.id, info.argv
        self._info = info
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
        self._followers: list[Listener] = []
        self._last: Header | None = None
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
        for follower in list(self._followers):
            follower({"ev": "out", "fd": _NUMBERS[stream]}, data)

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
        if header.get("processes_refused"):  # said by the process that holds the sandbox
            limits |= {Limit.PROCESSES}
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
        self._last = {
            "ev": "ended",
            "how": ended.value,
            "code": result.exit_code,
            "signal": killer,
            "cpu": used.cpu_seconds,
            "peak": used.peak_memory,
            "disk_full": Limit.DISK in limits,
            "inodes_full": Limit.INODES in limits,
            "processes_refused": Limit.PROCESSES in limits,
        }
        for follower in self._followers:
            follower(self._last, b"")
        self._followers.clear()

    def _gathered(self, stream: Stream) -> bytes:
        return b"".join(chunk.data for chunk in self._chunks if chunk.stream == stream)

    @property
    def running(self) -> bool:
        return not self._result.done()

    @property
    def detached(self) -> bool:
        """Whether nobody was to wait for it."""
        return self._keep_latest

    @property
    def kept(self) -> int:
        """Bytes of its output that are kept."""
        return self._size

    @property
    def info(self) -> CommandInfo:
        """What it is, as others are told."""
        return replace(self._info, pid=self.pid, running=self.running)

    def follow(self, listener: Listener) -> Callable[[], None]:
        """Have the output that is kept told, then what comes, then how it ended; gives what ends
        the telling."""
        for chunk in self._chunks:
            listener({"ev": "out", "fd": _NUMBERS[chunk.stream]}, chunk.data)
        if self._last is not None:
            listener(self._last, b"")
            return lambda: None
        self._followers.append(listener)

        def stop() -> None:
            if listener in self._followers:
                self._followers.remove(listener)

        return stop

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
