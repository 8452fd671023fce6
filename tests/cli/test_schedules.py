"""`holdfast schedules`."""

from __future__ import annotations

from .conftest import Holdfast


def test_a_schedule_is_made_shown_paused_and_deleted(shop: Holdfast) -> None:
    made = shop(
        *("schedules", "create", "order", "0 7 * * MON-FRI", "--tz", "Europe/Berlin"),
        *("--name", "morning", "--input", '{"n": 1}', "--jitter", "1m", "--json"),
    )
    assert made.json["timing"] == "0 7 * * MON-FRI Europe/Berlin", made.err
    assert (made.json["input"], made.json["jitter"]) == ({"n": 1}, 60.0)
    listed = shop("schedules", "list")
    assert "morning" in listed.out
    assert " 07:00:00 CE" in listed.out
    shown = shop("schedules", "show", "morning", "--next", "3").out
    assert shown.count("\nnext ") == 3
    assert "paused" in shop("schedules", "pause", "morning").err
    assert shop("schedules", "show", "morning", "--json").json["paused"] is True
    assert "paused" in shop("schedules", "list").out
    assert shop("schedules", "resume", "morning", "--json").json == {"schedule": "morning"}
    assert shop("schedules", "delete", "morning").code == 0
    gone = shop("schedules", "show", "morning", "--json")
    assert (gone.code, gone.error["kind"]) == (3, "NotFound")


def test_what_is_no_time_is_refused(shop: Holdfast) -> None:
    for words in (["61 * * * *"], ["0 7 * * *", "--tz", "Mars/Olympus"], ["every", "0.1s"]):
        done = shop("schedules", "create", "order", " ".join(words[:1]), *words[1:], "--json")
        assert (done.code, done.error["kind"]) == (2, "UsageError")


def test_a_backfill_names_what_it_started(shop: Holdfast) -> None:
    shop("schedules", "create", "order", "every 1h", "--name", "hourly")
    words = ("--from", "2026-01-01T00:00Z", "--to", "2026-01-01T05:00Z")
    first = shop("schedules", "backfill", "hourly", *words)
    assert "0 started, 5 queued, 0 were there already" in first.err
    assert shop("schedules", "backfill", "hourly", "--from", "now", "--to", "now").code == 2
