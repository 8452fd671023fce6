"""`holdfast sandbox`: what works here, what runs, and a way in.

holdfast sandbox doctor               which backends work, and why the others don't
holdfast sandbox run python -V        one command in a sandbox of its own
holdfast sandbox list                 the sandboxes of all your processes
holdfast sandbox exec ID ls -l        a command in a running one
holdfast sandbox shell ID             a terminal in a running one
holdfast sandbox ps ID                the commands that run in it
holdfast sandbox logs ID COMMAND      what one of them wrote; --follow until it ends
holdfast sandbox kill ID COMMAND      end one of them, or signal it
holdfast sandbox url ID PORT          the address of a server in it
holdfast sandbox stop ID …            end it
holdfast sandbox gc                   what killed processes and deleted runs left, and old records
holdfast sandbox snapshots            what was kept
holdfast sandbox templates            what can be started from by name
"""

from __future__ import annotations

import argparse
import asyncio
import re
import shlex
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from holdfast.cli import output, sandbox_terminal
from holdfast.durations import seconds
from holdfast.errors import SandboxUnavailable, UsageError
from holdfast.records.sandboxes import SandboxRecord
from holdfast.runtime.app import open_engine
from holdfast.sandbox import CommandResult, Ended, Host, Sandbox, StoreObserver, cleanup, control
from holdfast.sandbox.run_snapshots import delete_orphans
from holdfast.sandbox.settings import load
from holdfast.sandbox.snapshots import list_snapshots
from holdfast.sandbox.state import default_state
from holdfast.sandbox.templates import list_templates, prune_templates
from holdfast.session import current_store
from holdfast.store import opener
from holdfast.store.sandboxes import Dropped

BACKENDS = ("microvm", "gvisor", "namespace")
Handler = Callable[[argparse.Namespace], Coroutine[Any, Any, int]]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    _verb(verbs, "doctor", "which backends work here, and why the others don't", _doctor)
    run = _verb(verbs, "run", "run one command in a sandbox of its own", _run)
    run.add_argument("--backend", choices=("auto", *BACKENDS), default="auto")
    run.add_argument("--min-isolation", choices=BACKENDS)
    run.add_argument("--timeout", default="5m", help="such as 30s or 5m")
    run.add_argument("--memory", default="1gb")
    run.add_argument("--cpus", type=float, default=1.0)
    run.add_argument("--allow", action="append", default=[], metavar="HOST[:PORT]")
    run.add_argument("--source", help="a folder, git address or snapshot to start from")
    _add_command(run)
    _verb(verbs, "list", "the sandboxes of all your processes", _list)
    execute = _verb(verbs, "exec", "run a command in a running sandbox", _exec)
    execute.add_argument("id")
    _add_command(execute)
    shell = _verb(verbs, "shell", "a terminal in a running sandbox", _shell)
    shell.add_argument("id")
    _add_command(shell)
    ps = _verb(verbs, "ps", "the commands that run in a sandbox", _ps)
    ps.add_argument("id")
    logs = _verb(verbs, "logs", "what a command in a sandbox wrote", _logs)
    logs.add_argument("id")
    logs.add_argument("command_id", metavar="COMMAND")
    logs.add_argument("--follow", action="store_true", help="until it ends; exits as it does")
    kill = _verb(verbs, "kill", "end a command in a sandbox, or signal it", _kill)
    kill.add_argument("id")
    kill.add_argument("command_id", metavar="COMMAND")
    kill.add_argument("--signal", default="KILL", help="such as TERM, INT or 15 (KILL)")
    url = _verb(verbs, "url", "the address of a server in a sandbox", _url)
    url.add_argument("id")
    url.add_argument("port", type=int)
    stop = _verb(verbs, "stop", "end sandboxes", _stop)
    stop.add_argument("id", nargs="+")
    gc = _verb(
        verbs,
        "gc",
        "remove what killed processes and deleted runs left behind, and old records",
        _gc,
    )
    gc.add_argument(
        "--keep",
        metavar="AGE",
        help="drop records of what stopped longer ago, such as 30d; else as configured",
    )
    snapshots = _verb(verbs, "snapshots", "list what was kept", _snapshots)
    snapshots.add_argument("--delete", metavar="ID", action="append", default=[])
    templates = _verb(verbs, "templates", "list what can be started from by name", _templates)
    templates.add_argument(
        "--prune", type=int, metavar="N", help="remove all but the latest N versions of each"
    )


