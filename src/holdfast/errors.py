"""Every error Holdfast raises on purpose.

    HoldfastError
    ├── UsageError                 the caller's mistake                 exit 2, 400
    │   ├── NotInWorkflow          an operation a workflow body may not do
    │   ├── ConfigError            a setting that can't be read
    │   ├── WrongHost              a name that is not this server's      exit 2, 421
    │   ├── WrongMethod            a path that does not take this verb   exit 2, 405
    │   ├── WrongMediaType         a body that is not what it should be  exit 2, 415
    │   ├── TooSlow                a request that took too long to come  exit 2, 408
    │   └── CodecError             a value that can't be stored, or read back
    │       └── PayloadTooLarge    a value over the configured limit    exit 2, 413
    ├── NotFound                   no such run, step, webhook, …         exit 3, 404
    │   ├── UnknownWorkflow        a name no loaded module defines
    │   └── UnknownModel           a model no provider here can serve
    ├── Refused                    not possible in the present state     exit 3, 409
    │   ├── LeaseLost              another worker owns the run now
    │   ├── KeyRefused             a virtual key may not do this         exit 3, 401
    │   ├── BudgetExceeded         a call that could pass a budget       exit 3, 402
    │   ├── CallMismatch           one call key, two different requests  exit 3, 422
    │   ├── OutcomeUnknown         a call whose gateway died in mid-call
    │   ├── ApprovalRefused        a decision that does not count        exit 3, 403
    │   ├── RunMismatch            one run key, two different inputs     exit 3, 422
    │   ├── KeyUsed                a run with this key has ended
    │   ├── UpdateMismatch         one update id, two different updates  exit 3, 422
    │   ├── UpdateUnanswered       the run ended without answering
    │   ├── LoginRequired          no token, or a wrong one              exit 3, 401
    │   ├── CrossSite              another site's page asked for it      exit 3, 403
    │   └── TooManyRequests        a client asks too often               exit 3, 429
    ├── StoreError                 the store can't be read or written    exit 4, 503
    │   ├── StoreFull              no space left
    │   ├── StoreReadOnly          the file can't be written
    │   ├── SchemaTooNew           written by a newer program
    │   └── CorruptEvent           a journal row whose hash does not fit
    ├── ServerUnavailable          the server can't listen, or is full   exit 4, 503
    ├── InternalError              a mistake of ours                     exit 1, 500
    ├── ProviderError              a model's provider failed us          exit 4, 502
    │   ├── ProviderUnavailable    out of reach, overloaded, broken      exit 4, 503
    │   ├── RateLimited            it wants us to slow down              exit 4, 429
    │   ├── ProviderTimeout        too slow                              exit 4, 504
    │   ├── BadReply               cut, malformed or oversized
    │   ├── AuthRejected           it does not take our key
    │   └── RequestRejected        it does not take the request          exit 2, 400
    ├── SandboxError               a sandbox can't do what was asked     exit 1, 500
    │   ├── SandboxUnavailable     no backend here is good enough        exit 3, 503
    │   ├── SandboxGone            it has stopped, or was ended          exit 3, 409
    │   ├── PortClosed             nobody listens there in the sandbox   exit 3, 502
    │   ├── SandboxFileError       a file in it can't be read or written
    │   ├── CommandNotStarted      no such program, or not executable
    │   └── SourceError            a source can't be copied in           exit 2, 400
    └── RunError                   how a run or a step ended             exit 1, 500
        ├── FatalError             raised by a step: do not retry
        ├── RetryableError         raised by a step: retry, after a while
        ├── StepFailed             a step used up its attempts
        ├── StepTimeout            a step ran over its time limit
        ├── RunTimeout             a run had not ended by its deadline
        ├── RunFailed              awaited run failed
        ├── RunCancelled           awaited run was cancelled
        ├── RunStuck               awaited run can't go on by itself
        ├── NonDeterminismError    the code does not fit the journal
        ├── CrashLoop              the run keeps killing its workers
        ├── UpdateRejected         the run refused an update             exit 1, 409
        ├── UpdateTimeout          the run has not answered in time      exit 1, 504
        ├── Unfinished             an agent stopped before it had an answer
        └── ToolSourceLost         a server of tools is out of reach

Each says what happened and where; `hint` says what to do about it.
"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import ClassVar


class HoldfastError(Exception):
    """The root of the tree above."""

    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500
    passing: ClassVar[bool] = True
    """Whether it may be gone the next time: a step that raises another kind is not retried."""

    def __init__(self, message: str = "", *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    @property
    def kind(self) -> str:
        """The error's name as it appears in JSON and in the journal."""
        return type(self).__name__

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


