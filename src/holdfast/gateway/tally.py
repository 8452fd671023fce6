"""Keeping account of one call: what it may cost, what it did cost, and how it ended."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from holdfast.errors import BudgetExceeded, HoldfastError, ProviderError
from holdfast.gateway.meter import Meter
from holdfast.gateway.prices import NANO, PriceBook, Prices
from holdfast.gateway.reply import Usage
from holdfast.gateway.route import Candidate
from holdfast.gateway.tokens import HIDDEN, estimate
from holdfast.records import CallEnd, CallStart, CallStatus, ProviderAttempt, SpendLimit


@dataclass(frozen=True, slots=True)
class Amount:
    """Nanodollars (None: the price is unknown) and tokens."""

    usd: int | None
    tokens: int


class Tally:
    """The account of one call, attempt by attempt."""

    def __init__(
        self, start: CallStart, prices: PriceBook, default_max: int, limits: Sequence[SpendLimit]
    ) -> None:
        self.start, self.limits = start, limits
        self._book, self._default_max = prices, default_max
        self._began = time.perf_counter()
        self._candidate: Candidate | None = None
        self._prices: Prices | None = None
        self._worst = Amount(0, 0)
        self._input_bytes = 0
        self._lost = Amount(0, 0)
        """The worst case of failed attempts that may have been billed."""
        self._attempts: list[ProviderAttempt] = []
        self.held = Amount(0, 0)
        self.limited = False
        self.meter = Meter()
        self.usage = Usage()
        self.cost: int | None = None

    def worst(self, candidate: Candidate, size: tuple[int, int | None]) -> Amount:
        """What one attempt can cost at most."""
        input_bound, asked = size
        output = self._default_max if asked is None else asked
        prices = self._book.find(candidate.provider, candidate.model)
        usd = None if prices is None else prices.worst(input_bound, output)
        return Amount(usd, input_bound + output)

    def needed(self, candidate: Candidate, size: tuple[int, int | None]) -> Amount:
        """What must be held for this attempt, with what failed ones may have cost."""
        self._worst = self.worst(candidate, size)
        self._input_bytes = max(size[0] - HIDDEN, 0)
        lost, worst = self._lost, self._worst
        known = lost.usd is not None and worst.usd is not None
        usd = (lost.usd or 0) + (worst.usd or 0) if known else None
        return Amount(usd, lost.tokens + worst.tokens)

    def cap(self, size: tuple[int, int | None]) -> int | None:
        """The output cap to send where a limit needs one and the caller set none."""
        return self._default_max if self.limited and size[1] is None else None

    def begin(self, candidate: Candidate) -> None:
        """A new attempt."""
        self._candidate = candidate
        self._prices = self._book.find(candidate.provider, candidate.model)
        self.meter = Meter()

    def attempt_failed(self, error: ProviderError) -> None:
        charged: Decimal | None = None
        if error.bought:
            lost, worst = self._lost, self._worst
            usd = None
            if lost.usd is not None and worst.usd is not None:
                usd = lost.usd + worst.usd
                charged = Decimal(worst.usd) / NANO
            self._lost = Amount(usd, lost.tokens + worst.tokens)
        self._note(error, charged)

    def attempt_succeeded(self) -> None:
        self._note(None, None)
        self.usage = self.meter.usage or self._estimated()
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

    def completed(self, reply: str | None, replay: bytes | None) -> CallEnd:
        return self._end(
            "completed",
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
        """Ended from our side; once sent, it counts in full: nobody knows what was billed."""
        charge = self._lost
        if self.meter.sent:
            worst = self._worst
            known = charge.usd is not None and worst.usd is not None
            usd = (charge.usd or 0) + (worst.usd or 0) if known else None
            charge = Amount(usd, charge.tokens + worst.tokens)
            self._partial()
            self._note(None, None if worst.usd is None else Decimal(worst.usd) / NANO)
        return self._end("interrupted", charge=charge, error=error)

    def _partial(self) -> None:
        """What is known of the spend of an answer that never became whole."""
        known = self.meter.usage
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
            prices=self._prices.as_record() if self._prices else None,
            latency=time.perf_counter() - self._began,
            first_token=None if first is None else first + meter.started - self._began,
            attempts=tuple(self._attempts),
            error=None if error is None else getattr(error, "kind", type(error).__name__),
            message=None if error is None else _words(error),
            reply=reply,
            replay=replay,
        )


def _words(error: BaseException) -> str:
    return error.message if isinstance(error, HoldfastError) else str(error) or "cancelled"
