"""Holdfast: durable AI code agents on your own machines.

The public names. Each is loaded when it is first used, so that importing costs next to nothing
and a program that needs one layer does not wait for the others.
"""

from typing import TYPE_CHECKING

from holdfast.lazy import lazily

if TYPE_CHECKING:
    from holdfast.errors import (
        ApprovalRefused,
        BudgetExceeded,
        CodecError,
        CrashLoop,
        FatalError,
        HoldfastError,
        KeyUsed,
        NonDeterminismError,
        NotFound,
        NotInWorkflow,
        Refused,
        RetryableError,
        RunCancelled,
        RunFailed,
        RunStuck,
        RunTimeout,
        StepFailed,
        StepTimeout,
        StoreError,
        Unfinished,
        UnknownWorkflow,
        UpdateMismatch,
        UpdateRejected,
        UpdateTimeout,
        UpdateUnanswered,
        UsageError,
    )
    from holdfast.gateway import (
        generate_object,
        generate_text,
        stream_text,
    )
    from holdfast.loop import (
        Agent,
        Decision,
        Escalate,
        approval,
        approval_token,
        decide,
        get_approval,
        list_approvals,
        tool,
    )
    from holdfast.records.approvals import Approval
    from holdfast.runtime.app import open_engine
    from holdfast.runtime.bulk import BulkResult
    from holdfast.runtime.client import (
        RunHandle,
        get_run,
        list_runs,
        receive_webhook,
        send_event,
        start,
        steer_runs,
    )
    from holdfast.runtime.context import (
        StepContext,
        Webhook,
        create_webhook,
        now,
        patched,
        publish,
        random,
        run_context,
        set_attributes,
        sleep,
        step_context,
        uuid4,
        wait_for_event,
        write_stream,
    )
    from holdfast.runtime.continuation import (
        ContinueAsNew,
        continue_as_new,
    )
    from holdfast.runtime.definitions import (
        Concurrency,
        step,
        workflow,
    )
    from holdfast.runtime.engine import (
        Engine,
        Failure,
    )
    from holdfast.runtime.outcomes import (
        ReceivedEvent,
        TimedOut,
    )
    from holdfast.runtime.retry import Backoff
    from holdfast.runtime.run_context import (
        RunContext,
    )
    from holdfast.runtime.settings import Settings
    from holdfast.runtime.updates import (
        Update,
        wait_for_update,
    )
    from holdfast.sandbox import Sandbox

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "Approval",
    "ApprovalRefused",
    "Backoff",
    "BudgetExceeded",
    "BulkResult",
    "CodecError",
    "Concurrency",
    "ContinueAsNew",
    "CrashLoop",
    "Decision",
    "Engine",
    "Escalate",
    "Failure",
    "FatalError",
    "HoldfastError",
    "KeyUsed",
    "NonDeterminismError",
    "NotFound",
    "NotInWorkflow",
    "ReceivedEvent",
    "Refused",
    "RetryableError",
    "RunCancelled",
    "RunContext",
    "RunFailed",
    "RunHandle",
    "RunStuck",
    "RunTimeout",
    "Sandbox",
    "Settings",
    "StepContext",
    "StepFailed",
    "StepTimeout",
    "StoreError",
    "TimedOut",
    "Unfinished",
    "UnknownWorkflow",
    "Update",
    "UpdateMismatch",
    "UpdateRejected",
    "UpdateTimeout",
    "UpdateUnanswered",
    "UsageError",
    "Webhook",
    "approval",
    "approval_token",
    "continue_as_new",
    "create_webhook",
    "decide",
    "generate_object",
    "generate_text",
    "get_approval",
    "get_run",
    "list_approvals",
    "list_runs",
    "now",
    "open_engine",
    "patched",
    "publish",
    "random",
    "receive_webhook",
    "run_context",
    "send_event",
    "set_attributes",
    "sleep",
    "start",
    "steer_runs",
    "step",
    "step_context",
    "stream_text",
    "tool",
    "uuid4",
    "wait_for_event",
    "wait_for_update",
    "workflow",
    "write_stream",
]

_HOMES = {
    "runtime.bulk": ("BulkResult",),
    "runtime.continuation": (
        "ContinueAsNew",
        "continue_as_new",
    ),
    "runtime.updates": (
        "Update",
        "wait_for_update",
    ),
    "runtime.run_context": ("RunContext",),
    "errors": (
        "ApprovalRefused",
        "BudgetExceeded",
        "CodecError",
        "CrashLoop",
        "FatalError",
        "HoldfastError",
        "KeyUsed",
        "NonDeterminismError",
        "NotFound",
        "NotInWorkflow",
        "Refused",
        "RetryableError",
        "RunCancelled",
        "RunFailed",
        "RunStuck",
        "RunTimeout",
        "StepFailed",
        "StepTimeout",
        "StoreError",
        "Unfinished",
        "UnknownWorkflow",
        "UpdateMismatch",
        "UpdateRejected",
        "UpdateTimeout",
        "UpdateUnanswered",
        "UsageError",
    ),
    "gateway": (
        "generate_object",
        "generate_text",
        "stream_text",
    ),
    "loop": (
        "Agent",
        "Decision",
        "Escalate",
        "approval",
        "approval_token",
        "decide",
        "get_approval",
        "list_approvals",
        "tool",
    ),
    "records.approvals": ("Approval",),
    "runtime.app": ("open_engine",),
    "runtime.client": (
        "RunHandle",
        "get_run",
        "list_runs",
        "receive_webhook",
        "send_event",
        "start",
        "steer_runs",
    ),
    "runtime.context": (
        "StepContext",
        "Webhook",
        "create_webhook",
        "now",
        "patched",
        "publish",
        "random",
        "run_context",
        "set_attributes",
        "sleep",
        "step_context",
        "uuid4",
        "wait_for_event",
        "write_stream",
    ),
    "runtime.definitions": (
        "Concurrency",
        "step",
        "workflow",
    ),
    "runtime.outcomes": (
        "ReceivedEvent",
        "TimedOut",
    ),
    "runtime.engine": (
        "Engine",
        "Failure",
    ),
    "runtime.retry": ("Backoff",),
    "runtime.settings": ("Settings",),
    "sandbox": ("Sandbox",),
}

__getattr__ = lazily(__name__, _HOMES)