class UsageError(HoldfastError):
    """The caller's mistake: wrong arguments, wrong place."""

    passing = False
    exit_code = 2
    http_status = 400


class NotInWorkflow(UsageError):
    """Real I/O, a thread or a subprocess was asked for in a workflow body."""


class ConfigError(UsageError):
    """A setting is unknown, or its value can't be used."""


class CodecError(UsageError):
    """A value can't be stored as JSON by its type, or can't be read back."""


class PayloadTooLarge(CodecError):
    """A value is larger than the configured limit."""

    http_status = 413


class NotFound(HoldfastError):
    """There is no such thing."""

    exit_code = 3
    http_status = 404


class UnknownWorkflow(NotFound):
    """No module loaded here defines a workflow of this name."""

    passing = False


class Refused(HoldfastError):
    """It exists, but its present state does not allow this."""

    exit_code = 3
    http_status = 409


class LeaseLost(Refused):
    """Another worker owns the run now; what this one wanted to write was dropped."""


class KeyUsed(Refused):
    """The key belongs to a run that has ended, or to the one that came after it."""

    passing = False


class UpdateMismatch(Refused):
    """An update's id was used before, for another update of the same run."""

    passing = False
    http_status = 422


class UpdateUnanswered(Refused):
    """The run has ended, and has not answered the update."""

    passing = False


class StoreError(HoldfastError):
    """The store can't be read or written."""

    exit_code = 4
    http_status = 503


class StoreFull(StoreError):
    """No space is left for the store."""


class StoreReadOnly(StoreError):
    """The store's file or folder can't be written."""


class SchemaTooNew(StoreError):
    """The store was written by a newer program than this one."""


class CorruptEvent(StoreError):
    """A journal row does not fit its own hash, or is missing."""


class SandboxError(HoldfastError):
    """A sandbox can't do what was asked of it."""


class SandboxUnavailable(SandboxError):
    """No backend that works here is as isolated as was asked."""

    exit_code = 3
    http_status = 503


class SandboxGone(SandboxError):
    """The sandbox has stopped, ran out of its time, or was ended from outside."""

    exit_code = 3
    http_status = 409


class PortClosed(SandboxError):
    """No server in the sandbox listens on this port (yet)."""

    exit_code = 3
    http_status = 502


class SandboxFileError(SandboxError):
    """A file in the sandbox can't be read or written; `errno` and `path` say which and why."""

    def __init__(self, message: str = "", *, errno: int = 0, path: str | None = None) -> None:
        super().__init__(message)
        self.errno = errno
        self.path = path


class CommandNotStarted(SandboxFileError):
    """The program does not exist in the sandbox, or can't be executed."""


class SourceError(SandboxError):
    """A folder or repository can't be copied into a sandbox."""

    exit_code = 2
    http_status = 400


class RunError(HoldfastError):
    """How a run or a step ended, when it did not end well."""


class FatalError(RunError):
    """Raise this in a step to fail it at once, with no retry."""

    passing = False


