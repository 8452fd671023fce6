"""What `import holdfast` gives, and what it does not do."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import holdfast

NAMES = """
Agent Approval ApprovalRefused Backoff Batch BudgetExceeded BulkResult CodecError Concurrency
ContinueAsNew CrashLoop Debounce Decision Engine Escalate Failure FatalError Firing HoldfastError
KeyUsed NonDeterminismError NotFound NotInWorkflow RateLimit ReceivedEvent Refused RetryableError
RunCancelled RunContext RunFailed RunHandle RunStuck RunTimeout Sandbox Schedule ScheduleHandle
ScheduleSpec Settings Singleton StepContext StepFailed StepTimeout StoreError Throttle TimedOut
TooManyRequests Unfinished UnknownWorkflow Update UpdateMismatch UpdateRejected UpdateTimeout
UpdateUnanswered UsageError Webhook approval approval_token continue_as_new create_schedule
create_webhook cron decide every generate_object generate_text get_approval get_run get_schedule
list_approvals list_runs list_schedules now open_engine patched publish random receive_webhook
run_context send_event set_attributes sleep start steer_runs step step_context stream_text tool
uuid4 wait_for_event wait_for_update workflow write_stream
"""


def test_the_public_names_are_these() -> None:
    """A name that is added or taken away here is added to or taken away from users."""
    assert holdfast.__all__ == NAMES.split()


def test_every_public_name_exists_and_says_what_it_is() -> None:
    for name in holdfast.__all__:
        assert getattr(holdfast, name).__doc__, name


def test_importing_is_silent_and_loads_nothing_heavy() -> None:
    heavy = ("pydantic", "aiohttp", "uvicorn", "starlette", "jinja2")
    script = f"import sys, holdfast; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


STUBS = sorted(Path(holdfast.__file__).parent.rglob("__init__.pyi"))


@pytest.mark.parametrize("stub", STUBS, ids=lambda stub: stub.parent.name)
def test_every_name_of_a_stub_is_loaded_when_first_used(stub: Path) -> None:
    parts = stub.parent.relative_to(Path(holdfast.__file__).parents[1]).parts
    package = importlib.import_module(".".join(parts))
    exported = [
        alias.name
        for node in ast.parse(stub.read_text()).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    assert exported and package.__all__ == dir(package) == sorted(exported)
    for name in exported:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = package.nonsense


def test_a_star_import_gives_the_public_names() -> None:
    given: dict[str, object] = {}
    exec("from holdfast import *", given)
    assert set(holdfast.__all__) <= given.keys()


def test_names_are_found_in_a_zip_file_too(tmp_path: Path) -> None:
    source, archive = Path(holdfast.__file__).parent, tmp_path / "holdfast.zip"
    with zipfile.ZipFile(archive, "w") as into:
        for name in ("__init__.py", "__init__.pyi", "lazy.py", "errors.py"):
            into.write(source / name, f"holdfast/{name}")
    script = "import holdfast; print(holdfast.__file__, holdfast.NotFound.__name__)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", script],
        capture_output=True, text=True, check=True, env={"PYTHONPATH": str(archive)},
    )  # fmt: skip
    assert done.stdout == f"{archive}/holdfast/__init__.py NotFound\n"
