"""`holdfast worker --engine`: the same file, carried out on Temporal by processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dev_server

from waiting import LIMIT, until

APP = """
import os
from holdfast import step, wait_for_event, workflow

@step
async def greet(name: str) -> str:
    return f"Hello, {name}!"

@workflow
async def welcome(name: str) -> list[str]:
    def closure_name() -> str:
        return name

    @step
    async def inner() -> str:
        return closure_name() + " inside"

    said = [await greet(name)]
    await wait_for_event("continue", timeout="5m")
    said.append(await inner())
    return said
"""


def holdfast(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdfast.cli.main", *words]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=LIMIT, check=False
    )


@contextmanager
def working(folder: Path, address: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "holdfast.cli.main", "worker", "app.py", "--store", "runs.db"]
    worker = subprocess.Popen(
        [*command, "--engine", address, "--json"], cwd=folder, stdout=subprocess.PIPE, text=True
    )
    with worker:
        assert worker.stdout is not None
        try:
            assert "welcome" in json.loads(worker.stdout.readline())["workflows"]
            yield worker
        finally:
            worker.kill()


def test_a_run_survives_its_worker_and_is_shown_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    address = dev_server.shared().url()
    with working(tmp_path, address) as worker:
        started = holdfast(
            "run", "app.py:welcome", "--input", '{"name": "Ada"}', "--detach", "--json",
            "--store", "runs.db", cwd=tmp_path,
        )  # fmt: skip
        run_id = json.loads(started.stdout)["id"]

        def shown() -> dict[str, object]:
            told = holdfast("runs", "show", run_id, "--json", "--store", "runs.db", cwd=tmp_path)
            return json.loads(told.stdout)

        until(lambda: _waits(shown()), "the wait")
        os.kill(worker.pid, signal.SIGKILL)
    with working(tmp_path, address) as worker:
        sent = holdfast("events", "send", "continue", "--store", "runs.db", cwd=tmp_path)
        assert sent.returncode == 0, sent.stderr
        ended = until(lambda: _completed(shown()), "the end of the run")
        assert json.dumps(["Hello, Ada!", "Ada inside"]) in json.dumps(ended)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(LIMIT) == 0


def _waits(shown: dict[str, object]) -> bool:
    steps = shown.get("steps")
    return isinstance(steps, list) and any(each["kind"] == "wait" for each in steps)


def _completed(shown: dict[str, object]) -> dict[str, object] | None:
    return shown if shown["status"] == "completed" else None


def test_without_the_extra_the_engine_says_what_to_install(tmp_path: Path) -> None:
    hide = "import sys; sys.modules['temporalio'] = None; from holdfast.cli.main import main; sys.exit(main())"
    told = subprocess.run(
        [sys.executable, "-c", hide, "worker", "--engine", "temporal://127.0.0.1:1/x", "--store", "a.db"],
        cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert "pip install temporalio" in told.stderr
    assert told.returncode == 2
