"""The real command, run as its users run it: a process of its own on a store of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from waiting import LIMIT

SHOP = str(Path(__file__).parent / "shop.py")
COMMAND = [sys.executable, "-m", "holdfast.cli.main"]


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, Any]:
        return self.json["error"]


class Holdfast:
    """`holdfast`, with its store in a folder that is gone after the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "shop.db"
        self.effects_file = folder / "effects"
        self.environment = {
            **os.environ,
            "HOLDFAST_STORE": str(self.store),
            "SHOP_EFFECTS": str(self.effects_file),
            "SHOP_FIXED": str(folder / "fixed"),
            "PYTHONUNBUFFERED": "1",
        }
        for name in [name for name in self.environment if name.endswith("_API_KEY")]:
            del self.environment[name]  # tasks go to the scripted model
        self.environment.pop("NO_COLOR", None)
        self.started: list[subprocess.Popen[str]] = []

    def __call__(self, *arguments: str, stdin: str = "") -> Done:
        done = subprocess.run(
            [*COMMAND, *arguments],
            capture_output=True,
            text=True,
            input=stdin,
            env=self.environment,
            cwd=self.folder,
            timeout=LIMIT,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def spawn(self, *arguments: str) -> subprocess.Popen[str]:
        """The command in the background; it is killed after the test if need be."""
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            env=self.environment,
            cwd=self.folder,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def worker(self) -> subprocess.Popen[str]:
        """A worker that is ready."""
        process = self.spawn("worker", SHOP, "--json", "--quiet")
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["workflows"]
        return process

    def start(self, workflow: str, *options: str, **input: Any) -> Done:
        return self("run", f"{SHOP}:{workflow}", "--input", json.dumps(input), *options)

    def detached(self, workflow: str, *options: str, **input: Any) -> str:
        """The id of a run that nobody works on yet."""
        done = self.start(workflow, "--detach", *options, **input)
        assert done.code == 0, done
        return done.out.strip()

    def effects(self) -> list[str]:
        return self.effects_file.read_text().splitlines() if self.effects_file.exists() else []

    def show(self, run: str) -> dict[str, Any]:
        return self("runs", "show", run, "--json").json

    def end(self) -> None:
        for process in self.started:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.fixture
def holdfast(tmp_path: Path) -> Iterator[Holdfast]:
    command = Holdfast(tmp_path)
    yield command
    command.end()


SEED = """
import sys
from holdfast.cli.main import main

for words, code in (
    (["order", '{"item": "apple"}', "--key", "first"], 0),
    (["order", '{"item": "apple", "amount": -1}'], 1),
    (["lengthy", '{"seconds": 0}'], 0),
):
    workflow, input, *more = words
    assert main(["run", f"{sys.argv[1]}:{workflow}", "--input", input, *more]) == code
"""


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Holdfast:
    """A store with three ended runs (order, order that failed, lengthy), for tests that look."""
    command = Holdfast(tmp_path_factory.mktemp("shop"))
    seed = [sys.executable, "-c", SEED, SHOP]
    subprocess.run(seed, env=command.environment, check=True, capture_output=True)
    return command