class RetryableError(RunError):
    """Raise this in a step to have it retried, at the earliest after `retry_after`."""

    def __init__(
        self,
        message: str = "",
        *,
        retry_after: timedelta | float | str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class StepFailed(RunError):
    """A step failed for good; its own error could not be rebuilt here.

    `type` is the original error's name, `traceback` the text of its traceback.
    """

    def __init__(self, message: str = "", *, type: str = "", traceback: str = "") -> None:
        super().__init__(message)
        self.type = type
        self.traceback = traceback


class StepTimeout(RunError):
    """An attempt of a step ran over `timeout`, or was silent for `idle_timeout`."""


class RunTimeout(RunError):
    """A run had not ended when its time was over: see `@workflow(timeout=…)`."""


class RunFailed(RunError):
    """The run whose result was awaited has failed."""


class RunCancelled(RunError):
    """The run whose result was awaited was cancelled."""


class RunStuck(RunError):
    """The run whose result was awaited is stuck: somebody has to look, and resume it."""


class NonDeterminismError(RunError):
    """The workflow's code does something else than the journal recorded."""


class UpdateRejected(RunError):
    """The run has refused an update; the error it gave is the cause."""

    passing = False
    http_status = 409


class UpdateTimeout(RunError):
    """The run has not answered an update in time. It may still do so: ask again by its id."""

    http_status = 504


class CrashLoop(RunError):
    """The run was stopped because its workers keep dying on it."""


# --- the gateway's ---------------------------------------------------------------------------


class UnknownModel(NotFound):
    """No provider configured here serves this model."""

    passing = False


class KeyRefused(Refused):
    """A virtual key is unknown, expired, revoked, or not meant for this model."""

    passing = False
    http_status = 401


class BudgetExceeded(Refused):
    """The call was not made: its worst case would pass a budget.

    `scope` names the budget (`run:run_…`, `day:2026-01-31`), amounts are US dollars (or tokens,
    where `unit` says so).
    """

    passing = False
    http_status = 402

    def __init__(
        self,
        message: str = "",
        *,
        hint: str | None = None,
        scope: str = "",
        unit: str = "usd",
        limit: Decimal | None = None,
        spent: Decimal | None = None,
        needed: Decimal | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.scope, self.unit = scope, unit
        self.limit, self.spent, self.needed = limit, spent, needed


class CallMismatch(Refused):
    """A call's key was used before, for another request."""

    passing = False
    http_status = 422


class OutcomeUnknown(Refused):
    """An earlier call with this key was cut short by the death of its gateway.

    It may have been paid for. It is not made again by itself: the caller's policy decides.
    """


class ProviderError(HoldfastError):
    """A model's provider failed us; `status` is its HTTP status, if it answered at all."""

    exit_code = 4
    http_status = 502
    falls_back: ClassVar[bool] = True
    """Whether another provider might do better."""

    def __init__(
        self,
        message: str = "",
        *,
        hint: str | None = None,
        provider: str = "",
        model: str = "",
        status: int | None = None,
        code: str | None = None,
        retry_after: float | None = None,
        bought: bool = False,
    ) -> None:
        super().__init__(message, hint=hint)
        self.provider, self.model = provider, model
        self.status, self.code, self.retry_after = status, code, retry_after
        self.bought = bought
        """Whether the provider may charge for the failed attempt."""


class ProviderUnavailable(ProviderError):
    """The provider is out of reach, overloaded or broken."""

    http_status = 503


class RateLimited(ProviderError):
    """The provider wants us to slow down."""

    http_status = 429


class ProviderTimeout(ProviderError):
    """The provider was too slow: connecting, at its first token, between tokens, or in all."""

    http_status = 504


class BadReply(ProviderError):
    """The provider's reply was cut, malformed, oversized, or not what it claims to be."""


class AuthRejected(ProviderError):
    """The provider does not take our key."""

    passing = False


class RequestRejected(ProviderError):
    """The provider does not take the request itself; another would hardly do so either."""

    passing = False
    exit_code = 2
    http_status = 400
    falls_back = False


# --- the loop's ------------------------------------------------------------------------------


class Unfinished(RunError):
    """An agent stopped before it had an answer: a bound was reached, or the model would not."""


class ApprovalRefused(Refused):
    """A decision does not count: other arguments, a used or expired token, another run's."""

    http_status = 403


class ToolSourceLost(RunError):
    """A server that tools come from can't be reached, or was lost in the middle of a call."""


# --- the server's ----------------------------------------------------------------------------


class WrongHost(UsageError):
    """The request's Host is no name of this server's: a stranger's name may point at us."""

    http_status = 421


class WrongMethod(UsageError):
    """The path exists, but not for this method."""

    http_status = 405


class WrongMediaType(UsageError):
    """The body is not of the kind this path takes."""

    http_status = 415


class TooSlow(UsageError):
    """The request's body took too long to arrive."""

    http_status = 408


class RunMismatch(Refused):
    """A run's key was used before, for another input."""

    http_status = 422


class LoginRequired(Refused):
    """The server wants a token, and got none or a wrong one."""

    http_status = 401


class BadSignature(Refused):
    """A webhook was not signed with the secret it should be, or too long ago."""

    http_status = 401


class CrossSite(Refused):
    """A page of another site, or one of ours without its CSRF token, asked for a change."""

    http_status = 403


class TooManyRequests(Refused):
    """This client asks more often than it may; `retry_after` is in seconds."""

    http_status = 429

    def __init__(
        self, message: str = "", *, hint: str | None = None, retry_after: float = 1.0
    ) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class Overloaded(TooManyRequests):
    """More runs wait to begin than the server is set to let wait."""

    http_status = 503


class ServerUnavailable(HoldfastError):
    """The server can't listen where it should, is full, or is being stopped."""

    exit_code = 4
    http_status = 503


class InternalError(HoldfastError):
    """What the server answers to a mistake of its own."""
