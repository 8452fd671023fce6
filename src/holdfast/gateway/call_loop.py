"""The call loop: on record first, then provider after provider until one answers.

The library and the HTTP service make their calls here; what is sent and what becomes of the answer
is theirs (`Work`). A call with a key whose earlier one is whole gets that one's answer.

The order that keeps the promises: the worst case is held and the call committed as started; then
the first byte is sent; then the end is committed and the hold settled. Going again by itself
happens only where nothing was bought; going to another provider after something may have been
bought counts the worst case of what failed.
"""

from __future__ import annotations

import asyncio
import random
import time
from asyncio import FIRST_COMPLETED
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal, ParamSpec, Protocol

from holdfast.errors import (
    AuthRejected,
    BudgetExceeded,
    OutcomeUnknown,
    ProviderError,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
    RequestRejected,
)
from holdfast.gateway.accounting import Account, Meter, Race
from holdfast.gateway.config import GatewayConfig, Retries
from holdfast.gateway.input_bounds import refusal
from holdfast.gateway.limits import Circuit, RateLimit, limits_of, scopes_of
from holdfast.gateway.prices import PriceBook
from holdfast.gateway.providers import Candidate
from holdfast.gateway.secrets import Redactor, decrypt, encrypt, key_hash, reply_key
from holdfast.ids import new_id
from holdfast.records.calls import CallEnd, CallStart
from holdfast.session import CurrentStep
from holdfast.store.ledger import Earlier, Ledger

P = ParamSpec("P")
_OTHERS_CALL = 0.05
"""Seconds between two looks at a call that another process makes."""
_NO_CREDIT = ("insufficient_quota", "billing_not_active", "credit_balance_too_low")


Runner = tuple["asyncio.Task[None]", Account]


@dataclass(frozen=True, slots=True)
class Call:
    """A call to be made: who asks for what, and under which key."""

    model: str
    format: str
    candidates: Sequence[Candidate]
    request_hash: str
    prompt: str | None = None
    """What was asked, redacted, as it is kept for the inspector."""
    key: str | None = None
    """Under which the call is made once: a second one gets the answer of the first."""
    sent_key: str | None = None
    """The idempotency key for providers."""
    step: CurrentStep | None = None
    run_id: str | None = None
    api_key: str | None = None
    tags: tuple[str, ...] = ()
    budget_wait: float | None = None
    """Seconds to wait for room in a budget, if not those of the configuration."""
    wait_for_end: bool = True
    """Answer only after the call's end is on record."""
    on_unknown: Literal["again"] | None = None
    """Make the call again if an earlier one's outcome is unknown, whatever the configuration."""

    def start(self) -> CallStart:
        """Its record, under a new id."""
        step = self.step
        return CallStart(
            id=new_id("call"),
            model=self.model,
            format=self.format,
            started_at=time.time(),
            key=None if self.key is None else key_hash(self.key),
            request_hash=self.request_hash,
            run_id=step.run_id if step else self.run_id,
            workflow=step.workflow if step else None,
            step=step.step if step else None,
            step_key=step.key if step else None,
            attempt=step.attempt if step else None,
            api_key=self.api_key,
            tags=self.tags,
            prompt=self.prompt,
        )


@dataclass(frozen=True, slots=True)
class Made:
    """A call that is whole; `replay` is the kept answer if it was made earlier."""

    start: CallStart
    end: CallEnd
    replay: bytes | None = None


class Work(Protocol):
    """What a call sends and what becomes of the answer: canonical for the library, bytes for
    the HTTP service."""

    def begin(self, call_id: str) -> None:
        """The call is about to be made under this id."""
        ...

    def size(self, candidate: Candidate) -> tuple[int, int | None]:
        """No more input tokens than this, and the most output tokens asked for, if said."""
        ...

    def unbounded(self, candidate: Candidate) -> str | None:
        """What of the request could cost more than its size tells, if anything."""
        ...

    async def perform(
        self, candidate: Candidate, cap: int | None, key: str | None, meter: Meter
    ) -> None:
        """One attempt, its output capped; raises ProviderError."""
        ...

    def reply(self) -> str | None:
        """The answer as text for the inspector."""
        ...

    def replay(self) -> bytes | None:
        """The answer as the same key gets it again."""
        ...


