"""Holdfast: durable AI code agents on your own machines."""

from holdfast.errors import (
    CodecError,
    CrashLoop,
    FatalError,
    HoldfastError,
    NonDeterminismError,
    NotFound,
    NotInWorkflow,
    Refused,
    RetryableError,
    RunCancelled,
    RunFailed,
    RunStuck,
    StepFailed,
    StepTimeout,
    StoreError,
    UnknownWorkflow,
    UsageError,
)
from holdfast.runtime.app import open_engine
from holdfast.runtime.client import (
    RunHandle,
    get_run,
    list_runs,
    receive_webhook,
    send_event,
    start,
)
from holdfast.runtime.context import (
    StepContext,
    Webhook,
    create_webhook,
    now,
    patched,
    random,
    set_attributes,
    sleep,
    step_context,
    uuid4,
    wait_for_event,
    write_stream,
)
from holdfast.runtime.definitions import Concurrency, step, workflow
from holdfast.runtime.delivery import ReceivedEvent, TimedOut
from holdfast.runtime.engine import Engine, Failure
from holdfast.runtime.retry import Backoff
from holdfast.runtime.settings import Settings

__version__ = "0.1.0"

__all__ = [
    "Backoff",
    "CodecError",
    "Concurrency",
    "CrashLoop",
    "Engine",
    "Failure",
    "FatalError",
    "HoldfastError",
    "NonDeterminismError",
    "NotFound",
    "NotInWorkflow",
    "ReceivedEvent",
    "Refused",
    "RetryableError",
    "RunCancelled",
    "RunFailed",
    "RunHandle",
    "RunStuck",
    "Settings",
    "StepContext",
    "StepFailed",
    "StepTimeout",
    "StoreError",
    "TimedOut",
    "UnknownWorkflow",
    "UsageError",
    "Webhook",
    "create_webhook",
    "get_run",
    "list_runs",
    "now",
    "open_engine",
    "patched",
    "random",
    "receive_webhook",
    "send_event",
    "set_attributes",
    "sleep",
    "start",
    "step",
    "step_context",
    "uuid4",
    "wait_for_event",
    "workflow",
    "write_stream",
]
