"""Run a file of tests against many programs, each in a fork of this process. Copied into a sandbox.

Reads {"tests", "programs", "at_once", "seconds"} from stdin. pytest is loaded and configured once:
a fork of it is ready in a few milliseconds. The first program is the one that passes: it says how
the tests are run, and how long a run may take. The last line that is printed is JSON: for each
program whether the tests refused it, or null for those that the time did not allow.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import signal
import sys
import time
from pathlib import Path

import pytest

from holdfast.agents.code.inside.run_python import TESTS, pytest_options

PLACE = Path("/tmp/mutants")  # noqa: S108 - the sandbox's own
SLOWER = 5
"""A mutant may take so many times what the program takes; then it hangs."""
LEAST, MOST = 2.0, 20.0
NO_TESTS = 5
"""pytest's exit status for a file without tests, which is then run as a script."""


def main() -> None:
    given = json.loads(sys.stdin.readline())
    sys.dont_write_bytecode = True
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    PLACE.mkdir()
    (PLACE / TESTS).write_text(given["tests"], encoding="utf-8")
    os.chdir(PLACE)
    importlib.import_module("unittest.mock")  # once for all
    options = [*pytest_options(str(PLACE)), "-x", "--assert=plain", "--tb=no"]
    forks = Forks(given["programs"], int(given["at_once"]), float(given["seconds"]))
    status = int(pytest.main(options, plugins=[forks]))
    os._exit(status)


class Forks:
    """A pytest plugin: where tests would be collected, it forks for each program."""

    def __init__(self, programs: list[str], at_once: int, seconds: float) -> None:
        self._programs, self._at_once = programs, at_once
        self._ends = time.monotonic() + seconds
        self._found: list[bool | None] = [None] * len(programs)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool | None:
        began = time.monotonic()
        child = self._forked(0, script=False)
        if child is None:
            return None  # here the tests are run
        status, script = _waited(child), False
        if status == NO_TESTS:
            script = True
            status = _waited(self._forked(0, script=True) or 0)
        self._found[0] = status != 0
        limit = min(max(SLOWER * (time.monotonic() - began), LEAST), MOST)
        if status == 0 and not self._run_others(script, limit):
            return None
        os.write(1, f"\n{json.dumps(self._found)}\n".encode())
        os._exit(0)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            os._exit(1)  # in a child: that is all there is to know

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            os._exit(1)

    def _run_others(self, script: bool, limit: float) -> bool:
        """Run the mutants; false in a child, which is to go on and run the tests."""
        running: dict[int, tuple[int, float]] = {}
        left = iter(range(1, len(self._programs)))
        while True:
            while len(running) < self._at_once and time.monotonic() < self._ends:
                number = next(left, None)
                if number is None:
                    break
                child = self._forked(number, script)
                if child is None:
                    return False
                running[child] = (number, time.monotonic() + limit)
            if not running:
                return True
            for number, refused in _ended(running):
                self._found[number] = refused

    def _forked(self, number: int, script: bool) -> int | None:
        """The child; None if this is it. A script is run here, and that is the end of it."""
        folder = PLACE / str(number)
        folder.mkdir(exist_ok=True)
        (folder / "solution.py").write_text(self._programs[number], encoding="utf-8")
        child = os.fork()
        if child:
            return child
        os.setpgid(0, 0)
        os.chdir(folder)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        sys.path.append(str(folder))
        if not script:
            return None
        try:
            runpy.run_path(str(PLACE / TESTS), run_name="__main__")
            os._exit(0)
        finally:  # whatever was raised
            os._exit(1)


def _waited(child: int) -> int | None:
    until = time.monotonic() + MOST
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(0.002)


def _ended(running: dict[int, tuple[int, float]]) -> list[tuple[int, bool]]:
    """Those that have ended, and whether the program was refused; what hangs is."""
    found: list[tuple[int, bool]] = []
    for child, (number, until) in list(running.items()):
        done, status = os.waitpid(child, os.WNOHANG)
        late = not done and time.monotonic() > until
        if late:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
        if done or late:
            del running[child]
            found.append((number, late or os.waitstatus_to_exitcode(status) != 0))
    if not found:
        time.sleep(0.002)
    return found


if __name__ == "__main__":
    main()
