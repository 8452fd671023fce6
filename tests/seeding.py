"""Stores with a past: runs, calls and sandboxes written as they would have been recorded.

What takes hours in life is here in a moment, with the times it would have had. The rows are the
real ones, hashes included: what reads a store can't tell.
"""

from __future__ import annotations

import json
import random
import sqlite3
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holdfast.clock import boot_id
from holdfast.ids import new_id
from holdfast.records import Event
from holdfast.records.calls import CallEnd, CallStart, ProviderAttempt, SpendLimit
from holdfast.records.sandboxes import CommandRecord, EgressRecord, SandboxRecord
from holdfast.store.sqlite import ledger_rows, ledger_spend, sandbox_rows, schema
from holdfast.store.sqlite.events import INLINE_BYTES, event_hash
from holdfast.store.sqlite.process_locks import FileOwner, owners_folder

INSERT_RUN = """
INSERT INTO runs (id, workflow, version, key, parent_id, forked_from, status, due_at, owner,
  first_message, created_at, started_at, finished_at, error)
VALUES (?, ?, '1', ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?)
"""
INSERT_EVENT = """
INSERT INTO events (run_id, seq, type, key, at, meta, value, blob, hash)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""

INSERT_APPROVAL = """
INSERT INTO approvals (id, run_id, title, tool, arguments, arguments_hash, asked_of, requested_at,
  expires_at, fallback, status, decided_at, decided_by, note)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'deny', ?, ?, ?, ?)
"""


INSERT_WORKER = """
INSERT INTO workers (id, pid, host, started_at, expires_at, boot, lease_until)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""
INSERT_BLOB = "INSERT INTO blobs (run_id, hash, data) VALUES (?, ?, ?)"
INSERT_WAIT = "INSERT INTO waits (run_id, key, name, lane, match) VALUES (?, ?, ?, ?, ?)"


