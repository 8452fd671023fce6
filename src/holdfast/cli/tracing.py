"""What a command tells others of runs: traces and alerts; nothing is loaded unless it is wanted."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from holdfast import config
from holdfast.runtime.engine import Engine


@asynccontextmanager
async def tracing(engine: Engine) -> AsyncGenerator[None]:
    """Send the traces of runs to where the standard variables say, while this is open."""
    if not any(name.startswith("OTEL_EXPORTER_OTLP_") for name in os.environ):
        yield
        return
    from holdfast.server.trace_export import exporting

    async with exporting(engine):
        yield


@asynccontextmanager
async def telling_others(engine: Engine) -> AsyncGenerator[None]:
    """Send the alerts that the configuration asks for, while this is open."""
    if not config.read().get("alerts"):
        yield
        return
    from holdfast.server.alerts import alerting

    async with alerting(engine):
        yield
