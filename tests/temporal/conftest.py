"""Engines to run the same cases on: the local one, Temporal, and Temporal without a memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import dev_server
import pytest
from running_engine import Running


@pytest.fixture(scope="module", params=["local", "temporal", "temporal-uncached"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Running]:
    if request.param != "local":
        dev_server.shared()
    if request.param == "temporal-uncached":
        os.environ["HOLDFAST_TEMPORAL_CACHED_RUNS"] = "0"
    try:
        with Running(request.param, tmp_path_factory.mktemp("store") / "runs.db") as running:
            yield running
    finally:
        os.environ.pop("HOLDFAST_TEMPORAL_CACHED_RUNS", None)


@pytest.fixture(scope="session")
def server() -> dev_server.DevServer:
    """Temporal's dev server; outside of any loop, for it is waited for."""
    return dev_server.shared()
