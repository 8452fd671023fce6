"""`make suites`: the test suites of real packages, outside and in a sandbox, test by test.

    python -m sandbox.package_suites [--backend gvisor] [PACKAGE …]

Each package's newest source distribution is fetched from the index that pip is set up with, and its
whole suite is run twice by the same interpreter with the same pytest and nothing else installed: as a
plain process, and in a sandbox. Every test must come out the same. Nothing of theirs is kept.

Prints a line for each, and exits with 1 if any test differs or if there was nothing to compare.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from agents.code.parity import sources
from holdfast.sandbox import Host, Sandbox, runtimes

PACKAGES = (
    "cachetools", "colorama", "h11", "hyperframe", "inflection", "iniconfig",
    "markupsafe", "munch", "parse", "pathspec", "schema", "semver", "simplejson", "termcolor", "toolz",
)  # fmt: skip
"""Whose suites need nothing but pytest, and which together use files, processes, threads, locales,
time zones, sockets, terminals, warnings and every corner of the language."""
_REPORT = "holdfast-report.xml"
_PYTEST = (
    "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts=", "-o", "pythonpath=src .",
    f"--junitxml={_REPORT}",
)  # fmt: skip
"""No variable of Python's says any of this: then a sandbox would start an interpreter for it, and
what is compared is the one that it forks."""
_SECONDS = 600.0


@dataclass(frozen=True)
class Outcome:
    """What pytest said of a suite: how it exited, and what became of each test."""

    exit_code: int | None
    tests: dict[str, str]
    said: str

    @classmethod
    def read(cls, exit_code: int | None, report: bytes, said: str) -> Outcome:
        tests: dict[str, str] = {}
        for case in ElementTree.fromstring(report).iter("testcase") if report else ():
            name = f"{case.get('classname')}::{case.get('name')}"
            kinds = [each.tag for each in case if each.tag in ("failure", "error", "skipped")]
            tests[name] = kinds[0] if kinds else "passed"
        return cls(exit_code, tests, said[-2000:])


@dataclass
class Comparison:
    """A suite outside and inside."""

    outside: Outcome
    inside: Outcome
    differing: list[str] = field(init=False)

    def __post_init__(self) -> None:
        names = sorted(self.outside.tests.keys() | self.inside.tests.keys())
        pairs = [(n, self.outside.tests.get(n), self.inside.tests.get(n)) for n in names]
        self.differing = [
            f"{n}: {one} outside, {two} inside" for n, one, two in pairs if one != two
        ]
        if self.outside.exit_code != self.inside.exit_code:
            self.differing.append(
                f"exit {self.outside.exit_code} outside, {self.inside.exit_code} inside"
            )

    @property
    def passed(self) -> int:
        return list(self.outside.tests.values()).count("passed")


class Outside:
    """An interpreter as sandboxes have it, with the very packages they have, but no sandbox."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=False)
        self._python = folder / "bin/python"
        (packages,) = folder.glob("lib/python*/site-packages")
        (packages / "as_inside.pth").write_text(runtimes.find(folder / "state").packages + "\n")

    def run(self, suite: Path) -> Outcome:
        """The suite as a plain process, in a copy of its own."""
        with tempfile.TemporaryDirectory(prefix="hf-suite-") as home:
            place = shutil.copytree(suite, Path(home, "suite"), symlinks=True)
            env = {"PATH": "/usr/bin:/bin", "HOME": home, "TMPDIR": home, "LC_CTYPE": "C.UTF-8"}
            done = subprocess.run(
                [self._python, *_PYTEST], cwd=place, env=env, stdin=subprocess.DEVNULL,
                capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False,
            )  # fmt: skip
            raw = (place / _REPORT).read_bytes() if (place / _REPORT).exists() else b""
        return Outcome.read(done.returncode, raw, done.stdout + done.stderr)


async def run_inside(suite: Path, backend: str, host: Host) -> Outcome:
    """The suite in a sandbox that starts from its folder."""
    async with await Sandbox.create(
        source=suite, backend=backend, host=host, timeout=_SECONDS, memory="1gb"  # type: ignore[arg-type]
    ) as sandbox:  # fmt: skip
        done = await sandbox.run("python", *_PYTEST, timeout=_SECONDS - 10)
        raw = await sandbox.read_file(_REPORT) if await sandbox.exists(_REPORT) else b""
        return Outcome.read(done.exit_code, raw, done.stdout + done.stderr)


def unpack(package: str, folder: Path) -> Path:
    """Where the package's files are; raises OutOfReach if the index does not answer."""
    with tarfile.open(fileobj=io.BytesIO(sources.newest(package)), mode="r:gz") as archive:
        archive.extractall(folder / package, filter="data")
    (top,) = (folder / package).iterdir()
    return top


async def main() -> int:
    told = argparse.ArgumentParser(description=__doc__)
    told.add_argument("packages", nargs="*", metavar="PACKAGE")
    told.add_argument("--backend", action="append", choices=("namespace", "gvisor"))
    asked = told.parse_args()
    wrong = compared = 0
    with tempfile.TemporaryDirectory(prefix="hf-") as place:
        folder = Path(place)
        outside, host = Outside(folder / "venv"), Host(folder / "state", pool=0)
        backends: list[str] = []
        for backend in asked.backend or ("namespace", "gvisor"):
            probe = (await host.probe(backend)).probe
            if probe.works:
                backends.append(backend)
            else:
                print(f"{backend}: NOT TESTED here: {probe.reason}")
        try:
            for package in asked.packages or PACKAGES:
                suite = await asyncio.to_thread(unpack, package, folder / "sources")
                plain = await asyncio.to_thread(outside.run, suite)
                for backend in backends:
                    both = Comparison(plain, await run_inside(suite, backend, host))
                    print(
                        f"{package}: {len(plain.tests)} tests, {both.passed} pass, "
                        f"{len(both.differing)} differ in {backend}",
                        flush=True,
                    )
                    for each in both.differing[:10]:
                        print(f"  {each}")
                    if both.differing or not both.passed:
                        print(plain.said, both.inside.said, sep="\n--- inside\n")
                    wrong += len(both.differing) or not both.passed
                    compared += len(plain.tests)
        finally:
            await host.aclose()
    print(f"{compared} tests compared, {wrong} came out otherwise")
    return 1 if wrong or not compared else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
