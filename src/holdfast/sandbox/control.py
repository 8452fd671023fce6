"""The control socket: how processes of one user reach one another's sandboxes.

Each process has one in its folder, which speaks the agent's frames. After `attach` a connection
talks to that sandbox's agent through us, with request numbers of its own; what only the process
that holds a sandbox knows (its list, its time limit, its commands) is answered here. The folder is
readable by its owner only, and that is the permission.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast import errors
from holdfast.errors import HoldfastError, NotFound, SandboxError, UsageError
from holdfast.records.sandboxes import SandboxRecord
from holdfast.sandbox.base import Listeners, Usage
from holdfast.sandbox.channel import Channel
from holdfast.sandbox.command import Command, CommandInfo, Ended, Judge
from holdfast.sandbox.command_table import KEPT_FOR_OTHERS
from holdfast.sandbox.inside import frames
from holdfast.sandbox.inside.frames import Header
from holdfast.sandbox.network import AllowedHost, Network
from holdfast.sandbox.usage import Use

if TYPE_CHECKING:
    from holdfast.sandbox.host import Host
    from holdfast.sandbox.sandbox import Sandbox

SOCKET = "control.sock"
_ANSWERED_HERE = (
    "list",
    "attach",
    "stop",
    "extend",
    "set_timeout",
    "snapshot",
    "commands",
    "set_network",
    "usage",
)
_MOST_HELD = 4 * 1024 * 1024
"""Bytes that wait for a client; then the sandbox is held up until it takes them."""
_LONGEST_HELD = 3.0
"""Seconds; a client that takes nothing for so long is let go. Less than the host gives a sandbox
to tell that a command's time is over."""


