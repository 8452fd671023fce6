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
from holdfast.gateway.config import Bounds, GatewayConfig, Timeouts
from holdfast.gateway.exchange import Exchange
from holdfast.gateway.formats.json_fields import dumps
from holdfast.gateway.http_client import HttpClient
from holdfast.gateway.limits import limits_of, scopes_of
from holdfast.gateway.messages import Request
from holdfast.records.calls import NANO, CallEnd, CallStart, SpendLimit
from holdfast.store.ledger import Ledger

_REMEMBERED = 400 * 86400.0
_TRIES = 3
_FRESH = 5.0
_SCOPES = 10_000
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


WARNED = ("user", "team", "key", "tag")
"""The kinds of scopes that have limits of their own in the store."""


async def set_warn_at(ledger: Ledger, scope: str, part: Decimal | None) -> None:
    """Warn once when that part of the scope's own limit is spent; None: don't."""
    told = b"" if part is None else str(part).encode()
    await ledger.keep(f"warn_at:{scope}", told, until=time.time() + _REMEMBERED)


async def warn_at(ledger: Ledger, scope: str) -> Decimal | None:
    """What was set for this scope."""
    told = await ledger.kept(f"warn_at:{scope}")
    return Decimal(told.decode()) if told else None


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
        self._set: dict[str, tuple[float, Decimal | None]] = {}
        """By scope: when it was looked for what `set_warn_at` set, and what was found."""
        self._looking: set[asyncio.Task[None]] = set()

    def look(self, start: CallStart) -> None:
        """Look at what this call counted against, without waiting."""
        if self._budgets or start.api_key or start.tags:
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
                part = budget.warn_at
                assert part is not None
                for limit in limits_of(scopes_of(start, [budget]), [budget]):
                    await self._check(limit, part)
            for scope in scopes_of(start, ()):
                if scope.partition(":")[0] in WARNED:
                    part = await self._set_part(scope)
                    limit = None if part is None else (await self._ledger.spend(scope)).limit
                    if part is not None and limit is not None:
                        await self._check(limit, part)
        except StoreError as error:  # the next call looks again
            _log.warning("budgets could not be looked at: %s", error)

    async def _set_part(self, scope: str) -> Decimal | None:
        """The part at which a warning was set for this scope, as of a few seconds ago."""
        looked, part = self._set.get(scope, (-_FRESH, None))
        if time.monotonic() - looked >= _FRESH:
            part = await warn_at(self._ledger, scope)
            if len(self._set) >= _SCOPES:
                self._set.clear()
            self._set[scope] = (time.monotonic(), part)
        return part

    async def _check(self, limit: SpendLimit, part: Decimal) -> None:
        usd = None if limit.usd is None else Decimal(limit.usd) / NANO
        shown = None if usd is None else f"{usd.normalize():f}"
        name = f"warned:{limit.scope}:{part.normalize():f}:{shown}:{limit.tokens}"
        if name in self._given:
            return
        spend = await self._ledger.spend(limit.scope)
        reached = (limit.usd is not None and spend.usd >= limit.usd * part) or (
            limit.tokens is not None and spend.tokens >= limit.tokens * part
        )
        if not reached:
            return
        self._given.add(name)
        until = time.time() + _REMEMBERED
        if await self._ledger.keep(name, b"", until=until, replace=False):
            spent = Decimal(spend.usd) / NANO
            await self._give(Alert(limit.scope, part, spent, spend.tokens, usd, limit.tokens))

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
