"""Runs in a sandbox: every folder of `cases/` by plain pytest and by our runners, in forks.

Our runners are the one for a shared process and, unless `case.json` says why not, the one for two:
here those are two forks of this process, in folders of their own, joined by pipes.

Forks of one process that has loaded pytest: some fifty milliseconds each instead of a second.
Prints one line of JSON a case. Imports nothing of Holdfast.
"""

from __future__ import annotations

import hashlib
import json
import os
import runpy
import signal
import sys
import time
import unittest.mock  # noqa: F401 - loaded once for all
from collections.abc import Callable
from pathlib import Path

import pytest

PLAIN = [
    "-q", "--tb=short", "--noconftest", "-c", "/dev/null", "--rootdir", ".", "-s",
    "-p", "no:cacheprovider", "-p", "no:faulthandler", "--import-mode=append",
    "--junitxml=.plain.xml", "test_solution.py",
]  # fmt: skip
RUNNER = Path("/tmp/runner/run_tests.py")
SECONDS = float(sys.argv[1])


def plain() -> None:
    sys.path.append(os.getcwd())
    os._exit(int(pytest.main(PLAIN)))


def ours() -> None:
    read, write = os.pipe()
    given(write)
    os.close(write)
    os.dup2(read, 0)
    sys.stdin = os.fdopen(0)
    sys.path.insert(0, str(RUNNER.parent))
    sys.argv = [str(RUNNER)]
    runpy.run_path(str(RUNNER), run_name="__main__")


def given(fd: int, **more: object) -> None:
    about = {"nonce": "n", "limit": SECONDS, **more}
    os.write(fd, json.dumps(about).encode() + b"\n")


def script(name: str) -> None:
    path = RUNNER.with_name(name)
    sys.path.insert(0, str(path.parent))
    sys.argv = [str(path)]
    runpy.run_path(str(path), run_name="__main__")


def isolated(program: Path, source: str, modules: list[str]) -> Callable[[], None]:
    """The judge, in this process; the program in a child of it that lies elsewhere."""

    def run() -> None:
        to_judge, to_program = os.pipe(), os.pipe()
        given(to_program[1])
        given(to_judge[1], source=source, modules=modules)
        if os.fork() == 0:
            os.chdir(program)
            os.dup2(to_program[0], 0)
            os.dup2(to_judge[1], 2)
            for fd in (*to_judge, *to_program):
                os.close(fd)
            sys.stdin = os.fdopen(0)
            script("program.py")
            os._exit(99)
        os.dup2(to_judge[0], 0)
        os.dup2(to_program[1], 2)
        for fd in (*to_judge, *to_program):
            os.close(fd)
        script("run_isolated.py")

    return run


def forked(folder: Path, run: Callable[[], None], name: str) -> str:
    """Run it in a child in this folder; how it ended."""
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        os.chdir(folder)
        out = os.open(f"{name}.out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        try:
            run()
        except BaseException:
            sys.excepthook(*sys.exc_info())
            sys.stderr.flush()
        os._exit(99)
    ends = time.monotonic() + SECONDS
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return str(os.waitstatus_to_exitcode(status))
        if time.monotonic() > ends:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "timeout"
        time.sleep(0.005)


def text(path: Path, most: int = 1_000_000) -> str:
    return path.read_bytes().decode(errors="replace")[-most:] if path.is_file() else ""


def unsealed(folder: Path) -> str:
    seal, _, report = text(folder / ".report").partition("\n")
    return report if seal == hashlib.sha3_256(f"n{report}".encode()).hexdigest() else ""


def clean_up(folder: Path, before: set[str], files: dict[str, str]) -> None:
    """What the tests left behind is not to be there the next time."""
    for path in folder.iterdir():
        if path.name not in before and path.is_file():
            path.unlink()
    for name, whole in files.items():
        (folder / name).write_bytes(whole.encode())


sys.dont_write_bytecode = True
clean = list(sys.path)
for folder in sorted(Path("cases").iterdir()):
    about = json.loads(text(folder / "case.json") or "{}")
    sys.path[:] = clean
    packaged = "package" in about
    package = Path("packages", about["package"]).absolute() if packaged else Path()
    kept = ""
    if packaged:
        sys.path.insert(0, str(package))
        if about["bug"]:
            kept = text(package / about["bug"][0], 10**9)
            (package / about["bug"][0]).write_text(about["bug"][1])
    before = {path.name for path in folder.iterdir()}
    files = {name: text(folder / name, 10**9) for name in ("test_solution.py", "solution.py")}
    ended = forked(folder, plain, ".plain")
    xml = text(folder / ".plain.xml")
    clean_up(folder, before, files)
    ended_ours = forked(folder, ours, ".ours")
    report = unsealed(folder)
    said = text(folder / ".ours.out", 3000)
    ended_apart, apart, said_apart = "", "", ""
    if not about.get("shared"):
        clean_up(folder, before, files)
        (folder / "solution.py").unlink()
        place = Path("programs", folder.name).absolute()
        place.mkdir(parents=True)
        (place / "solution.py").write_bytes(files["solution.py"].encode())
        run = isolated(place, files["solution.py"], about.get("modules") or ["solution"])
        ended_apart = forked(folder, run, ".apart")
        apart, said_apart = unsealed(folder), text(folder / ".apart.out", 3000)
    if kept:
        (package / about["bug"][0]).write_text(kept)
    print(json.dumps({
        "name": folder.name, "plain": [ended, xml], "ours": [ended_ours, report], "said": said,
        "apart": [ended_apart, apart, said_apart],
    }), flush=True)  # fmt: skip
