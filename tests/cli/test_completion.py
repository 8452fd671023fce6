"""Shells complete what there is: asked of the real shells, with the real scripts."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from waiting import LIMIT

from .conftest import Holdfast

LINES = pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("holdfast ru", ["run", "runs"]),
        ("holdfast runs ca", ["cancel"]),
        ("holdfast runs list --wor", ["--workflow"]),
        ("holdfast run task --dev", []),
        ("holdfast run task --det", ["--detach"]),
        ("holdfast completion f", ["fish"]),
    ],
)


@LINES
def test_bash_completes_commands_verbs_and_options(
    holdfast: Holdfast, line: str, expected: list[str]
) -> None:
    script = holdfast("completion", "bash").out
    words = line.split()
    ask = f"""{script}
COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _holdfast
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True)
    assert done.stdout.split() == expected


@LINES
def test_fish_completes_commands_verbs_and_options(
    holdfast: Holdfast, tmp_path: Path, line: str, expected: list[str]
) -> None:
    if shutil.which("fish") is None:
        pytest.skip("no fish here: apt-get install fish (make test does, as root or with sudo)")
    script = tmp_path / "holdfast.fish"
    script.write_text(holdfast("completion", "fish").out)
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"source {script}; complete -C '{line}'"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    assert [found.split("\t")[0] for found in done.stdout.splitlines()] == expected


class Zsh:
    """A zsh at a terminal, which has read the script: its completion works nowhere else."""

    def __init__(self, folder: Path, script: str) -> None:
        (folder / "holdfast.zsh").write_text(script)
        environment = {**os.environ, "TERM": "dumb", "HOME": str(folder), "ZDOTDIR": str(folder)}
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.chdir(folder)
            os.execvpe("zsh", ["zsh", "-f", "-i"], environment)
        self.type("PS1=; source holdfast.zsh; echo rea''dy\n", "ready\r\n")

    def type(self, keys: str, until: str) -> str:
        """What the terminal shows once `until` is part of it."""
        os.write(self._terminal, keys.encode())
        shown = ""
        while until not in shown:
            ready, _, _ = select.select([self._terminal], [], [], LIMIT)
            assert ready, f"{until!r} is not shown, but {shown!r}"
            shown += os.read(self._terminal, 65536).decode(errors="replace")
        return shown

    def close(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._terminal)


def test_zsh_completes_commands_verbs_and_options(holdfast: Holdfast, tmp_path: Path) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("no zsh here: apt-get install zsh (make test does, as root or with sudo)")
    zsh = Zsh(tmp_path, holdfast("completion", "zsh").out)
    try:
        for typed, expected in [
            ("holdfast runs ca\t", "runs cancel "),
            ("holdfast runs list --wor\t", "--workflow "),
            ("holdfast run task --det\t", "--detach "),
            ("holdfast completion f\t", "completion fish "),
        ]:
            assert "holdfast:" not in zsh.type(typed, expected)
            zsh.type("\x15echo do''ne\n", "done\r\n")
    finally:
        zsh.close()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_accepts_the_script(holdfast: Holdfast, shell: str) -> None:
    script = holdfast("completion", shell)
    assert script.code == 0 and "holdfast" in script.out
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    done = subprocess.run([shell, "-n"], input=script.out, text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")
