"""A pytest plugin: every frozen run under `tests` is a test.

    pytest -p holdfast.ready.pytest_plugin            or, in the conftest.py at the root,
    pytest_plugins = ["holdfast.ready.pytest_plugin"]

It is not loaded by itself: a plugin of every environment that Holdfast is installed in would also
be one of the sandboxes that see this environment's packages (decision 611). Importing it is cheap,
and a JSON file that is no frozen run is left alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from holdfast.ready.frozen_runs import FrozenRun, Verdict

_BEGINNING = b'"format": "holdfast run '


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("holdfast", "frozen runs")
    group.addoption(
        "--live-tools",
        action="store_true",
        help="carry out the steps of frozen runs; their models answer as recorded",
    )
    group.addoption(
        "--candidate",
        metavar="[OLD=]MODEL",
        help="as --live-tools, with this model really asked in place of the recorded one",
    )
    parser.addini(
        "holdfast_modules",
        "files or modules that define the workflows of frozen runs that name none",
        type="linelist",
    )


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix != ".json":
        return None
    with file_path.open("rb") as file:
        if _BEGINNING not in file.read(64):
            return None
    made: FrozenFile = FrozenFile.from_parent(parent, path=file_path)  # pyright: ignore
    return made


class FrozenFile(pytest.File):
    """A file with a frozen run."""

    def collect(self) -> Iterator[pytest.Item]:
        made: FrozenItem = FrozenItem.from_parent(self, name="replays")  # pyright: ignore
        yield made


class NotAsRecorded(Exception):
    """What fails the test of a frozen run."""


class FrozenItem(pytest.Item):
    """Replays the run of its file."""

    def runtest(self) -> None:
        from holdfast.ready.frozen_runs import FrozenRun, replay_frozen, replay_live

        frozen = FrozenRun.from_text(self.path.read_text(encoding="utf-8"))
        workflow = self._workflow(frozen)
        candidate: str | None = self.config.getoption("--candidate")
        if candidate is not None or self.config.getoption("--live-tools"):
            verdict = replay_live(frozen, workflow, candidate=candidate)
        else:
            verdict = replay_frozen(frozen, workflow)
        told = _told(frozen, verdict)
        self.user_properties.append(("holdfast", told))
        self.add_report_section("call", "frozen run", told)
        if not verdict.passed:
            raise NotAsRecorded(told)

    def _workflow(self, frozen: FrozenRun) -> Any:
        from holdfast.ready.user_modules import load_module
        from holdfast.runtime.definitions import find_workflow, registered

        for named in (*frozen.modules, *self.config.getini("holdfast_modules")):
            if frozen.workflow not in registered():
                load_module(named, self.config.rootpath)
        if frozen.workflow not in registered():
            for agents in ("holdfast.agents.code.workflow", "holdfast.agents.repo.workflow"):
                importlib.import_module(agents)
        return find_workflow(frozen.workflow)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, NotAsRecorded):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, f"frozen run {self.path.name}"


def _told(frozen: FrozenRun, verdict: Verdict) -> str:
    lines = [f"{frozen.run_id} ({frozen.workflow}, {frozen.status}): {verdict.message}"]
    if verdict.difference:
        lines.append(f"first difference: {verdict.difference}")
    lines.append(f"cost: ${verdict.cost:f} (recorded: ${verdict.recorded_cost:f})")
    return "\n".join(lines)
