"""`holdfast worker`: what it says, how it stops, and how another takes over from a dead one."""

from __future__ import annotations

import json
import signal

from waiting import until

from .conftest import SHOP, Holdfast


def test_a_worker_says_what_it_knows_and_where_it_works(holdfast: Holdfast) -> None:
    worker = holdfast.spawn("worker", SHOP)
    assert worker.stderr is not None
    head = worker.stderr.readline() + worker.stderr.readline()
    assert f"(pid {worker.pid}) on {holdfast.store}" in head
    assert "workflows: approved, evaluate_code, lengthy, order" in head
    worker.send_signal(signal.SIGINT)
    out, err = worker.communicate(timeout=30)
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
    out, _err = worker.communicate(timeout=30)
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
    worker.communicate(timeout=20)
    assert holdfast.show(run_id)["status"] == "waiting"


def test_a_second_signal_does_not_wait(holdfast: Holdfast) -> None:
    holdfast.detached("lengthy", seconds=60)
    worker = holdfast.spawn("worker", SHOP, "--grace", "60s")
    until(lambda: "begin second" in holdfast.effects(), "the second step")
    worker.send_signal(signal.SIGINT)
    assert worker.stderr is not None
    until(lambda: "SIGINT" in worker.stderr.readline(), "the first signal")  # type: ignore[union-attr]
    worker.send_signal(signal.SIGINT)
    worker.communicate(timeout=20)
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
