"""What a run is about, in a few words; and what it cost, however many calls it made."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.agents.run_words import about
from holdfast.cli.run_text import about_runs
from seeding import Seed


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ('{"task": "Write\\n  it", "model": "a/b"}', "Write it"),
        ('{"order": 7, "to": "ada", "note": null}', "order=7  to=ada"),
        ("[1]", "[1]"),
        ('{"ticket": {"customer": "ada", "text": "It broke.\\nSorry"}}', "It broke. Sorry"),
        ("", ""),
        ('{"order": 7, "text": "cut o', "order : 7, text : cut o"),
    ],
)
def test_the_task_or_the_arguments_tell_runs_apart(given: str, words: str) -> None:
    assert about({}, given.encode()) == words


def test_all_calls_of_a_run_are_summed(tmp_path: Path) -> None:
    seed = Seed(tmp_path / "a.db")
    run = seed.run("flow", 60, {"task": "count"})
    for _ in range(1100):
        seed.call("a/b", seed.now - 30, 0.1, (5, 5), 0.001, run=run)
    seed.close()
    seed.let_go()
    found = asyncio.run(about_runs(tmp_path / "a.db", [run.id]))[run.id]
    assert found.spent.calls == 1100
    assert found.cost_text == "$1.100"