class ControlServer:
    """Serves one host's control socket."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._server: asyncio.Server | None = None
        self._socket: socket.socket | None = None

    async def start(self) -> None:
        """Listen; the path goes through a descriptor, since socket paths must be short."""
        folder = os.open(self._host.folder.path, os.O_RDONLY | os.O_DIRECTORY)
        path = f"/proc/self/fd/{folder}/{SOCKET}"
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            self._socket.bind(path)
        finally:
            os.close(folder)
        self._server = await asyncio.start_unix_server(self._serve, sock=self._socket)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(self._host, writer)
        decoder = frames.Decoder()
        try:
            while data := await reader.read(1 << 20):
                for header, payload in decoder.feed(data):
                    await connection.answer(header, payload)
                await writer.drain()
        except (frames.BadFrame, ConnectionError):
            pass  # a client that went, or that is none of ours
        finally:
            connection.close()
            writer.close()

    def close(self) -> None:
        """Listen no more, whether the loop still runs or not."""
        if self._server is not None and self._socket is not None:
            if not self._server.get_loop().is_closed():
                self._server.close()
            self._socket.close()
            self._server = self._socket = None


class _Connection:
    """One client: what it attached to, and its requests in flight."""

    def __init__(self, host: Host, writer: asyncio.StreamWriter) -> None:
        self._host, self._writer = host, writer
        self._sandbox: Sandbox | None = None
        self._keys: dict[int, int] = {}
        """The numbers its requests have on the sandbox's own channel."""
        self._flows: set[int] = set()
        self._unfollow: dict[int, Callable[[], None]] = {}
        self._waiting: asyncio.Task[None] | None = None

    async def answer(self, header: frames.Header, payload: bytes) -> None:
        key = header.get("id", 0)
        try:
            if header.get("op") in _ANSWERED_HERE:
                reply = await getattr(self, f"_{header['op']}")(header)
                self._send({"id": key, "ev": "ok", **reply})
            elif header.get("op") == "connect":
                self._connect(int(key), header)
            else:
                await self._relay(int(key), header, payload)
        except HoldfastError as error:
            body = {"kind": error.kind, "message": error.message, "hint": error.hint}
            self._send({"id": key, "ev": "refused", **body})

    def _send(self, header: frames.Header, payload: bytes = b"") -> None:
        if self._writer.is_closing():
            return
        self._writer.write(frames.encode(header, payload))
        held = self._writer.transport.get_write_buffer_size()
        if held > _MOST_HELD and self._waiting is None and self._sandbox is not None:
            self._waiting = asyncio.create_task(self._hold_back(self._sandbox.channel))

    async def _hold_back(self, channel: Channel) -> None:
        """Take nothing from the sandbox until the client has taken what it was sent."""
        channel.hold()
        try:
            async with asyncio.timeout(_LONGEST_HELD):
                while self._writer.transport.get_write_buffer_size() > _MOST_HELD // 2:
                    await self._writer.drain()
        except TimeoutError:
            self._writer.transport.abort()
        except ConnectionError:
            pass  # it has gone, and is told nothing more
        finally:
            channel.let_go()
            self._waiting = None

    async def _list(self, _: frames.Header) -> dict[str, Any]:
        sandboxes = list(self._host.sandboxes.values())
        return {
            "sandboxes": [as_json(s.measured()) for s in sandboxes],
            "metadata": {s.id: dict(s.metadata) for s in sandboxes if s.metadata},
        }

    async def _attach(self, header: frames.Header) -> dict[str, Any]:
        self._sandbox = self._host.get(str(header.get("sandbox")))
        found = self._sandbox
        metadata = dict(found.metadata)
        return {"record": as_json(found.record), "env": found.env, "metadata": metadata}

    async def _usage(self, header: frames.Header) -> dict[str, Any]:
        sandbox = self._host.get(str(header.get("sandbox")))
        return {"usage": asdict(sandbox.metering.total())}

    async def _set_network(self, header: frames.Header) -> dict[str, Any]:
        given: list[dict[str, Any]] = header["allow"]
        rules = [AllowedHost(**rule) for rule in given]
        await self._host.get(str(header.get("sandbox"))).set_network(Network(rules))
        return {}

    async def _stop(self, header: frames.Header) -> dict[str, Any]:
        await self._host.get(str(header.get("sandbox"))).stop(str(header.get("because", "stopped")))
        return {}

    async def _extend(self, header: frames.Header) -> dict[str, Any]:
        self._host.get(str(header.get("sandbox"))).extend_timeout(float(header.get("seconds", 0)))
        return {}

    async def _set_timeout(self, header: frames.Header) -> dict[str, Any]:
        self._host.get(str(header.get("sandbox"))).set_timeout(float(header.get("seconds", 0)))
        return {}

    async def _snapshot(self, header: frames.Header) -> dict[str, Any]:
        taken = await self._host.get(str(header.get("sandbox"))).snapshot()
        return {"snapshot": taken.id}

    async def _commands(self, header: frames.Header) -> dict[str, Any]:
        found = self._host.get(str(header.get("sandbox"))).command_table.infos()
        return {"commands": [as_json(info) for info in found]}

    def _connect(self, key: int, header: frames.Header) -> None:
        """Tell of a command that runs already, whoever started it, from what is kept of it on."""
        command = self._attached().command_table.get(str(header.get("name")))
        self._keys[key] = command.key
        self._send({"id": key, "ev": "started", "info": as_json(command.info)})
        forward = self._forward(key)
        self._unfollow[key] = command.follow(forward)
        self._send({"id": key, "ev": "caught_up"})

    def _attached(self) -> Sandbox:
        if self._sandbox is None:
            raise UsageError("attach to a sandbox first")
        return self._sandbox

    def _forward(self, key: int) -> Callable[[frames.Header, bytes], None]:
        """Pass events on as answers to the client's own request; its last one ends that."""

        def back(event: frames.Header, data: bytes) -> None:
            if event["ev"] in ("ended", "ok", "error", "gone", "closed"):
                self._keys.pop(key, None)
                self._flows.discard(key)
                self._unfollow.pop(key, None)
            self._send({**event, "id": key}, data)

        return back

    async def _relay(self, key: int, header: frames.Header, payload: bytes) -> None:
        channel = self._attached().channel
        op = str(header.get("op"))
        for name in ("command", "flow"):
            if name in header:
                header = {**header, name: self._keys.get(int(header[name]), -1)}
        if not key:
            channel.tell(op, payload, **{k: v for k, v in header.items() if k not in ("op", "id")})
            return
        forward = self._forward(key)
        if op in ("dial", "watch") or header.get("terminal"):
            self._flows.add(key)
        if op == "run":
            command = await self._attached().command_table.pass_on(header, forward)
            if command.running:
                self._keys[key] = command.key
            return

        def back(event: frames.Header, data: bytes) -> None:
            if event["ev"] in ("ok", "error", "gone", "closed"):
                channel.drop(self._keys.get(key, -1))
            forward(event, data)

        await channel.post(
            op, header, payload, back, numbered=lambda n: self._keys.update({key: n})
        )

    def close(self) -> None:
        """The client has gone: what it was told is told no more, and its streams end. Commands it
        started go on, and can be found by their id."""
        if self._sandbox is None:
            return
        channel = self._sandbox.channel
        for stop in self._unfollow.values():
            stop()
        for key, number in self._keys.items():
            if key in self._flows:
                channel.tell("hang_up", flow=number)


