"""Run a page's examples, as a reader would: `python -m docs.run_page PAGE`, in an empty folder.

Python blocks share a namespace and an event loop; console blocks share a shell. Stops at the
first example that does not do what the page says.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import linecache
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

from .blocks import Block, blocks_of, commands_of, fits

KILLED = re.compile(r"^.*line \d+: +\d+ Killed.*\n", re.MULTILINE)
"""What bash says when a job was killed; a terminal says it otherwise."""


SLOW = re.compile(r"^ *✓ prepare .*\n", re.MULTILINE)
"""A step that is told of only where it took long, which is no matter of the page."""


def _as_users_have_it() -> dict[str, str]:
    """The environment, without what the suite sets to be quicker."""
    kept = {
        name: value for name, value in os.environ.items() if name != "HOLDFAST_CODE_CHECK_TESTS"
    }
    return {**kept, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


class Shell:
    """A bash that stays open from one block to the next."""

    def __init__(self) -> None:
        self._bash = subprocess.Popen(
            ["bash", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env=_as_users_have_it(),
        )

    def run(self, command: str) -> tuple[str, int]:
        """What a command prints, and its exit code."""
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        self._bash.stdin.write(f"{command.rstrip()}\nprintf '\\n@@done %s\\n' $?\n")
        self._bash.stdin.flush()
        printed = ""
        for line in self._bash.stdout:
            if line.startswith("@@done "):
                return SLOW.sub("", KILLED.sub("", printed)), int(line.split()[1])
            printed += line
        raise AssertionError(f"the shell ended in {command!r}:\n{printed}")

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.communicate()


class Page:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._module = ModuleType("example")
        sys.modules["example"] = self._module
        self._printed = ""

    def run(self) -> None:
        os.environ["PATH"] = _as_users_have_it()["PATH"]  # for programs that start others
        shell = Shell()
        try:
            with asyncio.Runner() as runner:
                for block in blocks_of(self.path):
                    if block.runs:
                        self._run(block, shell, runner)
        finally:
            shell.close()

    def _run(self, block: Block, shell: Shell, runner: asyncio.Runner) -> None:
        place = f"{self.path.name}, line {block.line}"
        if block.file is not None:
            Path(block.file).write_text(block.text)
        elif block.language == "python":
            self._printed = self._execute(block, runner)
        elif block.language == "output":
            check(place, block.text, self._printed)
        else:
            code = 0
            for command, expected in commands_of(block):
                printed, code = shell.run(command)
                if expected:
                    check(f"{place}: $ {command}", expected, printed)
                if code != 0 and "fails" not in block.words:
                    raise AssertionError(f"{place}: $ {command}exit code {code}\n{printed}")
            if code == 0 and "fails" in block.words:
                raise AssertionError(f"{place}: the last command should have failed")

    def _execute(self, block: Block, runner: asyncio.Runner) -> str:
        # Line numbers and source as in the page, for tracebacks.
        source = "\n" * (block.line - 1) + block.text
        name = str(self.path)
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        code: CodeType = compile(source, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        body = FunctionType(code, self._module.__dict__)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            if code.co_flags & inspect.CO_COROUTINE:
                runner.run(body())
            else:
                body()  # outside the loop, so that an example may call asyncio.run itself
        return printed.getvalue()


def check(place: str, expected: str, printed: str) -> None:
    if not fits(expected, printed):
        raise AssertionError(f"{place}\n--- the page says\n{expected}--- it prints\n{printed}---")


if __name__ == "__main__":
    Page(Path(sys.argv[1])).run()