class Quickness(Protocol):
    """Takes note of how quickly a model answered."""

    def note(self, candidate: Candidate, seconds: float) -> None: ...


class CallLoop:
    """Makes calls; holds the state of each provider."""

    def __init__(
        self, config: GatewayConfig, ledger: Ledger, prices: PriceBook, redact: Redactor
    ) -> None:
        self._config, self._ledger, self._prices = config, ledger, prices
        self._redact = redact
        self.ended: Callable[[CallStart, CallEnd], Awaitable[None]] | None = None
        """Who wants to know of each call that has ended, once it is on record."""
        self.quickness: Quickness | None = None
        """Who wants to know how quick each model was."""
        self._circuits: dict[str, Circuit] = {}
        self._paces: dict[str, RateLimit] = {}

    async def make(self, call: Call, work: Work) -> Made:
        """Make the call, or find the earlier one with its key; raises what it failed with."""
        secret = None if call.key is None else reply_key(call.key, call.request_hash.encode())
        while True:
            start = call.start()
            work.begin(start.id)
            made = await self._make_once(start, call, work, secret)
            if isinstance(made, CallEnd):
                return Made(start, made)
            earlier = made.call
            if await self._may_be_had(made, call):
                assert secret is not None and made.replay is not None and earlier.end is not None
                return Made(earlier.start, earlier.end, decrypt(secret, made.replay))

    async def _make_once(
        self, start: CallStart, call: Call, work: Work, secret: bytes | None
    ) -> CallEnd | Earlier:
        """Make the call, unless there is an earlier one with its key."""
        config, candidates, durable = self._config, call.candidates, call.key is not None
        wait = config.timeouts.budget if call.budget_wait is None else call.budget_wait
        scopes = scopes_of(start, config.budgets)
        limits = limits_of(scopes, config.budgets)
        account = Account(
            start, self._prices, limits,
            default_max=config.default_max_tokens, on_its_way=config.cut_allowance,
            budget_wait=wait,
        )  # fmt: skip
        worst = account.worst(candidates[0], work.size(candidates[0]))
        try:
            begun = await self._ledger.begin(
                start, scopes=scopes, limits=limits, usd=worst.usd, tokens=worst.tokens,
                durable=durable, wait=wait,
            )  # fmt: skip
        except asyncio.CancelledError as error:
            # It may have begun all the same: give back what it holds.
            self._ledger.finish_soon(start.id, account.interrupted(error))
            raise
        if isinstance(begun, Earlier):
            return begun
        account.held, account.limited = worst, begun.limited
        try:
            await self._try_all(candidates, work, account, call.sent_key)
        except (ProviderError, BudgetExceeded) as error:
            failed = _settled(account, account.failed, error)
            await self._ledger.finish(start.id, failed)
            if self.ended is not None:
                await self.ended(start, failed)
            raise
        except BaseException as error:
            # Cancelled, or a fault of ours: recorded without waiting, which can't be cut again.
            self._ledger.finish_soon(start.id, _settled(account, account.interrupted, error))
            raise
        end = _settled(account, account.completed, *self._kept(work, secret))
        durable = durable or begun.limited  # what counts against a limit survives a power cut
        if call.wait_for_end or not durable:
            await self._ledger.finish(start.id, end, durable=durable)
        else:
            self._ledger.finish_soon(start.id, end)
        if self.ended is not None:
            await self.ended(start, end)
        return end

    def _kept(
        self, work: Work, secret: bytes | None
    ) -> tuple[str | None, bytes | None, Exception | None]:
        """What is kept of the answer, and why nothing is: it was had and paid for all the same."""
        try:
            shown = work.reply() if self._config.keep_content else None
            again = None if secret is None else work.replay()
            return (
                None if shown is None else self._redact(shown),
                None if secret is None or again is None else encrypt(secret, again),
                None,
            )
        except Exception as fault:  # noqa: BLE001  it is on record with the end
            return None, None, fault

    async def _may_be_had(self, earlier: Earlier, call: Call) -> bool:
        """Whether an earlier call with the same key is whole; False: make the call now."""
        found = earlier.call
        if found.status == "completed" and earlier.replay is not None:
            return True
        if found.status == "unknown":
            # A gateway behind us keeps calls by key itself: asking it again takes up the same one.
            behind = all(one.provider.name == "holdfast" for one in call.candidates)
            again = call.on_unknown or self._config.on_unknown
            if again != "again" and not behind:
                raise OutcomeUnknown(
                    f"call {found.start.id} was cut short by the death of its process;"
                    " whether it was paid for is unknown",
                    hint='decide: use a new key, or set on_unknown = "again"',
                )
            await self._ledger.supersede(found.start.id, release=behind)
        elif found.status == "completed":  # its reply is no longer kept
            await self._ledger.supersede(found.start.id)
        else:
            await asyncio.sleep(_OTHERS_CALL)  # another process is at it: ask again
        return False

    async def _try_all(
        self, candidates: Sequence[Candidate], work: Work, account: Account, key: str | None
    ) -> None:
        if len(candidates) == 1:
            await self._try_one(candidates[0], work, account, key)
        elif self._config.hedge_after is not None:
            await self._hedged(candidates, work, account, key)
        else:
            await self._in_turn(candidates, work, account, key)

    async def _in_turn(
        self, candidates: Sequence[Candidate], work: Work, account: Account, key: str | None
    ) -> None:
        last = len(candidates) - 1
        for number, candidate in enumerate(candidates):
            # The same key for the same bytes; a fallback sends other bytes under another key.
            sent_key = None if key is None else (key if number == 0 else f"{key}-{number}")
            # With another key at hand a limited one is not waited for.
            other_key = number < last and candidates[number + 1].ref == candidate.ref
            try:
                await self._try_one(candidate, work, account, sent_key, once=other_key)
            except ProviderError as error:
                if account.meter.emitted or number == last or not error.falls_back:
                    raise
            else:
                return

    async def _hedged(
        self, candidates: Sequence[Candidate], work: Work, account: Account, key: str | None
    ) -> None:
        """The first, and the others beside it if it has not begun to answer after a while."""
        race = Race()
        decided = asyncio.create_task(race.decided.wait())
        runners = [self._runner(candidates[:1], work, account, key, race)]
        try:
            first, leading = runners[0]
            await asyncio.wait(
                [first, decided], timeout=self._config.hedge_after, return_when=FIRST_COMPLETED
            )
            if first.done() and not _may_fall_back(first):
                first.result()
                return
            if race.winner is None:
                hedge_key = None if key is None else f"{key}-hedge"
                runners.append(self._runner(candidates[1:], work, account, hedge_key, race))
                other = runners[1][1]
                other.beside = leading.needed(candidates[0], work.size(candidates[0]))
                leading.beside = other.worst(candidates[1], work.size(candidates[1]))
            while race.winner is None and (running := [t for t, _ in runners if not t.done()]):
                await asyncio.wait([*running, decided], return_when=FIRST_COMPLETED)
            winner = _winner(runners, race)
            for task, _ in runners:
                if task is not winner:
                    task.cancel()
            await winner
        finally:
            decided.cancel()
            for task, _ in runners:
                task.cancel()
            await asyncio.wait([task for task, _ in runners])
            chosen = _winner(runners, race)
            for task, branch in runners:
                if task is not chosen:
                    account.add_loser(branch)
            account.adopt(next(branch for task, branch in runners if task is chosen))

    def _runner(
        self,
        candidates: Sequence[Candidate],
        work: Work,
        account: Account,
        key: str | None,
        race: Race,
    ) -> Runner:
        branch = account.branch(race)
        return asyncio.create_task(self._in_turn(candidates, work, branch, key)), branch

    async def _try_one(
        self,
        candidate: Candidate,
        work: Work,
        account: Account,
        key: str | None,
        *,
        once: bool = False,
    ) -> None:
        """One provider, again where nothing was bought."""
        retries = self._config.retries
        circuit, pace = self._circuit(candidate), self._pace(candidate)
        number = 0
        while True:
            number += 1
            size = work.size(candidate)
            if account.limited and (what := work.unbounded(candidate)):
                raise refusal(what)
            await self._hold(account, candidate, size)
            account.begin(candidate)
            try:
                circuit.enter()
                taken = size[0] + (size[1] or 0)
                if pace.limited and await pace.turn(taken):
                    account.begin(candidate)  # the wait is not the provider's
                await work.perform(candidate, account.cap(size), key, account.meter)
            except ProviderError as error:
                error.provider, error.model = candidate.provider.name, candidate.model
                error.message = self._redact(error.message)  # some echo the key they refuse
                error.args = (error.message,)
                _judge(circuit, error)
                account.attempt_failed(error)
                wait = None if once else _wait(error, number, retries)
                if wait is None or account.meter.emitted:
                    raise
                await asyncio.sleep(wait)
            except BaseException:
                circuit.left()
                raise
            else:
                circuit.succeeded()
                account.attempt_succeeded()
                pace.settle(taken, account.usage.total)
                if self.quickness is not None:
                    meter = account.meter
                    self.quickness.note(
                        candidate, meter.first_token or time.perf_counter() - meter.started
                    )
                return

    async def _hold(
        self, account: Account, candidate: Candidate, size: tuple[int, int | None]
    ) -> None:
        """Hold the worst case of this attempt on top of what failed ones may have cost."""
        needed = account.needed(candidate, size)
        if needed != account.held:
            await self._ledger.hold(
                account.start.id, limits=account.limits, usd=needed.usd, tokens=needed.tokens,
                keep=account.unavoidable(), wait=account.budget_wait,
            )  # fmt: skip
            account.held = needed

    def _circuit(self, candidate: Candidate) -> Circuit:
        name = candidate.provider.name
        if name not in self._circuits:
            self._circuits[name] = Circuit(name, self._config.breaker)
        return self._circuits[name]

    def _pace(self, candidate: Candidate) -> RateLimit:
        provider = candidate.provider
        if provider.name not in self._paces:
            self._paces[provider.name] = RateLimit(provider, self._ledger)
        return self._paces[provider.name]


