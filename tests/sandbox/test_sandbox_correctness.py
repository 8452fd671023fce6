"""What a program does inside equals what it does outside, to the byte."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.programs import FILES, Program, programs
from sandbox.support import create, require
from waiting import LIMIT

ALL = programs()
PYTHON = os.path.realpath(getattr(sys, "_base_executable", sys.executable))


def _plain(data: bytes, cwd: str, python: str, prefix: str) -> bytes:
    """The same words for what must differ: where the program and the interpreter lie."""
    data = data.replace(cwd.encode(), b"<cwd>").replace(python.encode(), b"<python>")
    data = data.replace(f"{prefix}/".encode(), b"<prefix>/")
    data = re.sub(rb"<prefix>/bin/python[\d.]*", b"<python>", data)
    data = re.sub(rb"^python: ", b"<python>: ", data)
    # A forked interpreter has a few frames of ours below the program's.
    data = re.sub(rb"repeated \d+ more times", b"repeated often", data)
    data = re.sub(rb"at 0x[0-9a-f]+", b"at 0x", data)
    data = re.sub(rb"\d+ - - \[[^\]]+\]", b"- - []", data)
    return re.sub(rb"Ran (\d+) tests? in [\d.]+s|in [\d.]+s", rb"in 0s", data)


def _as_usual() -> None:
    """As a program is started by hand, whoever runs these tests, and without leaving cores."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("program", ALL, ids=lambda p: p.name.replace(" ", "-"))
async def test_a_program_behaves_inside_as_outside(program: Program, tmp_path: Path) -> None:
    require("namespace")
    files = {**FILES, **program.files, "main.py": program.source}
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    words = [*program.how, *program.arguments]
    env = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path / "home"),
        "LC_CTYPE": "C.UTF-8",
        "USER": "user",
    }
    outside = subprocess.run(
        [PYTHON, *words],
        cwd=tmp_path,
        env=env,
        input=program.stdin.encode(),
        capture_output=True,
        timeout=LIMIT,
        preexec_fn=_as_usual,
    )
    async with await create() as sandbox:
        await sandbox.write_files(files)
        inside = await sandbox.run("python", *words, stdin=program.stdin, timeout=60)
        executable = (
            await sandbox.run("sh", "-c", "readlink -f $(command -v python)")
        ).stdout.strip()
    code = -inside.signal if inside.signal else inside.exit_code
    here = str(tmp_path)
    expected = [_plain(x, here, PYTHON, sys.base_prefix) for x in (outside.stdout, outside.stderr)]
    prefix = executable.rsplit("/bin/", 1)[0]
    got = [
        _plain(
            _plain(x, "/workspace", "/opt/holdfast/bin/python", prefix),
            "/workspace",
            executable,
            prefix,
        )
        for x in (inside.stdout_bytes, inside.stderr_bytes)
    ]
    assert got[1] == expected[1]
    assert got[0] == expected[0]
    assert code == outside.returncode


def test_there_are_a_few_hundred_programs() -> None:
    assert len(ALL) >= 250 and len({program.name for program in ALL}) == len(ALL)


async def test_pytest_runs_and_reports_as_it_does_outside() -> None:
    async with await create() as sandbox:
        await sandbox.write_files(FILES)
        result = await sandbox.run("python", "-m", "pytest", "-q", "test_small.py")
    assert result.exit_code == 1
    assert "1 failed, 1 passed" in result.stdout and "assert [1] == [2]" in result.stdout


@pytest.mark.parametrize(
    ("source", "code", "out", "err"),
    [
        ("console.log('ü', [1, {a: 2}])", 0, "ü [ 1, { a: 2 } ]\n", ""),
        ("process.exit(9)", 9, "", ""),
        ("throw new TypeError('no')", 1, "", "TypeError: no"),
        ("Promise.reject(new Error('later'))", 1, "", "Error: later"),
        ("setTimeout(() => console.log('tick'), 20)", 0, "tick\n", ""),
        ("process.stdin.on('data', d => process.stdout.write(d))", 0, "typed", ""),
        (
            "const fs = require('fs'); fs.writeFileSync('f', 'x'); console.log(fs.readFileSync('f', 'utf8'))",
            0,
            "x\n",
            "",
        ),
        (
            "const {execSync} = require('child_process'); console.log(execSync('echo sub').toString())",
            0,
            "sub\n\n",
            "",
        ),
        ("new (require('worker_threads').Worker)('console.log(1)', {eval: true})", 0, "1\n", ""),
        (
            "console.log(require('crypto').createHash('sha256').update('x').digest('hex').slice(0, 8))",
            0,
            "2d711642\n",
            "",
        ),
        ("function f() { f() } f()", 1, "", "RangeError"),
        ("console.log(typeof fetch, typeof structuredClone)", 0, "function function\n", ""),
    ],
)
async def test_node_programs_behave(source: str, code: int, out: str, err: str) -> None:
    async with await create() as sandbox:
        await sandbox.write_files({"main.js": source})
        result = await sandbox.run("node", "main.js", stdin="typed")
    assert (result.exit_code, result.stdout) == (code, out), result.stderr
    assert err in result.stderr