def _verb(verbs: Any, name: str, summary: str, handler: Handler) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=summary, description=summary)
    parser.add_argument("--json", action="store_true", help="print data for programs")

    def handle(options: argparse.Namespace) -> int:
        return asyncio.run(handler(options))

    parser.set_defaults(handler=handle)
    return parser


def _add_command(parser: argparse.ArgumentParser) -> None:
    """Everything from the program's name on is the program's, its options too."""
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND …")


def _command(options: argparse.Namespace) -> list[str]:
    words: list[str] = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not words:
        raise UsageError("no command is given", hint="such as: holdfast sandbox run python3 -V")
    return words


async def _doctor(options: argparse.Namespace) -> int:
    host = Host(pool=0)
    try:
        found = {name: await host.probe(name) for name in BACKENDS}
        try:
            taken, why = (await host.choose("auto", None)).name, None
        except SandboxUnavailable as error:
            taken, why = None, error
    finally:
        await host.aclose()
    if options.json:
        report = {
            name: {
                "works": each.probe.works,
                **asdict(each.probe),
                "isolation": each.backend.isolation.words,
            }
            for name, each in found.items()
        }
        output.show_json({"backends": report, "auto": taken})
        return 0 if taken else SandboxUnavailable.exit_code
    for name, each in found.items():
        mark = "✓" if each.probe.works else "✗"
        print(f"{mark} {name:<10} {each.probe.reason}")
        print(output.dim(f"  {'':<10} {each.backend.isolation.words}"))
        for warning in each.probe.warnings:
            print(f"  {'':<10} ! {warning}")
    if why is None:
        print(f"auto takes {taken}")
        return 0
    print(f"auto takes none: {why.message}")
    output.note(f"hint: {why.hint}")
    return why.exit_code


async def _run(options: argparse.Namespace) -> int:
    host = Host(pool=0)
    host.observers.append(StoreObserver())
    try:
        async with await Sandbox.create(
            backend=options.backend,
            min_isolation=options.min_isolation,
            timeout=options.timeout,
            memory=options.memory,
            cpus=options.cpus,
            network=options.allow,
            source=options.source,
            host=host,
        ) as sandbox:
            output.note(f"{sandbox.id} {sandbox.backend}: {sandbox.record.isolation}")
            return await _follow(sandbox, options)
    finally:
        await host.aclose()


async def _follow(sandbox: Sandbox, options: argparse.Namespace) -> int:
    """Run the command, its output as ours; exits as it does."""
    quiet = bool(options.json)
    result = await sandbox.run(
        *_command(options),
        on_stdout=None if quiet else _write_out,
        on_stderr=None if quiet else _write_err,
    )
    if quiet:
        output.show_json(_as_json(sandbox.id, result))
    elif result.ended not in (Ended.EXITED, Ended.SIGNALLED):
        output.note(f"holdfast: {result}")
    return _exit_code(result)


def _exit_code(result: CommandResult) -> int:
    if result.exit_code is not None:
        return result.exit_code
    return 128 + result.signal if result.signal else 1


