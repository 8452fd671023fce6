"""`holdfast serve` in a process of its own: what it says, how it stops, who goes on."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from waiting import LIMIT, until

from .process import COMMAND, JOBS, Process

TOKEN = "a token of more than sixteen characters"


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    processes: list[Process] = []

    def start(*arguments: str, **environ: str) -> Process:
        processes.append(Process(tmp_path, *arguments, **environ))
        return processes[-1]

    yield start
    for process in processes:
        process.end()


def status(process: Process, run_id: str) -> str:
    return str(json.loads(process.command("runs", "show", run_id, "--json").stdout)["status"])


def started(process: Process, seconds: float) -> str:
    code, run = process.ask("POST", "/api/workflows/lengthy/runs", {"input": {"seconds": seconds}})
    assert code == 202, run
    return str(run["id"])


def failing(folder: Path, *arguments: str, **environ: str) -> tuple[int, dict[str, Any]]:
    """The exit code and error of a server that does not come up."""
    clean = {n: v for n, v in os.environ.items() if not n.startswith("HOLDFAST_")}
    done = subprocess.run(
        [*COMMAND, "serve", "--json", "--quiet", "--store", str(folder / "store.db"), *arguments],
        capture_output=True,
        text=True,
        env={**clean, **environ},
        cwd=folder,
        timeout=LIMIT,
        check=False,
    )
    return done.returncode, json.loads(done.stdout)["error"]


def test_it_says_where_it_is_and_what_it_can_do(serve: Callable[..., Process]) -> None:
    process = serve(JOBS)
    facts = process.facts
    assert facts["url"].startswith("http://127.0.0.1:")
    assert facts["worker"].startswith("wkr_")
    assert facts["store"] == process.environment["HOLDFAST_STORE"]
    assert {"anything", "evaluate_code", "lengthy"} <= set(facts["workflows"])
    assert "scripted" in facts["models"]
    assert process.ask("GET", "/api/health")[1]["works"]


def test_it_says_so_to_people_on_stderr(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "serve", JOBS, "--port", "0", "--no-worker", "--store", "a.db"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    ) as popen:
        assert popen.stderr is not None
        head = [popen.stderr.readline() for _ in range(5)]
        popen.send_signal(signal.SIGINT)
        out, err = popen.communicate(timeout=LIMIT)
    assert head[0].startswith("holdfast at http://127.0.0.1:")
    assert head[1] == "store a.db, no worker\n"
    assert head[2].startswith("workflows: anything, ")
    assert "scripted" in head[3]
    assert (out, popen.returncode, err.splitlines()[-1]) == ("", 0, "stopped")


def test_a_port_in_use_is_said_with_a_way_out(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, error = failing(tmp_path, "--port", str(taken.getsockname()[1]))
    assert (code, error["kind"]) == (4, "ServerUnavailable")
    assert "--port 0" in error["hint"]


@pytest.mark.parametrize(
    ("arguments", "environ", "words"),
    [
        (["--host", "0.0.0.0"], {}, "needs a token"),
        (["--allow-host", "runs.example"], {}, "needs a token"),
        (["--host", "0.0.0.0", "--token", "short"], {}, "too few"),
        (["--port", "70000"], {}, "70000 is no port"),
        (["--host", "no such host", "--token", TOKEN], {}, "is no address"),
        (["--grace", "soon"], {}, "is no duration"),
        ([], {"HOLDFAST_SERVER_PROT": "1"}, "HOLDFAST_SERVER_PROT"),
        (["missing.py"], {}, "there is no file missing.py"),
    ],
)
def test_a_server_that_should_not_be_is_refused_with_a_reason(
    tmp_path: Path, arguments: list[str], environ: dict[str, str], words: str
) -> None:
    code, error = failing(tmp_path, *arguments, **environ)
    assert code in (2, 3)
    assert words in error["message"]


def test_beyond_loopback_it_wants_its_token(serve: Callable[..., Process]) -> None:
    process = serve("--host", "0.0.0.0", HOLDFAST_SERVER_TOKEN=TOKEN)
    assert process.ask("GET", "/api/runs")[0] == 401
    assert process.ask("GET", "/api/runs", authorization=f"Bearer {TOKEN}")[0] == 200
    assert TOKEN not in json.dumps(process.facts)


def test_settings_come_from_the_configuration_too(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text('[server]\nmax_body = 100\nbody_seconds = "20s"\n')
    process = Process(tmp_path, JOBS)
    try:
        code, answer = process.ask("POST", "/api/events", {"name": "x" * 150})
        assert (code, answer["error"]["kind"]) == (413, "PayloadTooLarge")
    finally:
        process.end()


def test_sigterm_lets_the_step_under_way_finish_and_hands_the_run_over(
    serve: Callable[..., Process],
) -> None:
    process = serve(JOBS, "--grace", "20s")
    run_id = started(process, 1.0)
    until(lambda: "begin-second" in process.effects(), "the second step")
    stream = process.connection()
    stream.request("GET", f"/api/runs/{run_id}/events")
    reply = stream.getresponse()
    assert reply.readline() == b"retry: 1000\n"
    process.popen.send_signal(signal.SIGTERM)
    text = reply.read()  # to its end
    stream.close()
    assert b"event: end" not in text
    out, _ = process.popen.communicate(timeout=LIMIT)
    assert process.popen.returncode == 0
    assert json.loads(out)["stopped"] == "SIGTERM"
    assert process.effects() == ["begin-first", "end-first", "begin-second", "end-second"]
    next_one = serve(JOBS)
    until(lambda: next_one.ask("GET", f"/api/runs/{run_id}")[1]["status"] == "completed", "the end")
    assert process.effects().count("begin-second") == 1


def test_without_grace_the_step_is_left_to_the_next(serve: Callable[..., Process]) -> None:
    process = serve(JOBS, "--grace", "0s")
    run_id = started(process, 60)
    until(lambda: "begin-second" in process.effects(), "the second step")
    process.popen.send_signal(signal.SIGINT)
    out, _ = process.popen.communicate(timeout=LIMIT)
    assert (process.popen.returncode, json.loads(out)["given_back"]) == (0, 1)
    assert status(process, run_id) == "waiting"


def test_while_it_stops_it_accepts_nothing(serve: Callable[..., Process]) -> None:
    process = serve(JOBS, "--grace", "60s")
    started(process, 60)
    until(lambda: "begin-second" in process.effects(), "the second step")
    process.popen.send_signal(signal.SIGTERM)

    def refused() -> bool:
        try:
            process.ask("GET", "/healthz")
        except OSError:
            return True
        return False

    until(refused, "the closed door")
    assert process.popen.poll() is None  # the step has its grace
    process.popen.send_signal(signal.SIGTERM)
    process.popen.communicate(timeout=LIMIT)
    assert process.popen.returncode == 128 + signal.SIGTERM


def test_a_server_killed_with_9_is_replaced_and_nothing_is_done_twice(
    serve: Callable[..., Process],
) -> None:
    process = serve(JOBS)
    run_id = started(process, 0.5)
    until(lambda: "begin-second" in process.effects(), "the second step")
    process.popen.kill()
    process.popen.wait()
    next_one = serve(JOBS)
    until(lambda: next_one.ask("GET", f"/api/runs/{run_id}")[1]["status"] == "completed", "the end")
    assert process.effects().count("begin-first") == 1


def test_without_a_worker_runs_are_left_to_others(serve: Callable[..., Process]) -> None:
    process = serve(JOBS, "--no-worker")
    assert process.facts["worker"] is None
    run_id = started(process, 0)
    other = subprocess.Popen(
        [*COMMAND, "worker", JOBS],
        env=process.environment,
        cwd=process.folder,
        stderr=subprocess.DEVNULL,
    )
    try:
        stream = process.connection()
        stream.request("GET", f"/api/runs/{run_id}/events")
        text = stream.getresponse().read()
        stream.close()
    finally:
        other.kill()
        other.wait()
    assert b"run.completed" in text and text.endswith(b"event: end\ndata: {}\n\n")


def test_fifty_runs_submitted_at_once_all_finish(serve: Callable[..., Process]) -> None:
    from concurrent.futures import ThreadPoolExecutor

    process = serve(JOBS)
    with ThreadPoolExecutor(50) as pool:
        ids = list(pool.map(lambda _: started(process, 0.05), range(50)))
    assert len(set(ids)) == 50

    def completed() -> bool:
        page = process.ask("GET", "/api/runs?status=completed&limit=100")[1]
        return len(page["runs"]) == 50

    until(completed, "fifty runs", 60)
    effects = process.effects()
    assert effects.count("end-second") == 50 and len(effects) == 200
