"""`holdfast events`."""

from __future__ import annotations

from .conftest import Holdfast


def test_an_event_with_the_same_id_is_sent_once(shop: Holdfast) -> None:
    first = shop("events", "send", "paid", "--payload", '{"n": 1}', "--id", "e1", "--json")
    again = shop("events", "send", "paid", "--payload", '{"n": 1}', "--id", "e1", "--json")
    assert first.json == {"event": {"name": "paid", "id": "e1", "run": None}, "repeated": False}
    assert again.json["repeated"] is True
    assert "was sent before" in shop("events", "send", "paid", "--id", "e1").err


def test_an_event_for_a_run_that_is_not_there_is_refused(shop: Holdfast) -> None:
    done = shop("events", "send", "paid", "--run", "run_9", "--json")
    assert (done.code, done.error["kind"]) == (3, "NotFound")


def test_a_payload_that_is_no_json_is_refused(shop: Holdfast) -> None:
    done = shop("events", "send", "paid", "--payload", "yes", "--json")
    assert (done.code, done.error["kind"]) == (2, "UsageError")
    assert "--payload is no JSON" in done.error["message"]


def test_reserved_names_are_refused(shop: Holdfast) -> None:
    done = shop("events", "send", "@webhook/1", "--json")
    assert (done.code, done.error["kind"]) == (2, "UsageError")


def test_an_update_prints_what_the_run_answers(holdfast: Holdfast) -> None:
    worker = holdfast.worker()
    run = holdfast.detached("till")
    assert holdfast("runs", "update", run, "pay", "--payload", "5", "--id", "a").json == 5
    assert holdfast("runs", "update", run, "pay", "--payload", "5", "--id", "a").json == 5
    refused = holdfast("runs", "update", run, "pay", "--payload", "-1", "--json")
    assert (refused.code, refused.json["status"]) == (1, "rejected")
    assert "we pay nobody" in holdfast("runs", "update", run, "pay", "--payload", "-1").err
    assert "total: 5" in holdfast("runs", "show", run).out
    assert holdfast("runs", "show", run, "--json").json["published"]["total"]["value"] == 5
    worker.terminate()
    worker.wait()
    late = holdfast("runs", "update", run, "pay", "--payload", "7", "--timeout", "0.1", "--json")
    assert (late.code, late.error["kind"]) == (1, "UpdateTimeout")


def test_many_runs_are_steered_by_a_filter(holdfast: Holdfast) -> None:
    runs = [holdfast.detached("till") for _ in range(2)]
    assert holdfast("runs", "bulk", "cancel", "--json").error["kind"] == "UsageError"
    counted = holdfast("runs", "bulk", "cancel", "--workflow", "till", "--dry-run", "--json").json
    assert (counted["matched"], counted["done"]) == (2, 0)
    assert "2 of 2 runs" in holdfast("runs", "bulk", "cancel", "--workflow", "till").err
    assert {holdfast.show(run)["status"] for run in runs} == {"cancelled"}


def test_runs_that_have_ended_are_deleted(holdfast: Holdfast) -> None:
    runs = [holdfast.detached("till") for _ in range(3)]
    refused = holdfast("runs", "delete", runs[0], "--json")
    assert (refused.code, refused.error["kind"]) == (3, "Refused")
    holdfast("runs", "bulk", "cancel", "--workflow", "till")
    assert holdfast("runs", "delete", runs[0], "--json").json == {"deleted": [runs[0]]}
    assert holdfast("runs", "show", runs[0]).code == 3
    chosen = ("runs", "bulk", "delete", "--workflow", "till", "--older-than")
    assert "0 of 0 runs" in holdfast(*chosen, "1h").err
    assert "would concern 2 runs" in holdfast(*chosen, "0s", "--dry-run").err
    assert "2 of 2 runs" in holdfast(*chosen, "0s").err
    assert holdfast("runs", "list", "--json").json["runs"] == []
