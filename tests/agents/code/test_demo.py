"""The scripted demo model answers the tasks it knows, and none that only look like them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import open_engine, start
from holdfast.agents.code import demo, evaluate_code
from holdfast.errors import RunFailed
from sandbox import support
from sandbox.fixtures import sandbox_state
from usual_backend import VARIABLE
from waiting import LIMIT

__all__ = ["sandbox_state"]

PALINDROME = (
    "Write a function called isPalindrome that checks if a string is a valid palindrome, "
    "ignoring case and non-alphanumeric characters"
)
SUBSEQUENCE = (
    "Write a function called longestCommonSubsequence that takes two strings and returns the "
    "length of their longest common subsequence using dynamic programming"
)


@pytest.fixture(autouse=True)
async def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    monkeypatch.chdir(tmp_path)
    async with open_engine(tmp_path / "store.db"):
        yield


@pytest.mark.parametrize(
    ("task", "language", "named"),
    [
        (PALINDROME, "python", "def isPalindrome("),
        (PALINDROME, "typescript", "export function isPalindrome("),
        (SUBSEQUENCE, "python", "def longestCommonSubsequence(first: str, second: str) -> int"),
        (SUBSEQUENCE, "typescript", "export function longestCommonSubsequence("),
    ],
)
async def test_a_known_task_passes_under_the_name_it_asks_for(
    task: str, language: str, named: str
) -> None:
    run = await start(evaluate_code, task, language=language, model="scripted/demo")  # type: ignore[arg-type]
    made = await run.result()
    assert made.passed, made.error
    assert named in made.code


@pytest.mark.parametrize("language", ["python", "typescript"])
async def test_a_task_is_healed_on_gvisor_too(
    language: str, sandbox_state: str, tmp_path: Path
) -> None:
    support.require("gvisor")
    words = ["run", SUBSEQUENCE, "--language", language, "--model", "scripted/demo"]
    made = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "holdfast.cli.main", *words, "--store", "gvisor.db", "--json"],
        env={**os.environ, VARIABLE: "gvisor"},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    assert '"attempts": 2' in made.stdout  # its first answer is wrong, and the tests say so
    with contextlib.closing(sqlite3.connect(tmp_path / "gvisor.db")) as store:
        used = store.execute("SELECT DISTINCT backend FROM sandboxes").fetchall()
    assert used == [("gvisor",)]


@pytest.mark.parametrize(
    "known", demo.known_tasks(), ids=lambda known: f"{known.name}-{known.language}"
)
def test_a_task_is_known_by_its_words_and_not_by_some_of_them(known: demo.Known) -> None:
    for task in known.tasks:
        assert demo.find(task, known.language) is known
        assert demo.find(f"  {task.upper()}. ", known.language) is known
        for near in (f"{task} in reverse", f"{task}, and its length", f"do not {task}", task[:-3]):
            assert demo.find(near, known.language) is None
        assert demo.find(task, "javascript") is None


@pytest.mark.parametrize(
    "task",
    [
        "Write a function that returns the length of the longest common subsequence",
        "Write lcs(a, b), which returns its length",
        "Write isPalindrome",
        "Is 'level' a palindrome?",
        "Split text into chunks",
        "Write from_roman, which turns Roman numerals into numbers",
    ],
)
async def test_a_neighbour_of_a_known_task_is_declined_before_anything_is_prepared(
    task: str,
) -> None:
    run = await start(evaluate_code, task, language="typescript", model="scripted/demo")
    with pytest.raises(RunFailed, match="for others a real model is needed"):
        await run.result()
    assert [(step.name, step.attempts) for step in await run.steps()] == [("prepare", 1)]
