"""Errors come back as what they were."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import types
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from holdfast.errors import BudgetExceeded, RetryableError, StepFailed
from holdfast.records import ErrorInfo
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


def caught(action: Callable[[], object]) -> BaseException:
    try:
        action()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def again(error: BaseException) -> Exception:
    text = json.dumps(failures.describe(error).as_json())
    return failures.rebuild(ErrorInfo.from_json(json.loads(text)))


def test_an_error_keeps_the_files_it_is_about(tmp_path: Path) -> None:
    missing, other = str(tmp_path / "missing"), str(tmp_path / "other")
    for action in (lambda: os.stat(missing), lambda: os.rename(missing, other)):
        error = caught(action)
        found = again(error)
        assert type(found) is FileNotFoundError
        assert isinstance(error, FileNotFoundError)
        for name in ("errno", "strerror", "filename", "filename2", "args"):
            assert getattr(found, name) == getattr(error, name)
        assert str(found) == str(error)


def test_an_error_keeps_its_fields_outside_of_its_dict() -> None:
    decoding = again(caught(lambda: b"\xff".decode()))
    assert isinstance(decoding, UnicodeDecodeError)
    assert (decoding.object, decoding.start, decoding.encoding) == (b"\xff", 0, "utf-8")
    importing = again(caught(lambda: __import__("no_such_module")))
    assert isinstance(importing, ModuleNotFoundError) and importing.name == "no_such_module"
    compiling = again(caught(lambda: compile("1 +", "here.py", "exec")))
    assert isinstance(compiling, SyntaxError) and compiling.filename == "here.py"


def test_an_error_keeps_what_it_came_from_and_its_notes() -> None:
    def fail() -> None:
        try:
            os.stat("/no/such/file")
        except OSError as error:
            error.add_note("while reading the settings")
            raise ValueError("no settings") from error

    def fail_while_handling(cause: BaseException | None) -> None:
        try:
            raise KeyError("first")
        except KeyError:
            raise ValueError("second") from cause

    found = again(caught(fail))
    assert isinstance(found.__cause__, FileNotFoundError)
    assert found.__cause__.filename == "/no/such/file"
    assert found.__cause__.__notes__ == ["while reading the settings"]
    assert found.__context__ is found.__cause__ and found.__suppress_context__

    found = again(caught(lambda: fail_while_handling(None)))
    assert found.__cause__ is None and found.__suppress_context__
    assert isinstance(found.__context__, KeyError) and found.__context__.args == ("first",)

    found = again(caught(lambda: fail_while_handling(OSError("other"))))
    assert isinstance(found.__cause__, OSError) and isinstance(found.__context__, KeyError)


def test_a_group_comes_back_with_its_members() -> None:
    inner = ExceptionGroup("inner", [KeyError("k"), OSError(2, "gone", "file")])
    found = again(ExceptionGroup("outer", [ValueError(1), inner]))
    assert isinstance(found, ExceptionGroup) and found.message == "outer"
    one, two = found.exceptions
    assert isinstance(one, ValueError) and isinstance(two, ExceptionGroup)
    assert [type(each) for each in two.exceptions] == [KeyError, FileNotFoundError]
    assert found.subgroup(FileNotFoundError) is not None


def test_an_error_recorded_again_does_not_repeat_its_traceback_as_a_note() -> None:
    error = again(caught(lambda: os.stat("/no/such/file")))
    assert error.__notes__[0].startswith("as recorded in the journal:")
    assert failures.describe(error).notes == ()


def test_an_error_of_an_older_journal_comes_back() -> None:
    recorded = {
        "type": "BudgetExceeded",
        "message": "too much",
        "traceback": "Traceback …",
        "rebuild": {
            "module": "holdfast.errors",
            "name": "BudgetExceeded",
            "bases": [["holdfast.errors", "Refused"], ["builtins", "Exception"]],
            "args": ["too much"],
            "state": {"message": "too much", "hint": "more", "limit": {"$decimal": "9.5"}},
        },
    }
    info = ErrorInfo.from_json(recorded)
    found = failures.rebuild(info)
    assert isinstance(found, BudgetExceeded) and found.limit == Decimal("9.5")
    assert info.hint == "more"
    recorded["rebuild"] = {
        "module": "builtins",
        "name": "FileNotFoundError",
        "bases": [["builtins", "OSError"]],
        "args": [2, "No such file"],
        "state": {},
    }
    found = failures.rebuild(ErrorInfo.from_json(recorded))
    assert isinstance(found, FileNotFoundError) and found.errno == 2


@pytest.mark.parametrize("damage", [{"args": 5}, {"state": []}, {"module": None}])
def test_an_unreadable_recipe_is_a_failed_step(damage: dict[str, object]) -> None:
    info = failures.describe(ValueError("x"))
    assert info.rebuild is not None
    broken = ErrorInfo(info.type, info.message, rebuild={**info.rebuild, **damage})
    found = failures.rebuild(broken)
    assert isinstance(found, StepFailed) and found.type == "ValueError"
