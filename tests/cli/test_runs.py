"""`holdfast runs`."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
from collections.abc import Callable

import pytest

from waiting import LIMIT, until

from .conftest import COMMAND, Holdfast


def test_runs_are_listed_newest_first(shop: Holdfast) -> None:
    done = shop("runs", "list")
    heading, *rows = done.out.splitlines()
    assert heading.split() == ["RUN", "WORKFLOW", "STATUS", "AGE", "TOOK", "COST", "ABOUT"]
    assert [row.split()[1:3] for row in rows] == [
        ["lengthy", "completed"],
        ["order", "failed"],
        ["order", "completed"],
    ]
    assert "item=apple  amount=-1" in rows[1] and "the card was declined" in rows[1]
    assert "item=apple" in rows[2]


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (["--workflow", "order"], 2),
        (["--status", "completed"], 2),
        (["--status", "completed", "--status", "failed"], 3),
        (["--workflow", "order", "--status", "completed"], 1),
        (["--attribute", "item=apple"], 2),
        (["--attribute", "item=pear"], 0),
        (["--limit", "1"], 1),
    ],
)
def test_filters_narrow_the_list(shop: Holdfast, filters: list[str], found: int) -> None:
    assert len(shop("runs", "list", "--json", *filters).json["runs"]) == found


def test_a_cursor_goes_on_behind_the_last_page(shop: Holdfast) -> None:
    whole = [run["id"] for run in shop("runs", "list", "--json").json["runs"]]
    first = shop("runs", "list", "--json", "--limit", "2").json
    second = shop("runs", "list", "--json", "--limit", "2", "--cursor", first["cursor"]).json
    assert [run["id"] for run in first["runs"] + second["runs"]] == whole
    assert second["cursor"] is None
    assert "--cursor" in shop("runs", "list", "--limit", "2").err


def test_a_run_is_shown_with_its_steps(shop: Holdfast) -> None:
    run_id = shop("runs", "list", "--json", "--status", "failed").json["runs"][0]["id"]
    done = shop("runs", "show", run_id)
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].split() == ["run", run_id]
    assert "status       failed after " in done.out
    assert 'input        {"item":"apple","amount":-1}' in done.out
    steps = [line.split()[:5] for line in lines if line.startswith(("✓", "✗"))]
    assert steps == [
        ["✓", "0/2", "reserve", "completed", "1"],
        ["✗", "0/3", "charge", "failed", "1"],
    ]
    assert 'raise FatalError("the card was declined' in done.out
    assert "hint: ask for another card" in done.err


def test_control_characters_of_stored_text_are_shown_not_obeyed(shop: Holdfast) -> None:
    run_id = shop("runs", "list", "--json", "--status", "failed").json["runs"][0]["id"]
    for arguments in (["list"], ["show", run_id], ["watch", run_id], ["list", "--json"]):
        done = shop("runs", *arguments)
        assert not {"\x1b", "\x9b"} & set(done.out + done.err), arguments
    assert "declined \\x1b[31m\\x9b" in shop("runs", "show", run_id).out
    assert "\x1b[31m\x9b" in shop("runs", "show", run_id, "--json").json["error"]


def test_a_unique_beginning_of_an_id_is_enough(shop: Holdfast) -> None:
    runs = [run["id"] for run in shop("runs", "list", "--json").json["runs"]]
    lengths = range(len(runs[0]))
    unique = next(n for n in lengths if sum(run.startswith(runs[0][:n]) for run in runs) == 1)
    assert shop.show(runs[0][:unique])["id"] == runs[0]
    assert shop.show(runs[1].removeprefix("run_").lower())["id"] == runs[1]
    assert shop.show("latest")["id"] == runs[0]
    several = shop("runs", "show", runs[0][: unique - 1], "--json")
    assert (several.code, several.error["kind"]) == (2, "UsageError")
    assert runs[0] in several.error["hint"]


FAMILY = """
from holdfast import generate_text, step, workflow
from holdfast.gateway import ScriptedModel

ScriptedModel("kind", ["fine"] * 3).register()

@step
async def ask() -> str:
    return (await generate_text("scripted/kind", prompt="How are you?")).text

@workflow
async def asking(n: int) -> str:
    return await ask()

@workflow
async def asking_all(count: int) -> list[str]:
    return [await asking(n) for n in range(count)]
