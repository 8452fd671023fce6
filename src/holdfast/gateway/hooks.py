"""Code of yours around every call: before it, after it, and when a budget nears its end.

    class Policy(Hook):
        async def before(self, request, tags):
            if "ssn" in request.messages[-1].text:
                raise Refused("no personal data, please")
            return request

    gateway = Gateway(hooks=[Policy()])

Hooks see the calls of the library and of the HTTP service alike; endpoints beside conversations
they see only when they have ended. A warning of a budget (`warn_at`) is given once for each of its
scopes, whichever of the processes on the store comes first, and is posted to `alerts_url` if there
is one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from decimal import Decimal

from holdfast.errors import ProviderError, StoreError
from holdfast.gateway.accounting import Meter
from holdfast.gateway.config import Bounds, Budget, GatewayConfig, Timeouts
from holdfast.gateway.exchange import Exchange
from holdfast.gateway.formats.json_fields import dumps
from holdfast.gateway.http_client import HttpClient
from holdfast.gateway.limits import limits_of, scopes_of
from holdfast.gateway.messages import Request
from holdfast.records.calls import NANO, CallEnd, CallStart
from holdfast.store.ledger import Ledger

_REMEMBERED = 400 * 86400.0
_TRIES = 3
_log = logging.getLogger("holdfast.gateway")


@dataclass(frozen=True, slots=True)
class Alert:
    """A budget of which `part` has been spent."""

    scope: str
    """Such as `team:search`, or `day:2026-01-31`."""
    part: Decimal
    """What was set as `warn_at`."""
    usd: Decimal
    tokens: int
    limit_usd: Decimal | None
    limit_tokens: int | None


class Hook:
    """Subclass it and override what you need."""

    async def before(self, request: Request, tags: tuple[str, ...]) -> Request:
        """The request to make: this one, or another; raise `holdfast.errors.Refused` for none."""
        return request

    async def after(self, start: CallStart, end: CallEnd) -> None:
        """The call is over and on record, with its cost, whether it failed or not.

        What it raises is logged: the answer is paid for, and its caller gets it.
        """

    async def alerted(self, alert: Alert) -> None:
        """A budget has reached its `warn_at`."""


class Alerts:
    """Looks at the budgets that have a `warn_at` when a call has ended, in the background."""

    def __init__(
        self,
        config: GatewayConfig,
        ledger: Ledger,
        client: HttpClient,
        tell: Callable[[Alert], Awaitable[None]],
    ) -> None:
        self._budgets = [budget for budget in config.budgets if budget.warn_at is not None]
        self._ledger, self._client, self._tell = ledger, client, tell
        self._url = config.alerts_url
        self._given: set[str] = set()
        self._looking: set[asyncio.Task[None]] = set()

    def look(self, start: CallStart) -> None:
        """Look at what this call counted against, without waiting."""
        if self._budgets:
            task = asyncio.get_running_loop().create_task(self._look(start))
            self._looking.add(task)
            task.add_done_callback(self._looking.discard)

    async def drain(self) -> None:
        """Wait for what is being looked at."""
        while self._looking:
            await asyncio.wait(list(self._looking))

    async def _look(self, start: CallStart) -> None:
        try:
            for budget in self._budgets:
                await self._check(budget, start)
        except StoreError as error:  # the next call looks again
            _log.warning("budgets could not be looked at: %s", error)

    async def _check(self, budget: Budget, start: CallStart) -> None:
        part = budget.warn_at
        assert part is not None
        for limit in limits_of(scopes_of(start, [budget]), [budget]):
            name = f"warned:{limit.scope}:{part}:{budget.usd}:{budget.tokens}"
            if name in self._given:
                continue
            spend = await self._ledger.spend(limit.scope)
            reached = (limit.usd is not None and spend.usd >= limit.usd * part) or (
                limit.tokens is not None and spend.tokens >= limit.tokens * part
            )
            if not reached:
                continue
            self._given.add(name)
            until = time.time() + _REMEMBERED
            if await self._ledger.keep(name, b"", until=until, replace=False):
                await self._give(
                    Alert(
                        limit.scope, part, Decimal(spend.usd) / NANO, spend.tokens,
                        budget.usd, budget.tokens,
                    )
                )  # fmt: skip

    async def _give(self, alert: Alert) -> None:
        _log.warning("%s has spent %s of its budget", alert.scope, f"{alert.part:.0%}")
        await self._tell(alert)
        if self._url is None:
            return
        body = dumps({
            "event": "budget.warning", "scope": alert.scope, "part": str(alert.part),
            "usd": str(alert.usd), "tokens": alert.tokens,
            "limit_usd": None if alert.limit_usd is None else str(alert.limit_usd),
            "limit_tokens": alert.limit_tokens,
        })  # fmt: skip
        why = ""
        for number in range(1, _TRIES + 1):
            try:
                async with Exchange(
                    self._client, "the receiver of alerts", self._url, body=body, meter=Meter(),
                    headers={"Content-Type": "application/json"}, streams=False,
                    timeouts=Timeouts(connect=5, first_token=10, idle=10, total=15),
                    bounds=Bounds(reply=65536),
                ) as exchange:  # fmt: skip
                    await exchange.read()
                if exchange.status < 300:
                    return
                why = f"status {exchange.status}"
            except ProviderError as error:
                why = error.message
            if number < _TRIES:
                await asyncio.sleep(0.5 * number)
        _log.warning("an alert could not be posted: %s", why)
