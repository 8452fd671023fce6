"""`holdfast worker`: what it prints, how it stops, and how another takes over from a dead one."""

from __future__ import annotations

import json
import signal

from waiting import LIMIT, until

from .conftest import SHOP, Holdfast


def test_a_worker_says_what_it_knows_and_where_it_works(holdfast: Holdfast) -> None:
    worker = holdfast.spawn("worker", SHOP)
    assert worker.stderr is not None
    head = worker.stderr.readline() + worker.stderr.readline()
    assert f"(pid {worker.pid}) on {holdfast.store}" in head
    assert "workflows: approved, evaluate_code, lengthy, order" in head
    worker.send_signal(signal.SIGINT)
    out, err = worker.communicate(timeout=LIMIT)
    assert (worker.returncode, out) == (0, "")
    assert err.splitlines()[-1] == "stopped"


def test_a_worker_killed_with_9_is_replaced_and_no_finished_step_is_done_again(
    holdfast: Holdfast,
) -> None:
    run_id = holdfast.detached("lengthy", seconds=0.5)
    first = holdfast.worker()
    until(lambda: "begin second" in holdfast.effects(), "the second step")
    first.kill()
    first.wait()
    holdfast.worker()
    assert holdfast("runs", "watch", run_id).code == 0
    assert holdfast.show(run_id)["result"] == ["first", "second"]
    assert holdfast.effects() == [
        *["begin first", "end first", "begin second"],
        *["begin second", "end second"],
    ]


def test_another_worker_that_is_there_takes_over_by_itself(holdfast: Holdfast) -> None:
    run_id = holdfast.detached("lengthy", seconds=1)
    first = holdfast.worker()
    until(lambda: "begin second" in holdfast.effects(), "the second step")
    holdfast.worker()
    first.kill()
    assert holdfast("runs", "watch", run_id).code == 0


def test_sigterm_lets_the_step_under_way_finish(holdfast: Holdfast) -> None:
    run_id = holdfast.detached("lengthy", seconds=0.7)
    worker = holdfast.worker()
    until(lambda: "begin second" in holdfast.effects(), "the second step")
    worker.send_signal(signal.SIGTERM)
    out, _err = worker.communicate(timeout=LIMIT)
    assert worker.returncode == 0
    assert json.loads(out)["stopped"] == "SIGTERM"
    assert holdfast.effects()[-1] == "end second"
    steps = holdfast.show(run_id)["steps"]
    assert [step["status"] for step in steps] == ["completed", "completed"]


def test_without_grace_the_step_is_left_to_the_next_worker(holdfast: Holdfast) -> None:
    run_id = holdfast.detached("lengthy", seconds=30)
    worker = holdfast.spawn("worker", SHOP, "--grace", "0")
    until(lambda: "begin second" in holdfast.effects(), "the second step")
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=LIMIT)
    assert holdfast.show(run_id)["status"] == "waiting"


def test_a_second_signal_does_not_wait(holdfast: Holdfast) -> None:
    holdfast.detached("lengthy", seconds=60)
    worker = holdfast.spawn("worker", SHOP, "--grace", "60s")
    until(lambda: "begin second" in holdfast.effects(), "the second step")
    worker.send_signal(signal.SIGINT)
    assert worker.stderr is not None
    until(lambda: "SIGINT" in worker.stderr.readline(), "the first signal")  # type: ignore[union-attr]
    worker.send_signal(signal.SIGINT)
    worker.communicate(timeout=LIMIT)
    assert worker.returncode == 130


def test_a_worker_without_workflows_is_refused(holdfast: Holdfast) -> None:
    (holdfast.folder / "empty.py").write_text("")
    (holdfast.folder / "broken.py").write_text("import nothing_of_that_name\n")
    for arguments, message in (
        (["empty.py"], "empty.py defines no workflow"),
        (["broken.py"], "broken.py can't be loaded: ModuleNotFoundError"),
        ([SHOP, "--grace", "soon"], "'soon' is no duration"),
    ):
        done = holdfast("worker", *arguments, "--json")
        assert (done.code, done.error["kind"]) == (2, "UsageError")
        assert message in done.error["message"]
    assert "broken.py, line 1" in holdfast("worker", "broken.py").err


