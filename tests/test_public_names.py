"""What `import holdfast` gives, and what it does not do."""

from __future__ import annotations

import subprocess
import sys

import holdfast

NAMES = """
Agent Approval ApprovalRefused Backoff BudgetExceeded BulkResult CodecError Concurrency
ContinueAsNew CrashLoop Decision Engine Escalate Failure FatalError HoldfastError KeyUsed
NonDeterminismError NotFound NotInWorkflow ReceivedEvent Refused RetryableError RunCancelled
RunContext RunFailed RunHandle RunStuck RunTimeout Sandbox Settings StepContext StepFailed
StepTimeout
StoreError TimedOut Unfinished UnknownWorkflow Update UpdateMismatch UpdateRejected UpdateTimeout
UpdateUnanswered UsageError Webhook approval approval_token continue_as_new create_webhook decide
generate_object generate_text get_approval get_run list_approvals list_runs now open_engine patched
publish random receive_webhook run_context send_event set_attributes sleep start steer_runs step
step_context stream_text tool uuid4 wait_for_event wait_for_update workflow write_stream
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
