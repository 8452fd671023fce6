"""The commands of one sandbox: starting them, knowing those that run, and telling their ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from holdfast.durations import Duration, seconds
from holdfast.errors import CommandNotStarted, SandboxGone
from holdfast.ids import new_id
from holdfast.records.sandboxes import CommandRecord
from holdfast.sandbox.base import Instance
from holdfast.sandbox.channel import Channel, file_error
from holdfast.sandbox.command import Command, Judge, OnText
from holdfast.sandbox.entries import of_step, with_end
from holdfast.sandbox.namespace.view import WORKSPACE
from holdfast.sandbox.observer import Observer
from holdfast.sandbox.results import CommandResult, Ended, Limit
from holdfast.sandbox.spec import DEFAULT_OUTPUT, Size, check_arguments, checked_env, inside, size
from holdfast.sandbox.usage import Meter, Metering

_GRACE = 5.0  # beyond a command's time limit, until the host ends the sandbox itself

Tell = Callable[[Callable[[Observer], None]], None]


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of a command, beside its words."""

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

    async def launch(self, argv: tuple[str, ...], env: Mapping[str, str], asked: Asked) -> Command:
        """Start a program; `env` is what the sandbox gives every command."""
        check_arguments(argv)
        limit = seconds(asked.timeout) if asked.timeout is not None else None
        folder = inside(asked.cwd or WORKSPACE)
        most = size(asked.max_output)
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
            whole = with_end(record, result, command.written)
            self._tell(lambda observer: observer.command_ended(whole))

        meter = self._metering.begin()
        command = Command(
            record.id,
            argv,
            self._channel,
            self._judge(meter, lambda: late),
            max_output=most,
            keep_latest=asked.keep_latest,
            on_stdout=asked.on_stdout,
            on_stderr=asked.on_stderr,
            on_start=started,
            on_end=ended,
        )
        header = {
            "argv": list(argv),
            "env": {**env, **checked_env(asked.env or {})},
            "cwd": folder,
            "stdin": asked.stdin,
            "timeout": limit,
            "max_output": None if asked.keep_latest else most,
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


TIME_LIMIT = "time limit"
"""Why a sandbox stopped that lived as long as it may."""
