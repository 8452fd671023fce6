"""Asking a service for credentials: short, bounded, and never twice the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

from holdfast.errors import AuthRejected
from holdfast.gateway.accounting import Meter
from holdfast.gateway.config import Bounds, Timeouts
from holdfast.gateway.exchange import Exchange
from holdfast.gateway.http_client import HttpClient

_TIMEOUTS = Timeouts(connect=5, first_token=10, idle=10, total=15)
_BOUNDS = Bounds(reply=256 * 1024)


async def fetch(
    client: HttpClient, method: str, url: str, *, headers: Mapping[str, str], body: bytes = b""
) -> str:
    """The text of an answer; raises AuthRejected for any status but 200."""
    async with Exchange(
        client, "the source of credentials", url, headers={"Accept": "*/*", **headers}, body=body,
        meter=Meter(), timeouts=_TIMEOUTS, bounds=_BOUNDS, streams=False, method=method,
    ) as exchange:  # fmt: skip
        said = (await exchange.read()).decode("utf-8", "replace")
    if exchange.status != 200:
        raise AuthRejected(f"it answered with status {exchange.status}: {said[:200]}")
    return said


async def fetch_json(
    client: HttpClient, method: str, url: str, *, headers: Mapping[str, str], body: bytes = b""
) -> dict[str, Any]:
    """The same, as an object."""
    found: Any = json.loads(await fetch(client, method, url, headers=headers, body=body))
    if not isinstance(found, dict):
        raise ValueError("it answered with no object")
    return cast("dict[str, Any]", found)


def when(text: str) -> float:
    """A moment as these services write it, in seconds since 1970."""
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
