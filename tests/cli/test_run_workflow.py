"""`holdfast run`."""

from __future__ import annotations

import json
import signal

import pytest

from waiting import LIMIT, until

from .conftest import SHOP, Holdfast


def test_a_run_is_followed_to_its_end(holdfast: Holdfast) -> None:
    done = holdfast.start("order", item="apple")
    assert done.code == 0
    assert done.json == {"reserved": "reserved apple", "charged": 5}
    run_id, first, second, end = done.err.splitlines()
    assert run_id.startswith("run_") and run_id.endswith("shop.db")
    assert first.split()[:2] == ["✓", "reserve"]
    assert second.split()[:2] == ["✓", "charge"]
    assert end.startswith("completed after ")


def test_a_failed_run_gives_exit_code_1_and_says_how_to_go_on(holdfast: Holdfast) -> None:
    done = holdfast.start("order", item="apple", amount=-1)
    assert (done.code, done.out) == (1, "")
    assert "✗ charge" in done.err
    assert "hint: ask for another card; holdfast runs retry run_" in done.err


def test_with_json_there_is_one_object_with_everything(holdfast: Holdfast) -> None:
    done = holdfast.start("order", "--json", item="apple", amount=-1)
    assert (done.code, done.err) == (1, "")
    run = done.json
    assert (run["status"], run["failure"]["type"]) == ("failed", "FatalError")
    assert [(step["name"], step["status"]) for step in run["steps"]] == [
        ("reserve", "completed"),
        ("charge", "failed"),
    ]


def test_the_input_can_come_from_a_file_or_stdin(holdfast: Holdfast) -> None:
    (holdfast.folder / "input.json").write_text('{"item": "pear"}')
    from_file = holdfast("run", f"{SHOP}:order", "--input", "@input.json")
    from_stdin = holdfast("run", f"{SHOP}:order", "--input", "-", stdin='{"item": "fig"}')
    assert from_file.json["reserved"] == "reserved pear"
    assert from_stdin.json["reserved"] == "reserved fig"


def test_the_same_key_gives_the_same_run(holdfast: Holdfast) -> None:
    first = holdfast.start("order", "--key", "k", "--json", item="apple").json
    again = holdfast.start("order", "--key", "k", "--json", item="apple").json
    assert again["id"] == first["id"]
    assert holdfast.effects() == ["reserve apple", "charge 5"]


def test_a_detached_run_waits_for_a_worker(holdfast: Holdfast) -> None:
    run_id = holdfast.detached("order", item="apple")
    assert holdfast.show(run_id)["status"] == "pending"
    assert holdfast.effects() == []
    holdfast.worker()
    assert holdfast("runs", "watch", run_id).code == 0
    assert holdfast.effects() == ["reserve apple", "charge 5"]


def test_ctrl_c_detaches_and_a_worker_goes_on(holdfast: Holdfast) -> None:
    following = holdfast.spawn("run", f"{SHOP}:approved", "--input", '{"item": "fig"}')
    assert following.stderr is not None
    run_id = following.stderr.readline().split()[0]
    until(lambda: "reserve fig" in holdfast.effects(), "the first step")
    following.send_signal(signal.SIGINT)
    out, err = following.communicate(timeout=LIMIT)
    assert (following.returncode, out) == (130, "")
    assert f"detached: {run_id}" in err
    assert f"holdfast runs watch {run_id}" in err
    assert holdfast.show(run_id)["status"] == "waiting"

    holdfast("events", "send", "approval", "--payload", '{"item": "fig", "by": "eve"}')
    holdfast.worker()
    watched = holdfast("runs", "watch", run_id, "--json")
    assert watched.code == 0
    assert json.loads(watched.out.splitlines()[-1])["run"]["result"] == "fig approved by eve"
    assert holdfast.effects() == ["reserve fig"]


@pytest.mark.parametrize(
    ("arguments", "code", "kind", "message"),
    [
        ([SHOP], 2, "UsageError", "names no workflow"),
        (["gone.py:order"], 3, "NotFound", "there is no file gone.py"),
        (["no.such.module:order"], 2, "UsageError", "ModuleNotFoundError"),
        ([f"{SHOP}:nothing"], 3, "UnknownWorkflow", "there are approved, lengthy, order, till"),
        ([f"{SHOP}:order", "--input", '{"item": '], 2, "UsageError", "--input is no JSON"),
        ([f"{SHOP}:order", "--input", "[1]"], 2, "UsageError", "--input is no JSON object"),
        ([f"{SHOP}:order", "--input", '{"item": NaN}'], 2, "UsageError", "NaN is not part of"),
        ([f"{SHOP}:order", "--input", "@gone.json"], 2, "UsageError", "--input can't be read"),
        ([f"{SHOP}:order", "--input", "{}"], 2, "UsageError", "$.item: Field required"),
        ([f"{SHOP}:order", "--input", '{"item": 1}'], 2, "UsageError", "$.item: "),
        ([f"{SHOP}:order", "--budget", "1"], 2, "UsageError", "--budget is for tasks"),
        (["a task", "--input", "{}"], 2, "UsageError", "--input is for workflows"),
        (["a task", "--budget", "much"], 2, "UsageError", "'much' is no amount"),
        (["a task", "--language", "cobol"], 2, "UsageError", "no language 'cobol'"),
        ([" "], 2, "UsageError", "the task is empty"),
        ([f"{SHOP}:order", "--store", "/proc/no/x.db"], 4, "StoreError", "/proc/no/x.db"),
    ],
)
def test_what_can_not_be_started_is_refused(
    holdfast: Holdfast, arguments: list[str], code: int, kind: str, message: str
) -> None:
    done = holdfast("run", *arguments, "--json")
    assert done.code == code
    assert done.error["kind"] == kind
    assert message in f"{done.error['message']} {done.error.get('hint')}"
    assert not holdfast.effects()
