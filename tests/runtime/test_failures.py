"""Errors come back as what they were."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import types
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from holdfast.errors import BudgetExceeded, RetryableError, StepFailed
from holdfast.runtime import failures

DEFINITION = "class Declined(Exception):\n    pass\n"


def module(name: str) -> types.ModuleType:
    made = types.ModuleType(name)
    exec(DEFINITION, made.__dict__)
    made.Declined.__module__ = name
    return made


def test_amounts_and_durations_come_back_as_such() -> None:
    spent = BudgetExceeded("too much", scope="run:x", limit=Decimal("9.5"), spent=Decimal("0.10"))
    again = failures.rebuild(failures.describe(spent))
    assert isinstance(again, BudgetExceeded)
    assert (again.limit, again.spent, again.scope) == (Decimal("9.5"), Decimal("0.10"), "run:x")
    busy = failures.rebuild(
        failures.describe(RetryableError("busy", retry_after=timedelta(days=1)))
    )
    assert isinstance(busy, RetryableError) and busy.retry_after == timedelta(days=1)


@pytest.mark.parametrize(
    ("then", "now"), [("shop.till", "till"), ("till", "shop.till"), ("till", "_holdfast.till")]
)
def test_an_error_is_rebuilt_where_its_file_has_another_module_name(
    then: str, now: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, then, module(then))
    recorded = failures.describe(sys.modules[then].Declined("no money"))
    monkeypatch.delitem(sys.modules, then)
    monkeypatch.setitem(sys.modules, now, module(now))
    rebuilt = failures.rebuild(recorded)
    assert type(rebuilt) is sys.modules[now].Declined
    assert rebuilt.args == ("no money",)


def test_an_error_whose_class_is_not_loaded_is_caught_by_the_same_clauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library = types.ModuleType("library")
    exec(
        "class Failed(Exception): pass\nclass Gone(Failed, ConnectionResetError): pass\n",
        library.__dict__,
    )
    for kind in (library.Failed, library.Gone):
        kind.__module__ = "library"
    monkeypatch.setitem(sys.modules, "library", library)
    recorded = failures.describe(library.Gone(104, "reset by peer"))
    monkeypatch.delitem(sys.modules, "library")
    rebuilt = failures.rebuild(recorded)
    assert isinstance(rebuilt, ConnectionResetError)
    assert not isinstance(rebuilt, StepFailed)
    assert (type(rebuilt).__name__, rebuilt.args) == ("Gone", (104, "reset by peer"))
    assert failures.describe(rebuilt).rebuild is not None


def test_an_error_that_can_not_be_made_again_is_a_failed_step() -> None:
    recorded = failures.describe(ValueError(object()))
    rebuilt = failures.rebuild(recorded)
    assert isinstance(rebuilt, StepFailed)
    assert rebuilt.type == "ValueError"


PROGRAM = """
import asyncio, os, signal, sys
from holdfast import get_run, start, step, wait_for_event, workflow


class Declined(Exception):
    pass


@step(retries=0)
async def charge() -> None:
    raise Declined("no money")


@workflow
async def pay() -> str:
    try:
        await charge()
    except Declined as error:
        await wait_for_event("go", timeout="500ms")
        return f"declined: {error}"


async def main() -> None:
    run = await start(pay.options(key="one"))
    if "first" in sys.argv:
        while len(await run.steps()) < 2:
            await asyncio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    print(await run.result())


if __name__ == "__main__":
    asyncio.run(main())
"""


def test_an_error_recorded_by_a_program_is_caught_when_a_worker_replays_it(tmp_path: Path) -> None:
    (tmp_path / "till.py").write_text(PROGRAM)
    environment = {**os.environ, "HOLDFAST_STORE": str(tmp_path / "till.db")}

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    assert run("till.py", "first").returncode == -signal.SIGKILL
    done = run("-c", "import asyncio, till; asyncio.run(till.main())")
    assert (done.stdout, done.stderr) == ("declined: no money\n", "")
