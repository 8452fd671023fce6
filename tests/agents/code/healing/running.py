"""Running the agent as its users do, and looking at what it left: files, ledger, journal."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from agents.code.healing.pairing import Pair
from holdfast import open_engine, start
from holdfast.agents.code import Evaluation, evaluate_code
from holdfast.testing.providers import FakeProvider, FakeScript
from waiting import LIMIT

COMMAND = [sys.executable, "-m", "holdfast.cli.main"]
MODELS = {
    "chat": "openai/gpt-5.2",
    "responses": "openai/gpt-5.2",
    "anthropic": "anthropic/claude-sonnet-4.6",
}
"""By the format that is spoken with them."""
RESPONSES = '[gateway.providers.openai]\nformats = ["responses"]\n'


@dataclass(frozen=True, repr=False)
class Done:
    code: int
    out: str
    err: str

    def __repr__(self) -> str:
        return f"exit code {self.code}\n{self.out}\n{self.err}"


@dataclass(frozen=True)
class Charge:
    """A row of the ledger."""

    id: str
    status: str
    step: str
    cost: int | None
    charge: int
    tokens: int


class Bench:
    """A folder with a store, and what was started in it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, folder / "store.db"
        self.variables = {
            "HOLDFAST_STORE": str(self.store),
            "HOLDFAST_CODE_TEST_TIMEOUT": "20",
            "OPENAI_API_KEY": "sk-none-of-anybodys",
            "ANTHROPIC_API_KEY": "sk-ant-none-of-anybodys",
        }
        self._started: list[subprocess.Popen[str]] = []
        self._fakes: list[FakeProvider] = []

    def provide(self, script: FakeScript, format: str = "chat") -> FakeProvider:
        """A provider on loopback to which everything goes from now on."""
        fake = FakeProvider(script).__enter__()
        self._fakes.append(fake)
        given = {"OPENAI_BASE_URL": fake.url, "ANTHROPIC_BASE_URL": fake.anthropic_url}
        self.variables |= given
        os.environ.update(given)  # undone by the fixture
        if format == "responses":
            (self.folder / "holdfast.toml").write_text(RESPONSES)
        return fake

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, **self.variables, "NO_COLOR": "1"}

    # --- in this process ---

    def evaluate(
        self, pairs: Sequence[Pair], model: str, at_once: int = 4, **options: Any
    ) -> dict[str, Evaluation]:
        """Have pairs done by an engine in this process, some at once."""

        async def one(pair: Pair, room: asyncio.Semaphore) -> Evaluation:
            async with room:
                run = await start(
                    evaluate_code.options(key=pair.name),
                    pair.task,
                    language=pair.language,
                    model=model,
                    **options,
                )
                return await run.result()

        async def everything() -> list[Evaluation]:
            room = asyncio.Semaphore(at_once)
            async with open_engine(self.store):
                return await asyncio.gather(*(one(pair, room) for pair in pairs))

        found = asyncio.run(everything())
        return {pair.name: each for pair, each in zip(pairs, found, strict=True)}

    # --- in processes of their own ---

    def __call__(self, *arguments: str, program: Sequence[str] = COMMAND, **env: str) -> Done:
        """The command, to its end."""
        process = self.spawn(*arguments, program=program, **env)
        out, err = process.communicate(timeout=LIMIT)
        return Done(process.returncode, out, err)

    def spawn(
        self, *arguments: str, program: Sequence[str] = COMMAND, **env: str
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**self.environment, **env},
            cwd=self.folder,
            start_new_session=True,
        )
        self._started.append(process)
        return process

    def end(self) -> None:
        for process in self._started:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
            process.communicate()
        for fake in self._fakes:
            fake.__exit__(None, None, None)
        self._started.clear()
        self._fakes.clear()

    # --- what they left ---

    def rows(self, sql: str, *values: Any) -> list[Any]:
        if not self.store.exists():
            return []
        with closing(sqlite3.connect(self.store, timeout=30)) as connection:
            return connection.execute(sql, values).fetchall()

    def run_of(self, key: str) -> str:
        found = self.rows("SELECT id FROM runs WHERE key = ?", key)
        return found[0][0]

    def charges(self, run_id: str | None = None) -> list[Charge]:
        """What the ledger says was called, in order."""
        sql = (
            "SELECT id, status, step, cost, charge, input_tokens + output_tokens FROM calls "
            "WHERE ? IS NULL OR run_id = ? ORDER BY started_at, id"
        )
        return [Charge(*row) for row in self.rows(sql, run_id, run_id)]

    def spent(self, run_id: str) -> Decimal:
        """What the run's budget says it has spent, in US dollars."""
        found = self.rows("SELECT usd + held_usd FROM spend WHERE scope = ?", f"run:{run_id}")
        return Decimal(found[0][0] if found else 0) / 10**9

    def events(self, run_id: str) -> list[tuple[str, str]]:
        return self.rows("SELECT type, key FROM events WHERE run_id = ? ORDER BY seq", run_id)
