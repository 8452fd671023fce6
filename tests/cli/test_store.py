"""`holdfast store` and `holdfast doctor`."""

from __future__ import annotations

import sqlite3

from .conftest import Holdfast


def test_a_backup_is_a_store_of_its_own(shop: Holdfast) -> None:
    copy = shop.folder / "copy.db"
    assert shop("store", "backup", str(copy), "--json").json["bytes"] == copy.stat().st_size
    listed = shop("runs", "list", "--json")
    assert shop("runs", "list", "--json", "--store", str(copy)).json == listed.json
    again = shop("store", "backup", str(copy), "--json")
    assert (again.code, again.error["kind"]) == (3, "Refused")
    nowhere = shop("store", "backup", str(shop.folder / "no" / "copy.db"), "--json")
    assert (nowhere.code, nowhere.error["kind"]) == (4, "StoreError")


def test_info_counts_what_is_there(shop: Holdfast) -> None:
    facts = shop("store", "info", "--json").json
    assert facts["runs"] == {"completed": 2, "failed": 1}
    assert facts["schema_version"] == facts["known_schema"]
    assert "runs     3 (2 completed, 1 failed)" in shop("store", "info").out


def test_doctor_is_content_with_a_good_store_and_with_none(
    shop: Holdfast, holdfast: Holdfast
) -> None:
    good = shop("doctor")
    assert good.code == 0
    assert "✓ runs      2 completed, 1 failed" in good.out
    assert "(not made yet)" in holdfast("doctor").out
    assert not holdfast.store.exists()


def test_doctor_counts_the_workers_that_are_alive(holdfast: Holdfast) -> None:
    worker = holdfast.worker()
    assert len(holdfast("doctor", "--json").json["store"]["workers"]) == 1
    worker.kill()
    worker.wait()
    assert holdfast("doctor", "--json").json["store"]["workers"] == []


def test_doctor_names_what_is_wrong(holdfast: Holdfast) -> None:
    holdfast.store.write_text("this is no database, but it is long enough to be read as one" * 9)
    done = holdfast("doctor", "--json")
    assert done.code == 4
    wrong = [check for check in done.json["checks"] if not check["ok"]]
    assert [check["name"] for check in wrong] == ["store"]
    assert "is no Holdfast store" in wrong[0]["found"]
    assert holdfast("store", "info", "--json").code == 4


def test_a_store_of_a_newer_program_is_refused_by_name(holdfast: Holdfast) -> None:
    holdfast.detached("order", item="apple")
    with sqlite3.connect(holdfast.store) as database:
        database.execute("PRAGMA user_version = 999")
    database.close()
    listed = holdfast("runs", "list", "--json")
    assert (listed.code, listed.error["kind"]) == (4, "SchemaTooNew")
    doctor = holdfast("doctor")
    assert doctor.code == 4
    assert "✗ schema    999" in doctor.out


def test_a_verified_backup_was_read_back(shop: Holdfast) -> None:
    done = shop("store", "backup", str(shop.folder / "read.db"), "--verify", "--json")
    listed = shop("runs", "list", "--json").json["runs"]
    assert done.json["runs"] == len(listed)
    assert done.json["events"] >= len(listed)
    assert [each.name for each in shop.folder.glob("read.db*")] == ["read.db"]


def test_runs_whose_time_is_over_are_pruned_but_not_those_that_are_held(holdfast: Holdfast) -> None:
    assert holdfast("store", "prune", "--json").error["kind"] == "UsageError"
    held, gone = (holdfast.detached("till") for _ in range(2))
    for run in (held, gone):
        assert holdfast("runs", "cancel", run).code == 0
    assert "held" in holdfast("runs", "hold", held, "--reason", "case 7").err
    refused = holdfast("runs", "delete", held, "--json")
    assert (refused.code, "case 7" in refused.error["message"]) == (3, True)
    holdfast.environment["HOLDFAST_RETENTION_MOST"] = "0"
    counted = holdfast("store", "prune", "--dry-run", "--json")
    assert counted.json == {"deleted": {"till": 1}, "refused": 0}, counted.err
    assert "1 runs deleted" in holdfast("store", "prune").err
    assert holdfast("runs", "release", held).code == 0
    assert holdfast("store", "prune", "--json").json["deleted"] == {"till": 1}
    assert holdfast("store", "vacuum", "--json").json["bytes"] >= 0
