"""Commands on the pages: red is what ended otherwise than it was meant to, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.records.sandboxes import CommandRecord
from holdfast.store.sqlite.database import open_to_read
from holdfast.store.sqlite.sandbox_views import sandbox_list
from seeding import Seed
from server.conftest import running

BROWSER = {"accept": "text/html"}
TESTS = ("python", "/tmp/runner/run_tests.py")
HOLLOW = ("python", "/tmp/runner/try_hollow.py")


@pytest.mark.parametrize(
    ("argv", "code", "wrong"),
    [(TESTS, 0, False), (TESTS, 1, True), (HOLLOW, 1, False), (HOLLOW, 0, True)],
)
async def test_a_check_that_is_meant_to_fail_is_wrong_only_if_it_passes(
    tmp_path: Path, argv: tuple[str, ...], code: int, wrong: bool
) -> None:
    seed = Seed(tmp_path / "a.db")
    made = seed.sandbox(seed.now - 60, 30)
    seed.command(made, seed.now - 50, 1.0, argv, code=code)
    seed.close()
    connection = open_to_read(tmp_path / "a.db")
    (found,) = sandbox_list(connection, None, 10, None).rows
    connection.close()
    seed.let_go()
    assert found.failed == int(wrong)
    async with running(tmp_path / "a.db") as server:
        page = await server.get(f"/sandboxes/{made.id}", headers=BROWSER)
        assert page.status == 200
        assert ("state s-failed" in page.text) == wrong
        assert ("as it should" in page.text) == (argv == HOLLOW and not wrong)


def test_what_has_not_ended_is_not_wrong() -> None:
    from datetime import UTC, datetime

    for argv in (TESTS, HOLLOW):
        assert not CommandRecord("cmd_1", "sbx_1", argv, "/work", datetime.now(UTC)).went_wrong
