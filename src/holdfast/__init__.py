"""Holdfast: durable AI code agents on your own machines."""

import importlib
from typing import TYPE_CHECKING, Any

from holdfast.errors import (
    BudgetExceeded,
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

if TYPE_CHECKING:
    from holdfast.gateway import generate_object, generate_text, stream_text
    from holdfast.sandbox import Sandbox

__version__ = "0.1.0"

__all__ = [
    "Backoff",
    "BudgetExceeded",
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
    "Sandbox",
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
    "generate_object",
    "generate_text",
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
    "stream_text",
    "uuid4",
    "wait_for_event",
    "workflow",
    "write_stream",
]

# Loaded when first used: a program that only needs the runtime should not wait for the others.
_LATER = {
    "Sandbox": "holdfast.sandbox",
    "generate_object": "holdfast.gateway",
    "generate_text": "holdfast.gateway",
    "stream_text": "holdfast.gateway",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    value = getattr(importlib.import_module(_LATER[name]), name)
    globals()[name] = value
    return value
