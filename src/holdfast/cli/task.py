"""A task for the code agent on the command line: start it, show how it goes, write the files."""

from __future__ import annotations

import argparse
import json
import sys
from decimal import Decimal, InvalidOperation
from pathlib import Path

from holdfast.agents.code import Evaluation, evaluate_code
from holdfast.agents.code.languages import language_named
from holdfast.agents.code.settings import load
from holdfast.cli import output
from holdfast.cli.follow import Lines, follow
from holdfast.cli.runs import ending, run_json, show_hint
from holdfast.cli.starting import silent, start
from holdfast.errors import UsageError
from holdfast.records import Run
from holdfast.runtime.client import get_run
from holdfast.runtime.client import start as start_run
from holdfast.runtime.engine import Engine


def start_task(options: argparse.Namespace) -> int:
    """Give the code agent a task."""
    settings = load()
    language = language_named(options.language or "python")
    attempts: int = options.attempts if options.attempts is not None else settings.attempts
    budget = amount(options.budget)
    if not options.what.strip():
        raise UsageError("the task is empty", hint="say what the program should do")

    async def create() -> str:
        run = await start_run(
            evaluate_code.options(key=options.key),
            options.what,
            language=language.name,
            model=options.model or settings.model,
            test_model=options.test_model or settings.test_model,
            max_attempts=attempts,
            budget=budget if budget is not None else settings.budget,
            packages=tuple(options.package or ()),
        )
        return run.id

    async def follow_task(engine: Engine, run_id: str) -> int:
        return await _follow(options, engine, run_id)

    return start(options, create, follow_task, "holdfast worker")


async def _follow(options: argparse.Namespace, engine: Engine, run_id: str) -> int:
    if options.json:
        run, journal = await follow(engine, run_id, silent)
    else:
        from holdfast.cli.progress import Progress

        output.note(run_id)
        progress = Progress(run_id)
        lines = Lines(sys.stderr, engine, progress.line)
        run, journal = await follow(engine, run_id, lines, progress.look)
    evaluation = await _evaluation(run)
    files = _write(evaluation, options.out, run) if evaluation is not None else []
    if options.json:
        output.show_json({**run_json(run, journal), "files": [str(file) for file in files]})
    elif evaluation is None:
        output.note(ending(run))
        show_hint(run, journal)
    else:
        most: int = json.loads(journal[0].value or b"{}").get("max_attempts", evaluation.attempts)
        print(await _closing(run, evaluation, most, files))
    return 0 if evaluation is not None and evaluation.passed else 1


async def _evaluation(run: Run) -> Evaluation | None:
    if run.status != "completed":
        return None
    return await (await get_run(run.id)).result()


async def _closing(run: Run, evaluation: Evaluation, most: int, files: list[Path]) -> str:
    """The last line: verdict, time, tokens, cost, files."""
    from holdfast.agents.code import demo
    from holdfast.cli.progress import costs

    verdict = (
        f"passed on attempt {evaluation.attempts} of {most}"
        if evaluation.passed
        else f"not passed after {evaluation.attempts} attempts"
    )
    took = output.duration((run.finished_at or 0.0) - (run.started_at or 0.0))
    words = [verdict, took, await costs(run.id), ", ".join(map(str, files))]
    closing = " · ".join(word for word in words if word)
    if evaluation.model == demo.MODEL:
        output.note(f"  written by {demo.WHAT_IT_IS}")
        output.note(f"  for tasks of your own, {demo.HOW_TO_GET_ONE}")
    if not evaluation.passed and evaluation.error:
        closing += f"\n{output.plain(evaluation.summary)}"
    return closing


def _write(evaluation: Evaluation, out: str | None, run: Run) -> list[Path]:
    """Write what was made: where asked for, or here, but never over other files of these names.

    What did not pass is written only where it was asked for.
    """
    if not evaluation.passed and out is None:
        return []
    contents = {evaluation.code_file: evaluation.code, evaluation.test_file: evaluation.tests}
    folder = Path(out or ".")
    if out is None and any(_differs(folder / name, text) for name, text in contents.items()):
        folder = Path(run.id)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in contents.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"the files can't be written: {error}",
            hint=f"they are in the run: holdfast runs show {run.id} --full",
        ) from error
    return [folder / name for name in contents]


def _differs(path: Path, text: str) -> bool:
    try:
        return path.read_text(encoding="utf-8") != text
    except FileNotFoundError:
        return False
    except (OSError, UnicodeDecodeError):
        return True


def amount(text: str | None) -> Decimal | None:
    """The amount of money that `--budget` gives."""
    if text is None:
        return None
    try:
        amount = Decimal(text.removeprefix("$"))
    except InvalidOperation:
        amount = Decimal(-1)
    if not amount.is_finite() or amount <= 0:
        raise UsageError(f"--budget: {text!r} is no amount", hint="in US dollars, such as 0.50")
    return amount
