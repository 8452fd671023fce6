"""The public names of this package and where each is defined; `holdfast.lazy` reads this file."""

from holdfast.errors import (
    ApprovalRefused as ApprovalRefused,
    BudgetExceeded as BudgetExceeded,
    CodecError as CodecError,
    CrashLoop as CrashLoop,
    FatalError as FatalError,
    HoldfastError as HoldfastError,
    KeyUsed as KeyUsed,
    NonDeterminismError as NonDeterminismError,
    NotFound as NotFound,
    NotInWorkflow as NotInWorkflow,
    Refused as Refused,
    RetryableError as RetryableError,
    RunCancelled as RunCancelled,
    RunFailed as RunFailed,
    RunStuck as RunStuck,
    RunTimeout as RunTimeout,
    StepFailed as StepFailed,
    StepTimeout as StepTimeout,
    StoreError as StoreError,
    TooManyRequests as TooManyRequests,
    Unfinished as Unfinished,
    UnknownWorkflow as UnknownWorkflow,
    UpdateMismatch as UpdateMismatch,
    UpdateRejected as UpdateRejected,
    UpdateTimeout as UpdateTimeout,
    UpdateUnanswered as UpdateUnanswered,
    UsageError as UsageError,
)
from holdfast.gateway import (
    generate_object as generate_object,
    generate_text as generate_text,
    stream_text as stream_text,
)
from holdfast.loop import (
    Agent as Agent,
    Decision as Decision,
    Escalate as Escalate,
    approval as approval,
    approval_token as approval_token,
    decide as decide,
    get_approval as get_approval,
    list_approvals as list_approvals,
    tool as tool,
)
from holdfast.records.approvals import Approval as Approval
from holdfast.records.schedules import Firing as Firing, Schedule as Schedule
from holdfast.runtime.app import open_engine as open_engine
from holdfast.runtime.bulk import BulkResult as BulkResult
from holdfast.runtime.client import (
    RunHandle as RunHandle,
    get_run as get_run,
    list_runs as list_runs,
    receive_webhook as receive_webhook,
    send_event as send_event,
    start as start,
    steer_runs as steer_runs,
)
from holdfast.runtime.context import (
    StepContext as StepContext,
    Webhook as Webhook,
    create_webhook as create_webhook,
    now as now,
    patched as patched,
    publish as publish,
    random as random,
    run_context as run_context,
    set_attributes as set_attributes,
    sleep as sleep,
    step_context as step_context,
    uuid4 as uuid4,
    wait_for_event as wait_for_event,
    write_stream as write_stream,
)
from holdfast.runtime.continuation import (
    ContinueAsNew as ContinueAsNew,
    continue_as_new as continue_as_new,
)
from holdfast.runtime.cron import ScheduleSpec as ScheduleSpec, cron as cron, every as every
from holdfast.runtime.definitions import step as step, workflow as workflow
from holdfast.runtime.engine import Engine as Engine, Failure as Failure
from holdfast.runtime.flow_control import (
    Batch as Batch,
    Concurrency as Concurrency,
    Debounce as Debounce,
    RateLimit as RateLimit,
    Singleton as Singleton,
    Throttle as Throttle,
)
from holdfast.runtime.outcomes import ReceivedEvent as ReceivedEvent, TimedOut as TimedOut
from holdfast.runtime.retry import Backoff as Backoff
from holdfast.runtime.run_context import RunContext as RunContext
from holdfast.runtime.schedules import (
    ScheduleHandle as ScheduleHandle,
    create_schedule as create_schedule,
    get_schedule as get_schedule,
    list_schedules as list_schedules,
)
from holdfast.runtime.settings import Settings as Settings
from holdfast.runtime.updates import Update as Update, wait_for_update as wait_for_update
from holdfast.sandbox import Sandbox as Sandbox

__version__: str
