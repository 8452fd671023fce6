"""What `worker` and `serve` print while they work: a line for each step they finish."""

from __future__ import annotations

import json
import signal

from waiting import until

from .conftest import SHOP, Holdfast


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
        _, err = worker.communicate(timeout=30)
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
