"""The commands of one sandbox: starting them, finding those that run, putting them on record.

Every command is known here, were it started by another process: listed, followed and signalled by
its id. Those that have ended are remembered for a while.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from holdfast.durations import Duration, seconds
from holdfast.errors import CommandNotStarted, NotFound, Refused, SandboxGone
from holdfast.ids import new_id
from holdfast.records.sandboxes import CommandRecord
from holdfast.sandbox.base import Instance
from holdfast.sandbox.channel import Channel, Listener, file_error
from holdfast.sandbox.command import (
    Command,
    CommandInfo,
    CommandResult,
    Ended,
    Judge,
    Limit,
    OnText,
    Stream,
)
from holdfast.sandbox.inside.frames import Header
from holdfast.sandbox.namespace.view import WORKSPACE
from holdfast.sandbox.recording import Observer, of_step
from holdfast.sandbox.spec import DEFAULT_OUTPUT, Size, check_arguments, checked_env, inside, size
from holdfast.sandbox.terminal import TerminalSize
from holdfast.sandbox.usage import Meter, Metering

TIME_LIMIT = "time limit"
"""Why a sandbox stopped that lived as long as it may."""
TAIL = 64 * 1024
"""Bytes of the end of a command's output that are put on record, of each stream."""
_MOST_REMEMBERED = 32
"""Commands that have ended and can still be asked for by id, as far as their output is little."""
_BYTES_REMEMBERED = 4 * 1024 * 1024
KEPT_FOR_OTHERS = 1024 * 1024
"""Bytes of the output of a command that another process started, for those who ask later."""
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
    terminal: TerminalSize | None = None


class Commands:
    """Starts commands through one sandbox's channel, and knows them by id."""

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
        self._known: OrderedDict[str, Command] = OrderedDict()

    def __len__(self) -> int:
        """How many run."""
        return len(self._running)

    def infos(self) -> list[CommandInfo]:
        """Those that run."""
        return [command.info for command in self._known.values() if command.running]

    def get(self, id: str) -> Command:
        """The command of this id; raises NotFound."""
        if id not in self._known:
            raise NotFound(
                f"no command {id} runs in {self._sandbox_id}",
                hint="`holdfast sandbox ps` lists those that do",
            )
        return self._known[id]

    def _ended(self, command: Command) -> None:
        """Remember one that ran detached for a while: who started it may be gone."""
        if not command.detached:
            self._known.pop(command.id, None)
            return
        self._known.move_to_end(command.id)
        ended = [each for each in self._known.values() if not each.running]
        while len(ended) > _MOST_REMEMBERED or sum(each.kept for each in ended) > _BYTES_REMEMBERED:
            del self._known[ended.pop(0).id]

    async def launch(
        self,
        argv: tuple[str, ...],
        env: Mapping[str, str],
        options: Options,
        heard_by: Callable[[Command], Listener] | None = None,
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
            self._known[record.id] = command
            self._tell(lambda observer: observer.command_started(record))

        def ended(result: CommandResult) -> None:
            if watchdog is not None:
                watchdog.cancel()
            self._running.pop(record.id, None)
            self._ended(command)
            whole = _with_end(record, result, command.written)
            self._tell(lambda observer: observer.command_ended(whole))

        meter = self._metering.begin()
        info = CommandInfo(
            record.id, argv, folder, record.started_at, terminal=options.terminal is not None
        )
        command = Command(
            info,
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
            "name": record.id,
        }
        if options.terminal is not None:
            header["terminal"] = options.terminal.as_json()
        listener = command.receive if heard_by is None else heard_by(command)
        try:
            await self._channel.post("run", header, b"", listener, numbered=command.take_number)
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

    async def pass_on(self, header: Header, forward: Listener) -> Command:
        """Start a command for another process, which puts it on record itself.

        `forward` is told what the agent says of it, and its end as we see it.
        """
        info = CommandInfo(
            str(header.get("name") or new_id("cmd")),
            tuple(str(word) for word in header.get("argv", ())),
            str(header.get("cwd")),
            datetime.now(UTC),
            terminal=bool(header.get("terminal")),
        )
        if info.id in self._known:
            raise Refused(f"{self._sandbox_id} has a command {info.id} already")
        meter = self._metering.begin()

        def started() -> None:
            self._known[info.id] = command

        command = Command(
            info,
            self._channel,
            self._judge(meter, lambda: False),
            max_output=KEPT_FOR_OTHERS,
            keep_latest=True,
            on_start=started,
            on_end=lambda _: self._ended(command),
        )

        def hear(event: Header, data: bytes) -> None:
            kind = event["ev"]
            if kind == "data":
                command.receive({"ev": "out", "fd": 1}, data)
            elif kind not in ("taken", "eof"):
                command.receive(event, data)
            if kind == "error":
                self._channel.drop(command.key)
                meter.drop()
            if kind not in ("out", "ended"):
                forward(event, data)

        def follow(event: Header, data: bytes) -> None:
            if not (info.terminal and event["ev"] == "out"):
                forward(event, data)

        command.follow(follow)
        try:
            await self._channel.post("run", header, b"", hear, numbered=command.take_number)
        except SandboxGone:
            meter.drop()
            raise
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