def _settled(
    account: Account, make: Callable[P, CallEnd], *args: P.args, **more: P.kwargs
) -> CallEnd:
    """The call's end; there is one whatever the provider made of our account of it."""
    try:
        return make(*args, **more)
    except Exception as fault:  # noqa: BLE001  it is on record with the end
        return account.last_resort(fault)


def _winner(runners: list[Runner], race: Race) -> asyncio.Task[None]:
    """The task that was first; if none was, the last to be started speaks for all."""
    for task, account in runners:
        if race.winner is not None and account.meter is race.winner:
            return task
    return runners[-1][0]


def _may_fall_back(task: asyncio.Task[None]) -> bool:
    error = task.exception()
    return isinstance(error, ProviderError) and error.falls_back


def _judge(circuit: Circuit, error: ProviderError) -> None:
    """What an error tells of the provider's health."""
    if isinstance(error, RateLimited | RequestRejected | AuthRejected):
        circuit.left()  # it is there, and it answers
    elif error.status is not None or error.retry_after is None:
        circuit.failed(error.message)
    else:
        circuit.left()  # the circuit's own refusal


def _wait(error: ProviderError, number: int, retries: Retries) -> float | None:
    """Seconds to wait before going again; None: don't."""
    if number >= retries.attempts or error.bought or not _bought_nothing(error):
        return None
    if error.retry_after is not None:
        if error.retry_after > retries.cap:
            return None
        return error.retry_after + random.uniform(0, retries.base / 4)  # noqa: S311
    longest = min(retries.cap, retries.base * 2 ** (number - 1))
    return longest * random.uniform(0.5, 1)  # noqa: S311


def _bought_nothing(error: ProviderError) -> bool:
    """Only what plainly cost nothing is asked again: no connection, 429, 529, "come back"."""
    if isinstance(error, RateLimited):
        return error.code not in _NO_CREDIT
    if isinstance(error, ProviderTimeout):
        return error.status is None
    if isinstance(error, ProviderUnavailable):
        if error.status is None:
            return error.retry_after is None
        return error.status == 529 or (error.status == 503 and error.retry_after is not None)
    return False