def as_json(record: Any) -> dict[str, Any]:
    """A record as plain JSON."""
    data = asdict(record)
    return {k: v.isoformat() if isinstance(v, datetime) else v for k, v in data.items()}


def sockets(state: Path) -> list[Path]:
    """The control sockets of every host process that may be running here."""
    return sorted(state.glob(f"hosts/*/{SOCKET}"))


# --- sandboxes of other processes: found by id, reached through their control socket ---
# A handle got this way does what a handle of one's own does; the sandbox still belongs to the
# process that made it, and ends with that.

ANSWER_LIMIT = 2.0
"""Seconds a process has to answer; one that is blocked, or whose loop has ended, never does."""


@dataclass(slots=True)
class RemoteInstance:
    """A sandbox that another process holds."""

    id: str
    channel: socket.socket
    control: Channel | None = None
    listeners: Listeners | None = None
    relayed: bool = False
    upper: int | None = None

    def usage(self, *, thorough: bool = False) -> Usage:
        return Usage()  # the process that holds it tells what was killed, and used

    def restart_peak(self) -> bool:
        return False

    def freeze(self) -> bool:
        return False

    def thaw(self) -> None:
        """It is never frozen from here."""

    def kill(self) -> None:
        """Asked for by `stop`, through the process that holds it."""

    async def destroy(self) -> None:
        """Done by the process that holds it."""


@dataclass(frozen=True, slots=True)
class Known:
    """What the process that holds a sandbox tells of it."""

    record: SandboxRecord
    env: dict[str, str]
    metadata: dict[str, str]


async def find(state: Path, id: str) -> tuple[RemoteInstance, Channel, Known]:
    """Reach the sandbox of this id, whichever process holds it."""
    for path in sockets(state):
        if not (path.parent / "sandboxes" / f"{id}.json").exists():
            continue
        connection = connect(path)
        if connection is None:
            continue
        channel = await Channel.open(connection)
        try:
            async with asyncio.timeout(ANSWER_LIMIT):
                answer = await ask(channel, "attach", sandbox=id)
        except TimeoutError:
            channel.close()
            raise SandboxError(
                f"the process that holds {id} does not answer",
                hint="its event loop is blocked or has ended; end the process to end the sandbox",
            ) from None
        except BaseException:
            channel.close()
            raise
        instance = RemoteInstance(id, connection, channel)
        env, metadata = dict(answer["env"]), dict(answer["metadata"])
        return instance, channel, Known(as_record(answer["record"]), env, metadata)
    raise NotFound(
        f"no sandbox {id} runs here", hint="it has stopped, or the process that made it has ended"
    )