class Seed:
    """Writes to the store at `path`."""

    def __init__(self, path: Path, *, now: float | None = None, luck: int = 7) -> None:
        self.path = path
        self.connection: sqlite3.Connection = schema.connect(path)
        self.connection.execute("PRAGMA synchronous = OFF")
        self.connection.execute("BEGIN")
        self.now = time.time() if now is None else now
        self.luck = random.Random(luck)
        self.owner = FileOwner(owners_folder(path))
        """Alive until `let_go`: sandboxes that are live are ours."""

    def close(self) -> None:
        self.connection.execute("COMMIT")
        self.connection.close()

    def let_go(self) -> None:
        self.owner.close()

    def entropy(self) -> bytes:
        return self.luck.randbytes(10)

    def run(self, workflow: str, age: float, input: dict[str, Any], **known: Any) -> SeededRun:
        return SeededRun(self, workflow, self.now - age, input, **known)

    def worker(self, pid: int, host: str, age: float, lease: float = 12.0) -> str:
        id = new_id("wkr", at=self.now - age, entropy=self.entropy())
        until = time.monotonic() + lease
        row = (id, pid, host, self.now - age, self.now + lease, boot_id(), until)
        self.connection.execute(INSERT_WORKER, row)
        return id

    def limit(self, scope: str, usd: float | None = None, tokens: int | None = None) -> None:
        amount = None if usd is None else int(usd * 1e9)
        ledger_spend.set_limit(self.connection, SpendLimit(scope, amount, tokens))

    def call(
        self,
        model: str,
        at: float,
        seconds: float,
        tokens: tuple[int, int],
        cost: float | None,
        *,
        reply: str = "",
        messages: list[tuple[str, str]] | None = None,
        run: SeededRun | None = None,
        step: tuple[str, str] | None = None,
        cached: int = 0,
        first_token: float | None = None,
        tried: list[tuple[str, str, int | None, str | None, str | None]] | None = None,
        status: str = "completed",
        error: str | None = None,
        message: str | None = None,
        tags: tuple[str, ...] = (),
        tools: list[tuple[str, str]] | None = None,
    ) -> str:
        """A model call that has ended."""
        id = new_id("call", at=at, entropy=self.entropy())
        provider, _, served = model.partition("/")
        if tried and not error:
            provider, served = tried[-1][0], tried[-1][1]
        prompt = {
            "model": model,
            "messages": [
                {"role": role, "parts": [{"text": text, "cache": None, "type": "text"}]}
                for role, text in messages or [("user", "Hello")]
            ],
        }
        parts: list[dict[str, Any]] = [{"text": reply, "cache": None, "type": "text"}]
        for name, arguments in tools or []:
            parts.append(
                {
                    "id": "t1",
                    "name": name,
                    "arguments": arguments,
                    "item": None,
                    "type": "tool_call",
                }
            )
        answered = {"parts": parts, "finish": "stop", "model": served, "usage": None}
        start = CallStart(
            id=id,
            model=model,
            format="holdfast",
            started_at=at,
            run_id=run.id if run else None,
            workflow=run.workflow if run else None,
            step=step[0] if step else None,
            step_key=step[1] if step else None,
            attempt=1 if step else None,
            tags=tags,
            prompt=json.dumps(prompt),
        )
        nano = None if cost is None else int(cost * 1e9)
        attempts = tuple(
            ProviderAttempt(p, m, seconds / len(tried or [1]), s, e, w)
            for p, m, s, e, w in tried or [(provider, served, 200, error, message)]
        )
        end = CallEnd(
            status=status,  # type: ignore[arg-type]
            finished_at=at + seconds,
            provider=provider if not error else None,
            served=served if not error else None,
            finish="stop" if not error else None,
            input_tokens=tokens[0],
            cached_tokens=cached,
            output_tokens=tokens[1],
            cost=nano,
            charge=nano or 0,
            charge_tokens=sum(tokens),
            latency=seconds,
            first_token=first_token,
            attempts=attempts,
            error=error,
            message=message,
            reply=None if error else json.dumps(answered),
        )
        day = datetime.fromtimestamp(at, UTC).date().isoformat()
        scopes = [f"day:{day}", *(f"tag:{tag}" for tag in tags)]
        if run:
            scopes += [f"run:{run.id}", f"workflow:{run.workflow}"]
        ledger_rows.insert(self.connection, start, self.owner.id, scopes=scopes, usd=0, tokens=0)
        ledger_spend.hold(self.connection, scopes, 0, 0)
        held = ledger_rows.Hold(scopes, 0, 0)
        ledger_rows.finish(self.connection, id, end, held, 0)
        ledger_spend.settle(self.connection, scopes, (0, 0), (nano or 0, sum(tokens)))
        return id

    def approval(
        self,
        run: SeededRun,
        title: str,
        arguments: dict[str, Any],
        *,
        tool: str | None = None,
        asked_of: str = "",
        limit: float = 86400.0,
        decided: tuple[str, str, str] | None = None,
    ) -> str:
        """Something a run waits for somebody to decide; `decided`: status, by whom, note."""
        id = new_id("apr", at=run.at, entropy=self.entropy())
        status, by, note = decided or ("pending", None, "")
        self.connection.execute(
            INSERT_APPROVAL,
            (
                id, run.id, title, tool, json.dumps(arguments), "0" * 64, asked_of, run.at,
                run.at + limit, status, run.at + 60 if decided else None, by, note,
            ),
        )  # fmt: skip
        return id

    def sandbox(
        self,
        at: float,
        seconds: float | None,
        *,
        run: SeededRun | None = None,
        step: tuple[str, str] | None = None,
        backend: str = "namespace",
        isolation: str = "Linux namespaces and seccomp; the kernel is shared",
        network: tuple[str, ...] = (),
        because: str = "closed",
        used: tuple[float, int, int] | None = None,
    ) -> SandboxRecord:
        """`used`: seconds of CPU, bytes of memory at the most, bytes of files at the end."""
        record = SandboxRecord(
            id=new_id("sbx", at=at, entropy=self.entropy()),
            backend=backend,
            isolation=isolation,
            runtime="python",
            created_at=_moment(at),
            timeout=300.0,
            cpus=1.0,
            memory=512 * 1024 * 1024,
            disk=1024 * 1024 * 1024,
            pids=128,
            network=network,
            source=None,
            run_id=run.id if run else None,
            workflow=run.workflow if run else None,
            step=step[0] if step else None,
            step_key=step[1] if step else None,
            attempt=1 if step else None,
        )
        sandbox_rows.add_sandbox(self.connection, self.owner.id, record)
        if seconds is not None:
            cpu, peak, files = used or (None, None, None)
            record = replace(
                record,
                stopped_at=_moment(at + seconds),
                stopped_because=because,
                cpu_seconds=cpu,
                peak_memory=peak,
                disk_used=files,
            )
            sandbox_rows.stop_sandbox(self.connection, record)
        return record

    def command(
        self,
        sandbox: SandboxRecord,
        at: float,
        seconds: float,
        argv: tuple[str, ...],
        *,
        code: int = 0,
        ended: str = "exited",
        stdout: str = "",
        stderr: str = "",
        limits: tuple[str, ...] = (),
        used: tuple[float, int] | None = None,
    ) -> None:
        """`used`: seconds of CPU, bytes of memory at the most."""
        record = CommandRecord(
            id=new_id("cmd", at=at, entropy=self.entropy()),
            sandbox_id=sandbox.id,
            argv=argv,
            cwd="/work",
            started_at=_moment(at),
            run_id=sandbox.run_id,
            workflow=sandbox.workflow,
            step=sandbox.step,
            step_key=sandbox.step_key,
            attempt=sandbox.attempt,
        )
        sandbox_rows.add_command(self.connection, self.owner.id, record)
        done = replace(
            record,
            ended_at=_moment(at + seconds),
            ended=ended,
            exit_code=code if ended == "exited" else None,
            signal=None if ended == "exited" else 9,
            seconds=seconds,
            limits_hit=limits,
            stdout_bytes=len(stdout),
            stderr_bytes=len(stderr),
            stdout_tail=stdout,
            stderr_tail=stderr,
            cpu_seconds=used[0] if used else None,
            peak_memory=used[1] if used else None,
        )
        sandbox_rows.end_command(self.connection, done)

    def egress(
        self, sandbox: SandboxRecord, at: float, host: str, port: int, allowed: bool, reason: str
    ) -> None:
        record = EgressRecord(
            sandbox.id,
            _moment(at),
            host,
            port,
            allowed,
            reason,
            "151.101.1.63" if allowed else None,
            1840 if allowed else 0,
            48213 if allowed else 0,
            sandbox.run_id,
        )
        sandbox_rows.add_egress(self.connection, record)


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


