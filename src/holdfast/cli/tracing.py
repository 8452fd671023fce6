"""Traces of what a command carries out: nothing is loaded unless a collector is named."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

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
