"""Fixtures of the sandbox tests, for the conftest of each folder that has some."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import support


@pytest.fixture(scope="session", autouse=True)
def sandbox_state() -> Iterator[str]:
    """A state folder of this test process's own, under a short path."""
    folder = tempfile.mkdtemp(prefix="hf-")
    os.chmod(folder, 0o700)
    support.state = Path(folder)
    yield folder
    if support._host is not None:
        support._host.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=support.BACKENDS)
def backend(request: pytest.FixtureRequest, sandbox_state: str) -> str:
    """Each backend in turn; one that does not work here is skipped, with the reason."""
    support.require(request.param)
    return request.param
