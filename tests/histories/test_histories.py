"""Old runs must replay: journals recorded by earlier versions, on the code of today."""

from __future__ import annotations

from pathlib import Path

import pytest

from crash.workflows import WORKFLOWS
from histories.export import from_json, to_json
from holdfast import NonDeterminismError
from holdfast.records import COMMANDS, RUN_COMPLETED, RUN_STARTED, STEP_STARTED, Event
from holdfast.runtime import guard
from holdfast.runtime.commands import same_json
from holdfast.runtime.replay import Completed, Execution

guard.install()  # as a worker does: as_completed in a known order

HISTORIES = sorted(Path(__file__).parent.glob("*.json"))


def journal_of(path: Path) -> list[Event]:
    return from_json(path.read_text())


def replayed(path: Path, journal: list[Event]) -> Execution:
    workflow, _arguments = WORKFLOWS[path.stem.partition("_")[0]]
    began_at = next((event.at for event in journal if event.type == RUN_STARTED), journal[0].at)
    execution = Execution(workflow, journal, began_at)
    execution.replay()
    return execution


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_a_recorded_history_replays_to_its_recorded_end(path: Path) -> None:
    journal = journal_of(path)
    assert journal[-1].type == RUN_COMPLETED
    execution = replayed(path, journal)
    try:
        assert execution.issued == [], "nothing is asked for that was not recorded"
        assert isinstance(execution.outcome, Completed)
        assert same_json(execution.outcome.result, journal[-1].value)
    finally:
        execution.close()


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_every_part_of_a_recorded_history_replays_and_asks_for_what_came_next(path: Path) -> None:
    journal = journal_of(path)
    for length in range(2, len(journal)):
        execution = replayed(path, journal[:length])
        try:
            later = {event.key for event in journal[length:] if event.type in COMMANDS}
            asked = {command.key for command in execution.issued if command.key in later}
            assert len(asked) == len(execution.issued), "what it asks for was recorded later"
        finally:
            execution.close()


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_a_history_of_other_code_does_not_replay(path: Path) -> None:
    journal = journal_of(path)
    place = next(n for n, event in enumerate(journal) if event.type == STEP_STARTED)
    journal[place] = journal[place]._replace(meta='{"name": "something else"}')
    with pytest.raises(NonDeterminismError, match="something else"):
        replayed(path, journal).close()


def test_a_history_comes_back_from_its_file_as_it_was() -> None:
    text = HISTORIES[0].read_text()
    assert to_json(from_json(text)) == text
