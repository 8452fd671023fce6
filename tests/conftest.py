"""Fixtures that every test may use."""

import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import durations
import parts_tested
import postgres_harness
import usual_backend
from holdfast.runtime.definitions import registered
from holdfast.testing import Harness

# A shell that runs the suite in the background has Ctrl-C ignored, for all that comes of it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Where compiled modules may not be kept, each of the thousand processes that the tests start would
# compile Holdfast and its libraries anew: half of what such a process costs.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# What tests would refuse is measured where that is tested, not by every run of the code agent.
os.environ.setdefault("HOLDFAST_CODE_CHECK_TESTS", "off")

# How long an example takes is the machine's affair: with its cores busy, seconds.
settings.register_profile(
    "at any pace", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("at any pace")


def pytest_addoption(parser: pytest.Parser) -> None:
    note = "write how long each test took to tests/durations.tsv (on a quiet machine)"
    parser.addoption("--record-durations", action="store_true", help=note)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # workers inherit it
        usual_backend.choose()
    if config.getoption("--record-durations") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(DurationsRecorder())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    known = durations.read(durations.FILE.read_text())
    for item in items:
        if durations.is_slow(item.nodeid, known):
            item.add_marker("slow")


@pytest.hookimpl(tryfirst=True)  # before xdist tells what it found
def pytest_collection_finish(session: pytest.Session) -> None:
    """Long tests first, where several workers share them; what was not chosen is gone by now."""
    worker = getattr(session.config, "workerinput", None)
    if worker is not None:
        known = durations.read(durations.FILE.read_text())
        nodeids = [item.nodeid for item in session.items]
        order = durations.dealt(nodeids, known, worker["workercount"])
        session.items[:] = [session.items[place] for place in order]


class DurationsRecorder:
    """Adds up set-up, call and tear-down of each test that passed."""

    def __init__(self) -> None:
        self._taken: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.passed:
            self._taken[report.nodeid] = self._taken.get(report.nodeid, 0.0) + report.duration

    def pytest_sessionfinish(self) -> None:
        known = durations.read(durations.FILE.read_text())
        durations.FILE.write_text(durations.written(known, self._taken))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if lines := parts_tested.told(terminalreporter.stats):
        terminalreporter.section("parts tested")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture(autouse=True)
def known_workflows() -> Iterator[None]:
    """A workflow that a test defines is forgotten with it, and hides no other of its name."""
    before = dict(registered())
    yield
    registered().clear()
    registered().update(before)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    # A module with a harness of its own has chosen already.
    if "harness" in metafunc.fixturenames and not hasattr(metafunc.module, "harness"):
        kinds = postgres_harness.kinds(metafunc.function.__name__)
        metafunc.parametrize("harness", kinds, indirect=True)


@pytest.fixture
async def harness(request: pytest.FixtureRequest) -> AsyncIterator[Harness]:
    """A Holdfast of the test's own; everything must hold also if each event is a recovery."""
    replayed = request.param in (postgres_harness.REPLAYED, postgres_harness.POSTGRES_REPLAYED)
    store = postgres_harness.store_for(request.param)
    async with Harness(replay_always=replayed, store=store) as opened:
        yield opened