def _write_out(text: str) -> None:
    sys.stdout.write(tame(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()


def _write_err(text: str) -> None:
    sys.stderr.write(tame(text) if sys.stderr.isatty() else text)
    sys.stderr.flush()


_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def tame(text: str) -> str:
    """Text that can't take over a terminal: colours stay, every other control is shown as text."""
    kept = _COLOUR.findall(text)
    parts = [_CONTROL.sub(lambda m: f"\\x{ord(m.group()):02x}", p) for p in _COLOUR.split(text)]
    return "".join(part + colour for part, colour in zip(parts, [*kept, ""], strict=True))


def _as_json(sandbox_id: str, result: CommandResult) -> dict[str, Any]:
    return {
        "sandbox": sandbox_id,
        "command": result.id,
        "ended": result.ended.value,
        "exit_code": result.exit_code,
        "signal": result.signal,
        "seconds": round(result.seconds, 6),
        "cpu_seconds": None if result.cpu_seconds is None else round(result.cpu_seconds, 6),
        "peak_memory": result.peak_memory,
        "limits_hit": sorted(limit.value for limit in result.limits_hit),
        "stdout": result.stdout,
        "stderr": result.stderr,
    }


async def _list(options: argparse.Namespace) -> int:
    told = await control.listing(default_state())
    found = told.sandboxes
    if options.json:
        silent = {"silent": told.silent}
        output.show_json({"sandboxes": [record.as_json() for record in found], **silent})
        return 0
    now = datetime.now(UTC)
    rows = [
        (
            record.id,
            record.backend,
            f"{(now - record.created_at).total_seconds():.0f} s",
            "" if record.cpu_seconds is None else f"{record.cpu_seconds:.1f} s",
            _of_memory(record),
            ", ".join(record.network) or "none",
            record.run_id or "",
        )
        for record in found
    ]
    output.table(("SANDBOX", "BACKEND", "AGE", "CPU", "MEMORY", "NETWORK", "RUN"), rows)
    for id in told.silent:
        output.note(f"{id}: its process does not answer")
    return 0


def _of_memory(record: SandboxRecord) -> str:
    """The most it has held, where that is known, of what it may hold."""
    limit = f"{record.memory >> 20} MB"
    held = record.peak_memory
    return limit if held is None else f"{held / (1 << 20):.0f} of {limit}"


@asynccontextmanager
async def _reached(id: str) -> AsyncGenerator[Sandbox]:
    """The running sandbox of this id, whoever holds it; it goes on after."""
    host = Host(pool=0)
    host.observers.append(StoreObserver())
    try:
        sandbox = await Sandbox.get(id, host=host)
        try:
            yield sandbox
        finally:
            sandbox.release()
    finally:
        await host.aclose()


async def _exec(options: argparse.Namespace) -> int:
    async with _reached(options.id) as sandbox:
        return await _follow(sandbox, options)


async def _shell(options: argparse.Namespace) -> int:
    async with _reached(options.id) as sandbox:
        words: list[str] = options.command
        if not words:
            words = ["bash" if await sandbox.exists("/bin/bash") else "sh"]
        return _exit_code(await sandbox_terminal.attend(sandbox, words))


async def _ps(options: argparse.Namespace) -> int:
    async with _reached(options.id) as sandbox:
        found = await sandbox.commands()
    if options.json:
        output.show_json({"commands": [control.as_json(info) for info in found]})
        return 0
    now = datetime.now(UTC)
    rows = [
        (
            info.id,
            "" if info.pid is None else str(info.pid),
            f"{(now - info.started_at).total_seconds():.0f} s",
            tame(shlex.join(info.argv))[:100],
        )
        for info in found
    ]
    output.table(("COMMAND", "PID", "AGE", "PROGRAM"), rows)
    return 0


async def _logs(options: argparse.Namespace) -> int:
    async with _reached(options.id) as sandbox:
        command = await sandbox.get_command(options.command_id)
        if options.json:
            result = await command.wait() if options.follow else None
            running = command.running
            output.show_json({"id": command.id, "running": running, "output": command.logs()})
            return 0 if result is None else _exit_code(result)
        if not options.follow:
            _write_out(command.logs())
            return 0
        async for piece in command:
            (_write_out if piece.stream == "stdout" else _write_err)(piece.text)
        return _exit_code(await command.wait())


async def _kill(options: argparse.Namespace) -> int:
    number = _signal_number(options.signal)
    async with _reached(options.id) as sandbox:
        command = await sandbox.get_command(options.command_id)
        running = command.running
        await command.kill(number)
    if options.json:
        output.show_json({"id": command.id, "signal": number, "was_running": running})
    elif not running:
        output.note(f"{command.id} has ended already")
    return 0


def _signal_number(named: str) -> int:
    if named.isdigit() and int(named) in set(signal.Signals):
        return int(named)
    try:
        return signal.Signals[f"SIG{named.upper().removeprefix('SIG')}"]
    except KeyError:
        raise UsageError(f"there is no signal {named}", hint="such as TERM, INT or KILL") from None


async def _url(options: argparse.Namespace) -> int:
    async with _reached(options.id) as sandbox:
        found = sandbox.url(options.port)
    if options.json:
        output.show_json({"url": found})
    else:
        print(found)
    return 0


async def _stop(options: argparse.Namespace) -> int:
    host = Host(pool=0)
    try:
        for id in options.id:
            await (await Sandbox.get(id, host=host)).stop("stopped on the command line")
            if not options.json:
                print(id)
    finally:
        await host.aclose()
    if options.json:
        output.show_json({"stopped": options.id})
    return 0


async def _gc(options: argparse.Namespace) -> int:
    swept = await asyncio.to_thread(cleanup.sweep, str(default_state()))
    keep = load().keep_seconds if options.keep is None else seconds(options.keep)
    store = current_store()
    dropped = Dropped()
    if keep is not None and opener.exists(store):
        dropped = await asyncio.to_thread(opener.prune_sandboxes, store, keep)
    orphans: list[str] = []
    if opener.exists(store):
        async with open_engine(store, worker=False) as engine:
            orphans = await delete_orphans(engine.store.get)
    if options.json:
        output.show_json({"swept": swept, "dropped": asdict(dropped), "snapshots": orphans})
        return 0
    output.note(f"removed what {len(swept)} ended process(es) left behind")
    if orphans:
        output.note(f"removed {len(orphans)} snapshot(s) of deleted runs")
    if keep is not None:
        told = f"{dropped.sandboxes} sandbox(es), {dropped.commands} command(s) and"
        output.note(f"dropped the records of {told} {dropped.attempts} attempt(s) to get out")
    return 0


async def _snapshots(options: argparse.Namespace) -> int:
    state = default_state()
    kept = {snapshot.id: snapshot for snapshot in list_snapshots(state)}
    for id in options.delete:
        if id not in kept:
            raise UsageError(f"there is no snapshot {id}")
        kept.pop(id).delete()
    if options.json:
        output.show_json({"snapshots": [{"id": s.id, "size": s.size} for s in kept.values()]})
        return 0
    rows = [
        (
            s.id,
            f"{s.size / (1 << 20):.1f} MB",
            s.created_at.isoformat(timespec="seconds"),
            s.sandbox_id,
        )
        for s in kept.values()
    ]
    output.table(("SNAPSHOT", "SIZE", "TAKEN", "OF"), rows)
    return 0


async def _templates(options: argparse.Namespace) -> int:
    state = default_state()
    removed = [] if options.prune is None else prune_templates(state, options.prune)
    found = list_templates(state)
    if options.json:
        shown = [
            {
                "name": each.name,
                "version": each.version,
                "digest": each.digest,
                "snapshot": each.snapshot_id,
                "backend": each.backend,
                "steps": list(each.steps),
                "created_at": each.created_at.timestamp(),
            }
            for each in found
        ]
        gone = [f"{each.name}@{each.version}" for each in removed]
        output.show_json({"templates": shown, "removed": gone})
        return 0
    rows = [
        (
            f"{each.name}@{each.version}",
            each.backend,
            each.created_at.isoformat(timespec="seconds"),
            tame("; ".join(each.steps))[:100],
        )
        for each in found
    ]
    output.table(("TEMPLATE", "BACKEND", "BUILT", "STEPS"), rows)
    for each in removed:
        output.note(f"removed {each.name}@{each.version}")
    return 0
