"""`holdfast run "task"`: live lines, files, exit codes, detaching and coming back."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

from waiting import LIMIT, until

from .conftest import Holdfast

HEALED = "Write longest_common_subsequence(a, b)"


def test_a_task_is_solved_and_its_files_are_written(holdfast: Holdfast) -> None:
    done = holdfast("run", "Write is_palindrome, ignoring case and punctuation")
    assert done.code == 0
    assert "passed on attempt 1 of 3" in done.out
    assert "solution.py, test_solution.py" in done.out
    lines = [line.split("  ")[0].strip() for line in done.err.splitlines()]
    steps = [line for line in lines if line.startswith("✓") and line != "✓ prepare"]  # if slow
    assert steps == ["✓ generate code", "✓ generate tests", "✓ run tests"]
    assert "scripted demo model, no AI" in done.err
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_solution.py"],
        cwd=holdfast.folder,
        check=True,
    )


def test_a_failure_heals_and_can_be_seen_to(holdfast: Holdfast) -> None:
    done = holdfast("run", HEALED, "--json")
    assert done.code == 0
    told = json.loads(done.out)
    assert told["result"]["passed"] and told["result"]["attempts"] == 2
    verdicts = [s["output"]["passed"] for s in told["steps"] if s["name"] == "run_tests"]
    assert verdicts == [False, True]
    assert told["files"] == ["solution.py", "test_solution.py"]


def test_other_files_of_these_names_are_not_written_over(holdfast: Holdfast) -> None:
    (holdfast.folder / "solution.py").write_text("precious = True\n")
    done = holdfast("run", "Write is_palindrome")
    assert done.code == 0
    assert (holdfast.folder / "solution.py").read_text() == "precious = True\n"
    [folder] = holdfast.folder.glob("run_*")
    assert (folder / "solution.py").exists()
    holdfast("run", "Write is_palindrome", "--out", "made/here")
    assert (holdfast.folder / "made/here/test_solution.py").exists()


def test_a_task_the_demo_model_does_not_know_is_said_to_need_a_real_one(holdfast: Holdfast) -> None:
    done = holdfast("run", "Write a chess engine")
    assert done.code == 1
    assert "a real model is needed" in done.err and "ANTHROPIC_API_KEY" in done.err
    assert not list(holdfast.folder.glob("solution*"))


def test_what_can_never_work_is_refused_before_there_is_a_run(holdfast: Holdfast) -> None:
    task = "Write is_palindrome"
    wrong = {
        ("--attempts", "0"): "between 1 and 20",
        ("--attempts", "21"): "between 1 and 20",
        ("--model", "nobody/nothing"): "unknown model",
        ("--test-model", "openai/gpt-5.2"): "no provider here can serve",
        ("--package", "../evil"): "is no package of the registry",
        ("--budget", "-1"): "is no amount",
    }
    for options, said in wrong.items():
        done = holdfast("run", task, *options)
        assert done.code in (2, 3) and said in done.err, (options, done.err)
    holdfast.environment |= {"OPENAI_API_KEY": "sk-x", "OPENAI_BASE_URL": "not an address"}
    bad = holdfast("run", task)
    del holdfast.environment["OPENAI_BASE_URL"]
    assert bad.code == 2 and "is not a valid http(s) address" in bad.err, bad.err
    assert json.loads(holdfast("runs", "list", "--json").out)["runs"] == []


def test_a_key_belongs_to_one_task(holdfast: Holdfast) -> None:
    first = holdfast("run", "Write is_palindrome", "--key", "k", "--detach").out.strip()
    assert holdfast("run", "Write is_palindrome", "--key", "k", "--detach").out.strip() == first
    other = holdfast("run", "Write to_roman", "--key", "k", "--detach")
    assert other.code == 3
    assert "was used before, for another input" in other.err


def test_a_run_says_which_model_store_and_sandbox_it_uses(holdfast: Holdfast) -> None:
    done = holdfast("run", "Write to_roman")
    head, *_, sandbox, _ = done.err.splitlines()
    assert head.startswith("run_") and head.endswith("shop.db")
    assert sandbox.split() in (["sandbox", "namespace"], ["sandbox", "gvisor"])
    assert "by scripted/demo: no key is set and no model server answers here" in done.err


def test_a_task_left_to_a_worker_is_carried_out_by_it(holdfast: Holdfast) -> None:
    run_id = holdfast("run", HEALED, "--detach").out.strip()
    assert holdfast.show(run_id)["status"] == "pending"
    holdfast.spawn("worker")
    watched = holdfast("runs", "watch", run_id)
    assert watched.code == 0
    assert holdfast.show(run_id)["result"]["passed"]


def test_ctrl_c_detaches_and_the_run_goes_on_with_a_worker(holdfast: Holdfast) -> None:
    running = holdfast.spawn("run", HEALED)
    assert running.stderr is not None
    run_id = running.stderr.readline().split()[0]
    until(lambda: holdfast.show(run_id)["steps"] != [], "the first step")
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=LIMIT)
    assert running.returncode == 130
    assert f"holdfast runs watch {run_id}" in err
    holdfast.spawn("worker")
    assert holdfast("runs", "watch", run_id).code == 0
    assert holdfast.show(run_id)["result"]["passed"]


def test_a_run_may_take_as_long_as_it_is_given(holdfast: Holdfast) -> None:
    run_id = holdfast("run", "Write is_palindrome", "--timeout", "10m", "--detach").out.strip()
    run = holdfast("runs", "show", run_id, "--json").json
    assert run["timeout"] == 600.0 or run["run"]["timeout"] == 600.0
    for wrong in ("soon", "0s"):
        done = holdfast("run", "Write is_palindrome", "--timeout", wrong)
        assert done.code == 2, done
    assert len(holdfast("runs", "list", "--json").json["runs"]) == 1


def test_what_can_not_be_asked_of_the_tests_is_refused_before_a_run_exists(
    holdfast: Holdfast,
) -> None:
    for wrong in (
        ("--min-score", "2"),
        ("--min-score", "0.5", "--check-tests", "off"),
        ("--cross-check", "nobody/nothing"),
        ("--evidence", "x", "--detach"),
        ("--check-tests", "a bit"),
    ):
        assert holdfast("run", "Write is_palindrome", *wrong).code in (2, 3), wrong
    assert holdfast("runs", "list", "--json").json["runs"] == []
