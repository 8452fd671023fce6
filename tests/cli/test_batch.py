"""`holdfast batch`: many tasks from a file, resumed by the same command."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from waiting import LIMIT, until

from .conftest import Holdfast

PALINDROME = {"prompt": "Write is_palindrome, ignoring case and punctuation"}
HEALED = {"prompt": "Write longest_common_subsequence(a, b)"}
CHUNK = {"prompt": "Write chunk(items, size)", "language": "typescript"}
UNKNOWN = {"prompt": "Write a chess engine"}


def tasks(holdfast: Holdfast, *lines: dict[str, Any] | str, name: str = "tasks.jsonl") -> str:
    text = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    (holdfast.folder / name).write_text("\n".join(text) + "\n")
    return name


def all_runs(holdfast: Holdfast) -> list[dict[str, Any]]:
    return holdfast("runs", "list", "--workflow", "evaluate_code", "--json").json.get("runs", [])


def most_at_once(runs: Sequence[dict[str, Any]]) -> int:
    moments = [(run["started_at"], 1) for run in runs] + [(run["finished_at"], -1) for run in runs]
    now = most = 0
    for _, change in sorted(moments):
        now += change
        most = max(most, now)
    return most


def test_a_file_of_tasks_ends_in_a_table_and_totals(holdfast: Holdfast) -> None:
    file = tasks(holdfast, PALINDROME, "", HEALED, UNKNOWN)
    done = holdfast("batch", file, "--out", "results.jsonl")
    assert done.code == 1
    heading, first, second, third, closing = done.out.splitlines()
    assert heading.split()[:3] == ["LINE", "RESULT", "ATTEMPTS"]
    assert first.split()[:3] == ["1", "passed", "1"]
    assert second.split()[:3] == ["3", "passed", "2"]
    assert third.split()[:2] == ["4", "failed"]
    assert closing.startswith("2 of 3 passed · 1 failed")
    assert len([line for line in done.err.splitlines() if "/3 " in line]) == 3
    written = (holdfast.folder / "results.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in written]
    assert [(row["line"], row["result"]) for row in rows] == [
        (1, "passed"),
        (3, "passed"),
        (4, "failed"),
    ]
    assert "def is_palindrome" in rows[0]["value"]["code"]
    assert rows[1]["tokens"] > rows[0]["tokens"] > 0


def test_the_same_file_again_repeats_nothing(holdfast: Holdfast) -> None:
    file = tasks(holdfast, PALINDROME, PALINDROME, {**HEALED, "id": "lcs"})
    first = holdfast("batch", file, "--json").json
    runs = [row["run"] for row in first["results"]]
    assert len(set(runs)) == 3  # the same line twice is two tasks
    assert not any(row["ended_before"] for row in first["results"])

    again = holdfast("batch", file, "--json").json
    assert [row["run"] for row in again["results"]] == runs
    assert all(row["ended_before"] for row in again["results"])
    assert again["totals"]["ended_before"] == 3
    assert again["totals"]["tokens"] == first["totals"]["tokens"]

    tasks(holdfast, {**HEALED, "id": "lcs"}, PALINDROME, PALINDROME, CHUNK, name=file)
    more = holdfast("batch", file, "--json", "--concurrency", "1").json
    assert {row["run"] for row in more["results"]} > set(runs)
    assert more["totals"]["ended_before"] == 3

    other = holdfast("batch", file, "--json", "--name", "another").json
    assert not {row["run"] for row in other["results"]} & set(runs)


def test_a_batch_that_was_killed_goes_on_where_it_was(holdfast: Holdfast) -> None:
    file = tasks(holdfast, *({**PALINDROME, "id": f"t{n}"} for n in range(4)))
    process = holdfast.spawn("batch", file, "--concurrency", "1")

    def some_ended() -> bool:
        return any(run["status"] == "completed" for run in all_runs(holdfast))

    until(some_ended, "a first task has ended")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = {run["id"]: run["status"] for run in all_runs(holdfast)}
    assert 1 <= len(before) < 4

    done = holdfast("batch", file, "--json")
    assert done.code == 0, done.err
    results = done.json["results"]
    assert [row["result"] for row in results] == ["passed"] * 4
    assert set(before) <= {row["run"] for row in results}
    assert len(all_runs(holdfast)) == 4
    ended = {run for run, status in before.items() if status == "completed"}
    assert {row["run"] for row in results if row["ended_before"]} >= ended


def test_no_more_than_asked_for_run_at_once(holdfast: Holdfast) -> None:
    file = tasks(holdfast, *({**PALINDROME, "id": f"t{n}"} for n in range(4)))
    assert holdfast("batch", file, "--concurrency", "2", "--json").code == 0
    assert most_at_once(all_runs(holdfast)) == 2
    wrong = holdfast("batch", file, "--concurrency", "0", "--json")
    assert wrong.code == 2 and "let nothing run" in wrong.error["message"]


def test_ctrl_c_leaves_the_batch_and_says_how_to_go_on(holdfast: Holdfast) -> None:
    file = tasks(holdfast, *({**PALINDROME, "id": f"t{n}"} for n in range(3)))
    process = holdfast.spawn("batch", file, "--concurrency", "1", "--out", "part.jsonl")
    until(lambda: any(r["status"] == "completed" for r in all_runs(holdfast)), "one has ended")
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 130
    assert "detached" in err and "the same command again" in err
    assert not [run for run in all_runs(holdfast) if run["status"] == "cancelled"]
    part = (holdfast.folder / "part.jsonl").read_text().splitlines()
    assert 1 <= len(part) < 3
    assert holdfast("batch", file, "--json").code == 0


def test_bad_lines_are_named_and_nothing_is_begun(holdfast: Holdfast) -> None:
    bad = [
        "nonsense",
        "[1]",
        {"prompt": ""},
        {"prompt": "x", "langauge": "python"},
        {"prompt": "x", "language": "cobol"},
        {"prompt": "x", "attempts": "many"},
        {"repo": "/nowhere", "task": "x"},
        {**HEALED, "id": "a"},
        {**HEALED, "id": "a"},
    ]
    file = tasks(holdfast, PALINDROME, *bad)
    done = holdfast("batch", file)
    assert done.code == 2
    for line in (2, 3, 4, 5, 6, 7, 8, 10):
        assert f"line {line}: " in done.err
    assert "line 9: " not in done.err
    assert "did you mean 'language'?" in done.err
    assert "8 of 10 lines" in done.err
    assert all_runs(holdfast) == []
    went_on = holdfast("batch", file, "--skip-bad", "--json")
    assert went_on.code == 0 and went_on.json["totals"]["tasks"] == 2


def test_an_id_stands_for_one_task_only(holdfast: Holdfast) -> None:
    file = tasks(holdfast, {**PALINDROME, "id": "one"})
    assert holdfast("batch", file, "--json").code == 0
    tasks(holdfast, {**HEALED, "id": "one"}, name=file)
    done = holdfast("batch", file, "--json")
    assert done.code == 3
    assert done.error["kind"] == "RunMismatch" and "line 1" in done.error["message"]


def test_a_failed_task_is_gone_on_with_only_when_asked(holdfast: Holdfast, tmp_path: Path) -> None:
    (holdfast.folder / "flaky.py").write_text(
        "import os\n"
        "from holdfast.gateway import Fail\n"
        "from holdfast.agents.code.demo import answer\n"
        "def talk(request):\n"
        "    return answer(request) if os.path.exists('mended') else Fail(401)\n"
    )
    (holdfast.folder / "holdfast.toml").write_text('[gateway.scripted]\nflaky = "flaky:talk"\n')
    holdfast.environment["PYTHONPATH"] = str(holdfast.folder)
    file = tasks(holdfast, {**PALINDROME, "model": "scripted/flaky"})
    assert holdfast("batch", file, "--json").json["results"][0]["result"] == "failed"
    (holdfast.folder / "mended").touch()
    [still] = holdfast("batch", file, "--json").json["results"]
    assert still["result"] == "failed" and still["ended_before"]
    [mended] = holdfast("batch", file, "--retry", "--json").json["results"]
    assert mended["summary"] == "6 passed"
    assert mended["result"] == "passed" and mended["run"] == still["run"]


def test_a_budget_holds_over_the_whole_batch(holdfast: Holdfast) -> None:
    (holdfast.folder / "holdfast.toml").write_text(
        '[gateway.prices."scripted/demo"]\ninput = 1\noutput = 100\n'
    )
    file = tasks(holdfast, *({**PALINDROME, "id": f"t{n}"} for n in range(3)))
    done = holdfast("batch", file, "--concurrency", "1", "--budget", "0.86", "--json").json
    assert [row["passed"] for row in done["results"]].count(True) < 3
    assert 0 < float(done["totals"]["usd"]) <= 0.86