def connect(path: Path) -> socket.socket | None:
    """Connect to a control socket; None if nobody serves it any more."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(ANSWER_LIMIT)  # a queue full of others that wait is no answer either
    try:
        connection.connect(f"/proc/self/fd/{folder}/{path.name}")
    except (ConnectionRefusedError, FileNotFoundError, TimeoutError):
        connection.close()
        return None
    finally:
        os.close(folder)
    return connection


async def ask(channel: Channel, op: str, **header: Any) -> Header:
    """Ask the process that serves the socket; its refusals are raised here."""
    done: asyncio.Future[Header] = asyncio.get_running_loop().create_future()

    def listen(answer: Header, _: bytes) -> None:
        if not done.done():
            done.set_result(answer)

    key = await channel.post(op, header, b"", listen)
    answer = await done
    channel.drop(key)
    if answer["ev"] != "ok":
        raise _refusal(answer)
    return answer


def _refusal(answer: Header) -> HoldfastError:
    if answer["ev"] != "refused":
        return SandboxError("the process that holds the sandbox has gone")
    kind = getattr(errors, str(answer.get("kind")), SandboxError)
    kind = kind if isinstance(kind, type) and issubclass(kind, HoldfastError) else SandboxError
    error = kind(str(answer.get("message")))
    error.hint = answer.get("hint")
    return error


async def usage(channel: Channel, sandbox_id: str) -> Usage:
    """What a sandbox of another process has used."""
    return Usage(**(await ask(channel, "usage", sandbox=sandbox_id))["usage"])


async def set_network(channel: Channel, sandbox_id: str, network: Network) -> None:
    """Change what a sandbox of another process may reach."""
    rules = [asdict(host) for host in network.allow]
    await ask(channel, "set_network", sandbox=sandbox_id, allow=rules)


async def commands(channel: Channel, sandbox_id: str) -> list[CommandInfo]:
    """What runs in a sandbox of another process."""
    answer = await ask(channel, "commands", sandbox=sandbox_id)
    return [_as_info(each) for each in answer["commands"]]


async def connect_to_command(channel: Channel, id: str) -> Command:
    """A command in a sandbox of another process, which goes on whether we listen or not.

    It has what is kept of the command's output when this returns.
    """
    known: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
    number = -1
    command: Command | None = None

    def listen(event: Header, data: bytes) -> None:
        nonlocal command
        if command is not None:
            if event["ev"] != "caught_up":
                command.receive(event, data)
            if event["ev"] != "out" and not known.done():
                known.set_result(command)
        elif event["ev"] == "started":
            command = Command(
                _as_info(event["info"]),
                channel,
                Judge(lambda: Ended.STOPPED, lambda ended, _: (ended, frozenset()), _as_told),
                max_output=KEPT_FOR_OTHERS,
                keep_latest=True,
                on_start=lambda: None,
                on_end=lambda _: None,
            )
            command.take_number(number)
            command.receive({"ev": "started", "pid": event["info"].get("pid")}, b"")
        else:
            known.set_exception(_refusal(event))

    def numbered(key: int) -> None:
        nonlocal number
        number = key

    await channel.post("connect", {"name": id}, b"", listen, numbered=numbered)
    try:
        return await known
    except HoldfastError:
        channel.drop(number)
        raise


def _as_info(data: dict[str, Any]) -> CommandInfo:
    fields = dict(data)
    fields["argv"] = tuple(fields["argv"])
    fields["started_at"] = datetime.fromisoformat(fields["started_at"])
    return CommandInfo(**fields)


def _as_told(cpu: object, peak: object) -> Use:
    return Use(
        float(cpu) if isinstance(cpu, int | float) else None,
        peak if isinstance(peak, int) else None,
    )


def as_record(data: dict[str, Any]) -> SandboxRecord:
    """A record from its JSON."""
    fields = dict(data)
    fields["network"] = tuple(fields["network"])
    for name in ("created_at", "stopped_at"):
        if fields[name] is not None:
            fields[name] = datetime.fromisoformat(fields[name])
    return SandboxRecord(**fields)


@dataclass(frozen=True, slots=True)
class Listing:
    """The sandboxes of every process of this user."""

    sandboxes: list[SandboxRecord]
    metadata: dict[str, dict[str, str]]
    """What is said of those of which something is said."""
    silent: list[str]
    """Ids of those whose process lives and does not answer: nothing else is known of them."""


async def listing(state: Path) -> Listing:
    """What runs here, as the processes tell it themselves, each given a moment to answer."""
    told = await asyncio.gather(*(_ask_one(path) for path in sockets(state)))
    found = [record for each in told for record in each.sandboxes]
    silent = [id for each in told for id in each.silent]
    metadata = {id: said for each in told for id, said in each.metadata.items()}
    return Listing(sorted(found, key=lambda record: record.id), metadata, sorted(silent))


async def _ask_one(path: Path) -> Listing:
    connection = await asyncio.to_thread(connect, path)
    if connection is None:
        return Listing([], {}, [])
    channel = await Channel.open(connection)
    try:
        async with asyncio.timeout(ANSWER_LIMIT):
            answer = await ask(channel, "list")
    except TimeoutError:
        return Listing([], {}, [file.stem for file in path.parent.glob("sandboxes/sbx_*.json")])
    except SandboxError:
        return Listing([], {}, [])  # it has ended meanwhile, and its sandboxes with it
    finally:
        channel.close()
    records = [as_record(record) for record in answer["sandboxes"]]
    return Listing(records, dict(answer["metadata"]), [])