def test_a_module_can_be_named_instead_of_a_file(holdfast: Holdfast) -> None:
    package = holdfast.folder / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "jobs.py").write_text(
        "from holdfast import workflow\n\n\n@workflow\nasync def one() -> int:\n    return 1\n"
    )
    done = holdfast("run", "mine.jobs:one")
    assert done.json == 1


# --- a line for each finished step, of `worker` and of `serve` ---


def read_until(stream: object, last: str) -> list[str]:
    """Lines of a process up to the one with these words."""
    lines: list[str] = []
    while not lines or last not in lines[-1]:
        line = stream.readline()  # type: ignore[attr-defined]
        assert line, lines
        lines.append(line.rstrip())
    return lines


def test_a_worker_prints_a_line_for_each_finished_step_and_each_ended_run(
    holdfast: Holdfast,
) -> None:
    worker = holdfast.spawn("worker", SHOP)
    good = holdfast.detached("lengthy", seconds=0)
    lines = read_until(worker.stderr, f"✓ {good}  lengthy completed after")
    steps = [line for line in lines if line.startswith(good[-8:])]
    assert [line.split()[:3] for line in steps] == [
        [good[-8:], "✓", "slow"],
        [good[-8:], "✓", "slow"],
    ]
    bad = holdfast.detached("order", item="apple", amount=-1)
    lines = read_until(worker.stderr, f"✗ {bad}  order failed after")
    assert any(line.startswith(f"{bad[-8:]} ✗ ") for line in lines)


def test_json_lines_have_the_step_its_time_and_its_run(holdfast: Holdfast) -> None:
    worker = holdfast.spawn("worker", SHOP, "--json")
    run_id = holdfast.detached("lengthy", seconds=0)
    lines = [json.loads(line) for line in read_until(worker.stdout, '"ended"')]
    told = [(line["run"], line["step"]["name"]) for line in lines if "step" in line]
    assert told == [(run_id, "slow"), (run_id, "slow")]
    assert all(line["step"]["seconds"] >= 0 for line in lines if "step" in line)
    assert lines[-1]["ended"]["status"] == "completed"


def test_quiet_prints_none_and_another_worker_s_steps_are_not_told(holdfast: Holdfast) -> None:
    quiet = holdfast.spawn("worker", SHOP, "--quiet")
    (holdfast.folder / "other.py").write_text(
        "from holdfast import workflow\n\n\n@workflow\nasync def other() -> int:\n    return 1\n"
    )
    strange = holdfast.spawn("worker", "other.py")
    read_until(strange.stderr, "Ctrl-C")
    run_id = holdfast.detached("lengthy", seconds=0)
    until(lambda: holdfast.show(run_id)["status"] == "completed", "the run")
    for worker in (quiet, strange):
        worker.send_signal(signal.SIGTERM)
        _, err = worker.communicate(timeout=LIMIT)
        assert run_id[-8:] not in err


def test_a_reader_that_does_not_read_holds_up_no_work(holdfast: Holdfast) -> None:
    """More lines than a pipe holds, and nobody reads them."""
    (holdfast.folder / "many.py").write_text(
        "from holdfast import step, workflow\n\n\n"
        "@step\nasync def one(n: int) -> str:\n    return 'x' * 100\n\n\n"
        "@workflow\nasync def many() -> int:\n"
        "    for n in range(600):\n        await one(n)\n    return 1\n"
    )
    holdfast.spawn("worker", "many.py", "--json")
    done = holdfast("run", "many.py:many", "--detach")
    assert holdfast("runs", "watch", done.out.strip(), "--json").code == 0
