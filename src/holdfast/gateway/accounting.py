"""The account of one call: what its attempts had, what it may and did cost, and how it ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import NamedTuple

from holdfast.errors import BudgetExceeded, HoldfastError, ProviderError
from holdfast.gateway.input_bounds import HIDDEN, estimate
from holdfast.gateway.prices import PriceBook, Prices
from holdfast.gateway.providers import Candidate
from holdfast.gateway.reply import End, Event, FinishReason, PartDelta, Start, Usage
from holdfast.records.calls import NANO, CallEnd, CallStart, CallStatus, ProviderAttempt, SpendLimit


class Race:
    """Two attempts at one call: the first to hand something on has won."""

    def __init__(self) -> None:
        self.winner: Meter | None = None
        self.decided = asyncio.Event()

    def win(self, meter: Meter) -> None:
        if self.winner is not None:
            raise asyncio.CancelledError
        self.winner = meter
        self.decided.set()


@dataclass(slots=True)
class Meter:
    """Filled in by whoever reads the reply; read when the attempt ends, however it ends."""

    started: float = field(default_factory=time.perf_counter)
    sent: bool = False
    """The request may have reached the provider: from here on it may cost."""
    status: int | None = None
    first_token: float | None = None
    """Seconds from the attempt's start to its first token."""
    emitted: bool = False
    """Something was handed on: there is no going back to another provider."""
    race: Race | None = None
    """Whom this attempt runs against, if it was hedged."""
    usage: Usage | None = None
    finish: FinishReason | None = None
    model: str | None = None
    free: bool = False
    """Nobody bills for what was asked, whatever the model costs."""
    thinks: bool = False
    """The model was asked to reason, which it may do out of sight."""
    text_bytes: int = 0
    """Bytes of answer received, for an estimate if the provider tells no usage."""

    def emit(self) -> None:
        """Say that something is about to be handed on; raises CancelledError if another
        attempt was first."""
        if self.race is not None and not self.emitted:
            self.race.win(self)
        self.emitted = True

    def token(self, size: int) -> None:
        """So many bytes of answer came in."""
        if self.first_token is None:
            self.first_token = time.perf_counter() - self.started
        self.text_bytes += size

    def note(self, event: Event) -> None:
        """Keep account of what an event tells."""
        if isinstance(event, PartDelta):
            self.token(len(event.text.encode("utf-8", "surrogatepass")))
        elif isinstance(event, Start):
            self.model = event.model or self.model
            self.usage = event.usage or self.usage
        elif isinstance(event, End):
            self.usage = event.usage or self.usage
            self.finish = event.finish


MOST_TOKENS = 10**9
"""No call has more; a count beyond it is no count."""
_MOST_USD = 10**15


class Amount(NamedTuple):
    """Nanodollars (None: the price is unknown) and tokens."""

    usd: int | None
    tokens: int

    @property
    def dollars(self) -> Decimal | None:
        return None if self.usd is None else Decimal(self.usd) / NANO

    def bounded(self) -> Amount:
        """No more than can be summed up thousands of times in the store's integers."""
        usd = self.usd if self.usd is None else min(self.usd, _MOST_USD)
        return Amount(usd, min(self.tokens, MOST_TOKENS))

    def plus(self, other: Amount) -> Amount:
        known = self.usd is not None and other.usd is not None
        usd = (self.usd or 0) + (other.usd or 0) if known else None
        return Amount(usd, self.tokens + other.tokens)


_NOTHING = Amount(0, 0)


