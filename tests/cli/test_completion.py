"""Shells complete what there is: asked of the real bash, with the real script."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from .conftest import Holdfast


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_accepts_the_script(holdfast: Holdfast, shell: str) -> None:
    script = holdfast("completion", shell)
    assert script.code == 0 and "holdfast" in script.out
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    done = subprocess.run([shell, "-n"], input=script.out, text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")