"""


def test_a_run_is_told_from_its_children_and_says_what_they_spent(holdfast: Holdfast) -> None:
    (holdfast.folder / "family.py").write_text(FAMILY)
    started = holdfast("run", "family.py:asking_all", "--input", '{"count": 3}', "--json")
    assert started.code == 0, started.err
    shown = holdfast.show("latest")
    assert shown["workflow"] == "asking_all"
    children = shown["spent"]["children"]
    assert (shown["spent"]["calls"], children["runs"], children["calls"]) == (0, 3, 3)
    assert children["tokens"] > 0
    assert "child runs   3: model calls 3, " in holdfast("runs", "show", "latest").out
    _, *rows = holdfast("runs", "list").out.splitlines()
    assert sorted(row[32:].split("  ")[0] for row in rows) == ["asking_all", *["↳ asking"] * 3]
    top = holdfast("runs", "list", "--top-level", "--json").json["runs"]
    assert [run["id"] for run in top] == [shown["id"]]


@pytest.mark.parametrize(
    "verb", ["show", "watch", "cancel", "terminate", "pause", "resume", "retry", "fork"]
)
def test_what_is_not_there_is_not_found(shop: Holdfast, verb: str) -> None:
    done = shop("runs", verb, "run_0000", "--json")
    assert done.code == 3
    assert done.error == {
        "kind": "NotFound",
        "message": "there is no run run_0000",
        "hint": "holdfast runs list shows what there is",
    }


def test_what_the_state_does_not_allow_is_refused(shop: Holdfast) -> None:
    done_run = shop("runs", "list", "--json", "--status", "completed").json["runs"][0]["id"]
    for verb in ("cancel", "terminate", "pause", "resume", "retry"):
        done = shop("runs", verb, done_run, "--json")
        assert (done.code, done.error["kind"]) == (3, "Refused"), verb


def test_without_a_store_the_command_says_so(holdfast: Holdfast) -> None:
    done = holdfast("runs", "list", "--json")
    assert (done.code, done.error["kind"]) == (4, "StoreError")
    assert not holdfast.store.exists()


def test_watching_prints_a_line_per_finished_step(holdfast: Holdfast) -> None:
    run_id = holdfast.detached("approved", item="fig")
    watching = holdfast.spawn("runs", "watch", run_id)
    assert watching.stdout is not None
    assert watching.stdout.readline() == f"{run_id}  approved\n"
    holdfast.worker()
    assert watching.stdout.readline().startswith(" ✓ reserve ")
    assert watching.poll() is None
    payload = '{"item": "fig", "by": "eve"}'
    assert holdfast("events", "send", "approval", "--payload", payload).code == 0
    rest, err = watching.communicate(timeout=LIMIT)
    event, end = rest.splitlines()
    assert event.startswith(" ✓ event approval ")
    assert end.startswith("completed after ")
    assert (watching.returncode, err) == (0, "")


def test_watching_a_failed_run_gives_exit_code_1(shop: Holdfast) -> None:
    run_id = shop("runs", "list", "--json", "--status", "failed").json["runs"][0]["id"]
    done = shop("runs", "watch", run_id, "--json")
    *steps, last = [json.loads(line) for line in done.out.splitlines()]
    assert done.code == 1
    assert [line["step"]["name"] for line in steps] == ["reserve", "charge"]
    assert last["run"]["status"] == "failed"


def test_ctrl_c_ends_the_watching_and_not_the_run(holdfast: Holdfast) -> None:
    run_id = holdfast.detached("approved", item="fig")
    watching = holdfast.spawn("runs", "watch", run_id)
    assert watching.stdout is not None
    watching.stdout.readline()
    watching.send_signal(signal.SIGINT)
    _out, err = watching.communicate(timeout=LIMIT)
    assert watching.returncode == 130
    assert f"holdfast runs watch {run_id} comes back to it" in err
    assert holdfast.show(run_id)["status"] == "pending"


def test_a_run_whose_code_has_changed_is_stuck_and_goes_on_when_it_fits(
    holdfast: Holdfast,
) -> None:
    source = (
        "from holdfast import step, wait_for_event, workflow\n\n\n"
        "@step\nasync def {name}() -> int:\n    return 1\n\n\n"
        "@workflow\nasync def job() -> str:\n    await {name}()\n"
        "    return 'yes' if await wait_for_event('go', timeout='1h') else 'no'\n"
    )
    code = holdfast.folder / "job.py"
    code.write_text(source.format(name="one"))
    following = holdfast.spawn("run", "job.py:job")
    assert following.stderr is not None
    run_id = following.stderr.readline().split()[0]
    assert "one" in following.stderr.readline()
    following.kill()
    following.wait()

    code.write_text(source.format(name="other"))
    worker = holdfast.spawn("worker", "job.py")
    watched = holdfast("runs", "watch", run_id)
    assert watched.code == 1
    assert watched.out.splitlines()[-1].startswith("stuck: NonDeterminismError: at 0/1 the journal")
    assert "step one({}), but the code now calls step other({})" in watched.out
    assert f"holdfast runs resume {run_id}" in watched.err
    assert holdfast.show(run_id)["failure"]["type"] == "NonDeterminismError"
    worker.kill()
    worker.wait()

    code.write_text(source.format(name="one"))
    assert holdfast("runs", "resume", run_id).code == 0
    assert holdfast("events", "send", "go").code == 0
    holdfast.spawn("worker", "job.py")
    assert holdfast("runs", "watch", run_id).code == 0


def test_a_waiting_run_can_be_paused_resumed_and_cancelled(holdfast: Holdfast) -> None:
    run_id = holdfast.detached("approved", item="fig")
    holdfast.worker()
    until(lambda: holdfast.effects(), "the first step")
    assert holdfast("runs", "pause", run_id).code == 0
    until(lambda: holdfast.show(run_id)["status"] == "paused", "the pause")
    assert "holdfast runs resume" in holdfast("runs", "show", run_id).err
    assert holdfast("runs", "resume", run_id).code == 0
    assert holdfast("runs", "cancel", run_id).code == 0
    watched = holdfast("runs", "watch", run_id)
    assert watched.code == 1
    assert watched.out.splitlines()[-1].startswith("cancelled")


def test_a_failed_run_is_retried_from_where_it_failed(holdfast: Holdfast) -> None:
    run_id = holdfast.start("order", "--json", item="apple", amount=-1).json["id"]
    (holdfast.folder / "fixed").touch()
    assert holdfast("runs", "retry", run_id, "--json").json["status"] == "pending"
    holdfast.worker()
    assert holdfast("runs", "watch", run_id).code == 0
    assert holdfast.effects() == ["reserve apple", "charge -1", "charge -1"]


def test_a_fork_goes_on_from_a_step_with_another_input(holdfast: Holdfast) -> None:
    run_id = holdfast.start("order", "--json", item="apple", amount=-1).json["id"]
    steps = {step["name"]: step["key"] for step in holdfast.show(run_id)["steps"]}
    edited = holdfast("runs", "fork", run_id, "--from", steps["charge"], "--input", '{"amount": 7}')
    skipped = holdfast("runs", "fork", run_id, "--from", steps["charge"], "--result", "9", "--json")
    wrong = holdfast("runs", "fork", run_id, "--from", "9/9", "--json")
    assert (wrong.code, wrong.error["kind"]) == (3, "NotFound")
    assert skipped.json["forked_from"] == run_id
    holdfast.worker()
    results = {}
    for name, forked in (("edited", edited.out.strip()), ("skipped", skipped.json["id"])):
        assert holdfast("runs", "watch", forked).code == 0
        results[name] = holdfast.show(forked)["result"]["charged"]
    assert results == {"edited": 7, "skipped": 9}
    assert holdfast.effects() == ["reserve apple", "charge -1", "charge 7"]


# --- on a terminal ---


def on_terminal(
    holdfast: Holdfast,
    *arguments: str,
    when: tuple[str, Callable[[], object]] | None = None,
    **environment: str,
) -> str:
    """What the command prints on a terminal; `when` it prints some text, something is done."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=theirs,
        stderr=theirs,
        stdin=subprocess.DEVNULL,
        env={**holdfast.environment, **environment},
    )
    os.close(theirs)
    printed = b""
    while True:
        select.select([ours], [], [], 30)
        try:
            piece = os.read(ours, 65536)
        except OSError:  # Linux says EIO when the other side is closed
            break
        if not piece:
            break
        printed += piece
        if when is not None and when[0] in printed.decode(errors="ignore"):
            when[1]()
            when = None
    os.close(ours)
    process.wait(timeout=LIMIT)
    return printed.decode().replace("\r\n", "\n")


def test_a_terminal_gets_colours_unless_no_color_is_set(shop: Holdfast) -> None:
    assert on_terminal(shop, "runs", "list").startswith("\x1b[2mRUN")
    assert "\x1b" not in on_terminal(shop, "runs", "list", NO_COLOR="1")


def test_a_terminal_shows_open_steps_and_takes_them_back(holdfast: Holdfast) -> None:
    run_id = holdfast.detached("approved", item="fig")
    holdfast.worker()
    payload = '{"item": "fig", "by": "eve"}'
    printed = on_terminal(
        holdfast,
        *("runs", "watch", run_id),
        when=(
            " … event approval",
            lambda: holdfast("events", "send", "approval", "--payload", payload),
        ),
        NO_COLOR="1",
    )
    assert "\x1b[1F\x1b[J ✓ event approval" in printed
    assert printed.count(" ✓ ") == 2
    assert printed.splitlines()[-1].startswith("completed after")