class Account:
    """The account of one call, attempt by attempt."""

    def __init__(
        self,
        start: CallStart,
        prices: PriceBook,
        limits: Sequence[SpendLimit],
        *,
        default_max: int,
        on_its_way: int,
        budget_wait: float,
    ) -> None:
        self.start, self.limits, self.budget_wait = start, limits, budget_wait
        self._book, self._default_max, self._on_its_way = prices, default_max, on_its_way
        self._began = time.perf_counter()
        self._candidate: Candidate | None = None
        self._prices: Prices | None = None
        self._worst = _NOTHING
        self._input_bytes = 0
        self._lost = _NOTHING
        """What failed attempts may have been billed."""
        self._attempts: list[ProviderAttempt] = []
        self._reckoned: tuple[Candidate, tuple[int, int | None], Amount] | None = None
        self.held = _NOTHING
        self.beside = _NOTHING
        """What is held for another attempt that runs beside this one."""
        self.limited = False
        self.race: Race | None = None
        self.meter = Meter()
        self.usage = Usage()
        self.cost: int | None = None
        self._whole = False
        """An attempt gave the answer; its usage and cost are known."""
        self.over = False
        """The present attempt has ended, and is in the list."""

    def worst(self, candidate: Candidate, size: tuple[int, int | None]) -> Amount:
        """What one attempt can cost at most."""
        known = self._reckoned
        if known is not None and known[0] is candidate and known[1] == size:
            return known[2]
        input_bound, asked = size
        output = self._default_max if asked is None else asked
        prices = self._book.find(candidate.provider, candidate.model)
        usd = None if prices is None else prices.worst(input_bound, output)
        amount = Amount(usd, input_bound + output).bounded()
        self._reckoned = candidate, size, amount
        return amount

    def needed(self, candidate: Candidate, size: tuple[int, int | None]) -> Amount:
        """What must be held for this attempt, with what failed ones may have cost."""
        self._worst = self.worst(candidate, size)
        self._input_bytes = max(size[0] - HIDDEN, 0)
        if self._lost is _NOTHING and self.beside is _NOTHING:
            return self._worst
        return self._lost.plus(self._worst).plus(self.beside)

    def unavoidable(self) -> tuple[int, int]:
        """What stays held whatever becomes of the next attempt."""
        sure = self._lost.plus(self.beside)
        return sure.usd or 0, sure.tokens

    def branch(self, race: Race) -> Account:
        """The account of an attempt at the same call that runs beside others."""
        other = Account(
            self.start, self._book, self.limits, budget_wait=self.budget_wait,
            default_max=self._default_max, on_its_way=self._on_its_way,
        )  # fmt: skip
        other._began, other._attempts = self._began, self._attempts
        other.limited, other.race, other.held = self.limited, race, self.held
        return other

    def adopt(self, winner: Account) -> None:
        """Go on with the account of the attempt that was first."""
        self._lost = self._lost.plus(winner._lost)
        self._candidate, self._prices = winner._candidate, winner._prices
        self._worst, self._input_bytes = winner._worst, winner._input_bytes
        self.meter, self.usage, self.cost = winner.meter, winner.usage, winner.cost

    def add_loser(self, loser: Account) -> None:
        """Count an attempt that was stopped because another was first: what it sent, in full."""
        self._lost = self._lost.plus(loser._lost)
        if loser.meter.sent and not loser.over:
            billed = loser._billable()
            loser._note(None, billed.dollars)
            self._lost = self._lost.plus(billed)

    def cap(self, size: tuple[int, int | None]) -> int | None:
        """The output cap to send where a limit needs one and the caller set none."""
        return self._default_max if self.limited and size[1] is None else None

    def begin(self, candidate: Candidate) -> None:
        """A new attempt."""
        self._candidate = candidate
        self._prices = self._book.find(candidate.provider, candidate.model)
        self.meter = Meter(race=self.race)
        self.over = False

    def attempt_failed(self, error: ProviderError) -> None:
        self.over = True
        charged: Decimal | None = None
        if error.bought:
            billed = self._billable()
            charged = billed.dollars
            self._lost = self._lost.plus(billed)
        self._note(error, charged)

    def attempt_succeeded(self) -> None:
        self.over = True
        self._whole = True
        self._note(None, None)
        self.usage = _plausible(self.meter.usage) or self._estimated()
        if self.meter.free:
            self.cost = 0
        else:
            self.cost = None if self._prices is None else self._prices.cost(self.usage)

    def _note(self, error: ProviderError | None, charged: Decimal | None) -> None:
        assert self._candidate is not None
        self._attempts.append(
            ProviderAttempt(
                provider=self._candidate.provider.name,
                model=self._candidate.model,
                seconds=time.perf_counter() - self.meter.started,
                status=self.meter.status,
                error=None if error is None else error.kind,
                message=None if error is None else error.message,
                charged=charged,
            )
        )

    def _estimated(self) -> Usage:
        return Usage(
            input=estimate(self._input_bytes),
            output=estimate(self.meter.text_bytes),
            estimated=True,
        )

    def completed(
        self, reply: str | None, replay: bytes | None, fault: Exception | None = None
    ) -> CallEnd:
        """`fault`: why there is no reply to keep, if there should be one."""
        return self._end(
            "completed",
            message=fault and f"the reply could not be kept: {fault!r}",
            charge=Amount(
                None if self.cost is None else self.cost + (self._lost.usd or 0),
                self.usage.total + self._lost.tokens,
            ),
            reply=reply,
            replay=replay,
        )

    def failed(self, error: ProviderError | BudgetExceeded) -> CallEnd:
        """Ended by an error: only attempts that may have been billed count."""
        if isinstance(error, ProviderError) and error.bought:
            self._partial()
        return self._end("failed", charge=self._lost, error=error)

    def interrupted(self, error: BaseException) -> CallEnd:
        """Ended from our side; once sent, what may have been billed counts."""
        charge = self._lost
        if self.meter.sent and not self.over:
            billed = self._billable()
            charge = charge.plus(billed)
            self._partial()
            self._note(None, billed.dollars)
        elif self._whole:
            charge = charge.plus(Amount(self.cost, self.usage.total))
        return self._end("interrupted", charge=charge, error=error)

    def last_resort(self, error: BaseException) -> CallEnd:
        """The end where another could not be made: it counts what it holds, and says why."""
        return CallEnd(
            status="interrupted",
            finished_at=time.time(),
            charge=self.held.usd or 0,
            charge_tokens=self.held.tokens,
            estimated=True,
            error=type(error).__name__,
            message=f"the call's end could not be recorded as it was: {error!r}",
        )

    def _billable(self) -> Amount:
        """What an attempt that never became whole may be billed at most.

        A stream that had begun to answer is stopped by its provider when we are gone: what came,
        a token for each byte, and what was on its way. Otherwise, and where the model may have
        thought out of sight, nobody knows: the worst case.
        """
        meter, worst = self.meter, self._worst
        if meter.first_token is None or meter.thinks:
            return worst
        told = _plausible(meter.usage)
        output = max(meter.text_bytes, told.output if told else 0) + self._on_its_way
        if told is None or not told.input:
            inward = self._input_bytes + HIDDEN
            usd = None if self._prices is None else self._prices.worst(inward, output)
        else:
            inward = told.input
            usage = replace(told, output=output)
            usd = None if self._prices is None else self._prices.cost(usage)
        usd = worst.usd if usd is None or worst.usd is None else min(usd, worst.usd)
        return Amount(usd, min(inward + output, worst.tokens))

    def _partial(self) -> None:
        """What is known of the spend of an answer that never became whole."""
        known = _plausible(self.meter.usage)
        guess = self._estimated()
        self.usage = Usage(
            input=known.input if known else guess.input,
            cached=known.cached if known else 0,
            cache_write=known.cache_write if known else 0,
            output=max(known.output if known else 0, guess.output),
            estimated=True,
        )
        self.cost = None if self._prices is None else self._prices.cost(self.usage)

    def _end(
        self,
        status: CallStatus,
        *,
        charge: Amount,
        error: BaseException | None = None,
        message: str | None = None,
        reply: str | None = None,
        replay: bytes | None = None,
    ) -> CallEnd:
        meter, usage, candidate = self.meter, self.usage, self._candidate
        spent = usage.total > 0 or status == "completed"
        first = meter.first_token
        return CallEnd(
            status=status,
            finished_at=time.time(),
            provider=candidate.provider.name if candidate else None,
            served=meter.model or (candidate.model if candidate else None),
            finish=meter.finish,
            input_tokens=usage.input,
            cached_tokens=usage.cached,
            cache_write_tokens=usage.cache_write,
            output_tokens=usage.output,
            reasoning_tokens=usage.reasoning,
            estimated=usage.estimated,
            cost=self.cost if spent else 0,
            charge=charge.usd or 0,
            charge_tokens=charge.tokens,
            prices=self._prices.record if self._prices else None,
            latency=time.perf_counter() - self._began,
            first_token=None if first is None else first + meter.started - self._began,
            attempts=tuple(self._attempts),
            error=None if error is None else getattr(error, "kind", type(error).__name__),
            message=message if error is None else _words(error),
            reply=reply,
            replay=replay,
        )


def _plausible(usage: Usage | None) -> Usage | None:
    """The usage as told, unless no call can have had it."""
    if usage is None:
        return None
    most = max(usage.input, usage.output, usage.cached, usage.cache_write, usage.reasoning)
    return None if most > MOST_TOKENS else usage


def _words(error: BaseException) -> str:
    return error.message if isinstance(error, HoldfastError) else str(error) or "cancelled"