class SeededRun:
    """A run whose journal is written as it is told."""

    def __init__(
        self,
        seed: Seed,
        workflow: str,
        at: float,
        input: dict[str, Any],
        *,
        attributes: dict[str, Any] | None = None,
        key: str | None = None,
        parent: str | None = None,
        forked_from: str | None = None,
        id: str | None = None,
    ) -> None:
        self.seed, self.workflow, self.created_at = seed, workflow, at
        self.id = id or new_id("run", at=at, entropy=seed.entropy())
        self.at = at
        self._seq = 0
        self._commands = 0
        row = (
            self.id,
            workflow,
            key,
            parent,
            forked_from,
            "pending",
            None,
            None,
            at,
            None,
            None,
            None,
        )
        seed.connection.execute(INSERT_RUN, row)
        self.attributes(attributes or {})
        self.event("run.created", value=input, facts={"seed": self.id})

    def attributes(self, attributes: dict[str, Any]) -> None:
        for name, value in attributes.items():
            row = (self.id, name, json.dumps(value, ensure_ascii=False))
            self.seed.connection.execute("INSERT OR REPLACE INTO attributes VALUES (?, ?, ?)", row)

    def event(
        self,
        type: str,
        key: str = "",
        facts: dict[str, Any] | None = None,
        value: Any = None,
        at: float | None = None,
    ) -> int:
        self._seq += 1
        data = None if value is None else json.dumps(value).encode()
        event = Event(
            self.id,
            self._seq,
            type,
            key,
            self.at if at is None else at,
            json.dumps(facts or {}),
            data,
        )
        blob, kept = None, data
        if data is not None and len(data) > INLINE_BYTES:
            blob, kept = f"{self._seq:032x}", None
            self.seed.connection.execute(INSERT_BLOB, (self.id, blob, data))
        row = (*event[:6], kept, blob, event_hash(event))
        self.seed.connection.execute(INSERT_EVENT, row)
        return self._seq

    def begin(self, worker: str | None = None, after: float = 0.05) -> None:
        self.at += after
        self.event("run.started")
        self.seed.connection.execute(
            "UPDATE runs SET status = 'running', started_at = ?, owner = ? WHERE id = ?",
            (self.at, worker, self.id),
        )

    def next_key(self, path: str = "0") -> str:
        self._commands += 1
        return f"{path}/{self._commands - 1}"

    def open(self, name: str, input: dict[str, Any], key: str | None = None, **facts: str) -> str:
        """`facts`: its label, its branch."""
        key = key or self.next_key()
        self.event("step.started", key, {"name": name, **facts}, input)
        return key

    def step(
        self,
        name: str,
        input: dict[str, Any],
        output: Any,
        seconds: float,
        *,
        retries: list[tuple[float, float, str, str]] | None = None,
        error: tuple[str, str, str] | None = None,
        key: str | None = None,
        gap: float = 0.01,
        **facts: str,
    ) -> str:
        """A step that ended: with an output, or with (type, message, traceback)."""
        key = self.open(name, input, key, **facts)
        attempt = 0
        for took, wait, type, message in retries or []:
            attempt += 1
            self.at += took
            facts = {
                "attempt": attempt,
                "error": _error(type, message, _trace(name, type, message)),
                "next_at": self.at + wait,
            }
            self.event("step.retrying", key, facts)
            self.at += wait
        self.at += seconds
        if error is not None:
            facts = {"error": _error(*error), "attempts": attempt + 1}
            self.event("step.failed", key, facts)
        else:
            self.event("step.completed", key, {}, output)
        self.at += gap
        return key

    def child(self, workflow: str, input: dict[str, Any], label: str = "") -> tuple[str, SeededRun]:
        """A child run that begins now; whoever asks for it ends it and says so with `ended`."""
        key = self.next_key()
        made = SeededRun(self.seed, workflow, self.at, input, parent=self.id)
        facts = {"name": workflow, "run": {"id": made.id}, "label": label}
        self.event("child.started", key, facts, input)
        made.begin(after=0.01)
        return key, made

    def ended(self, key: str, child: SeededRun, value: Any) -> None:
        """The child's end has reached this run."""
        self.at = max(self.at, child.at)
        facts = {"type": "run.completed", "run_id": child.id, "facts": {}}
        self.event("child.ended", key, facts, value)

    def wait(
        self,
        name: str,
        match: dict[str, Any],
        seconds: float | None,
        payload: Any = None,
        limit: float = 86400,
    ) -> str:
        key = self.next_key()
        self.event("wait.created", key, {"name": name, "match": match, "deadline": self.at + limit})
        if seconds is None:
            row = (self.id, key, name, "", json.dumps(match))
            self.seed.connection.execute(INSERT_WAIT, row)
            return key
        self.at += seconds
        self.event("wait.received", key, {"message": 1, "event_id": "evt_1"}, payload)
        return key

    def timer(self, seconds: float, *, fired: bool = True) -> str:
        key = self.next_key()
        self.event("timer.set", key, {"name": "sleep", "fire_at": self.at + seconds})
        if fired:
            self.at += seconds
            self.event("timer.fired", key)
        return key

    def status(self, status: str, *, due_at: float | None = None, owner: str | None = None) -> None:
        self.seed.connection.execute(
            "UPDATE runs SET status = ?, due_at = ?, owner = ? WHERE id = ?",
            (status, due_at, owner, self.id),
        )

    def complete(self, result: Any) -> None:
        self.event("run.completed", value=result)
        self._end("completed", None)

    def fail(
        self, type: str, message: str, trace: str = "", caused_by: list[int] | None = None
    ) -> None:
        facts = {"error": _error(type, message, trace), "caused_by": caused_by or [self._seq]}
        self.event("run.failed", facts=facts)
        self._end("failed", f"{type}: {message}")

    def stick(self, type: str, message: str) -> None:
        self.event("run.stuck", facts={"error": _error(type, message, "")})
        self.seed.connection.execute(
            "UPDATE runs SET status = 'stuck', error = ?, owner = NULL WHERE id = ?",
            (f"{type}: {message}", self.id),
        )

    def cancel(self) -> None:
        self.event("cancel.requested")
        self.at += 0.02
        self.event("run.cancelled")
        self._end("cancelled", None)

    def _end(self, status: str, error: str | None) -> None:
        self.seed.connection.execute(
            "UPDATE runs SET status = ?, error = ?, finished_at = ?, owner = NULL, due_at = NULL WHERE id = ?",
            (status, error, self.at, self.id),
        )


def _error(type: str, message: str, trace: str) -> dict[str, Any]:
    return {"type": type, "message": message, "traceback": trace}


def _trace(name: str, type: str, message: str) -> str:
    return (
        "Traceback (most recent call last):\n"
        f'  File "shop/orders.py", line 41, in {name}\n'
        "    reply = await client.post(url, json=order)\n"
        f"{type}: {message}\n"
    )
