"""A task for the code agent on the command line: start it, show how it goes, write the files."""

from __future__ import annotations

import argparse
import json as jsonlib
import sys
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from holdfast.agents.code import Evaluation, evaluate_code
from holdfast.agents.code.languages import language_named
from holdfast.agents.code.settings import load
from holdfast.agents.code.toolchain import check_packages
from holdfast.agents.code.workflow import check_task
from holdfast.cli import output
from holdfast.cli.follow import Lines, follow
from holdfast.cli.runs import ending, run_json, show_hint
from holdfast.cli.starting import silent, start
from holdfast.errors import UsageError
from holdfast.records import Event, Run
from holdfast.runtime.app import current_engine
from holdfast.runtime.client import create_run, get_run
from holdfast.runtime.engine import Engine


def start_task(options: argparse.Namespace) -> int:
    """Give the code agent a task."""
    settings = load()
    language = language_named(options.language or "python")
    attempts: int = options.attempts if options.attempts is not None else settings.attempts
    budget = amount(options.budget) or settings.budget
    check_task(options.what, attempts)
    packages = tuple(options.package or ())
    check_packages(language, packages)
    model, test_model = options.model or settings.model, options.test_model or settings.test_model
    input: dict[str, Any] = {
        "prompt": options.what,
        "language": language.name,
        "model": model,
        "test_model": test_model,
        "max_attempts": attempts,
        "budget": None if budget is None else f"{budget:f}",
        "packages": packages,
    }
    by: list[str] = []

    async def create() -> str:
        from holdfast.agents.code.models import check_demo, check_models, choose
        from holdfast.gateway import default_gateway

        gateway = default_gateway()  # what is wrong in its configuration is said now
        if not options.detach:  # a worker elsewhere may have other models
            check_models(gateway, model, test_model)
            chosen = None if options.model else await choose(gateway, settings)
            check_demo(options.what, language.name, chosen.model if chosen else model, test_model)
            if chosen is not None:
                by.append(f"  by {chosen.model}: {chosen.because}")
        text = jsonlib.dumps(input, ensure_ascii=False).encode()
        workflow = evaluate_code.options(key=options.key)
        created = await create_run(await current_engine(), workflow, text, same_input=True)
        if created.existed:
            by.clear()
        return created.run.id

    async def follow_it(engine: Engine, run_id: str) -> int:
        if not options.json:
            output.note("\n".join([run_id, *by]))
        here = options.out or "."
        return await follow_task(engine, run_id, out=here, asked=options.out, json=options.json)

    return start(options, create, follow_it, "holdfast worker")


async def follow_task(
    engine: Engine, run_id: str, *, out: str | None, asked: str | None, json: bool
) -> int:
    """Show how a task goes until its end; write the files to `out`, or if need be elsewhere.

    Where `asked` for, they are written in any case; else only what passed, and over nothing.
    """
    if json:
        run, journal = await follow(engine, run_id, silent)
    else:
        from holdfast.cli.progress import Progress

        progress = Progress(run_id)
        lines = Lines(sys.stderr, engine, progress.line)
        run, journal = await follow(engine, run_id, lines, progress.look)
    evaluation = await _evaluation(run)
    files: list[Path] = []
    if evaluation is not None and out is not None and (evaluation.passed or asked):
        files = _write(evaluation, Path(out), run, over=asked is not None)
    if json:
        output.show_json({**run_json(run, journal), "files": [str(file) for file in files]})
    elif evaluation is None:
        output.note(ending(run))
        show_hint(run, journal)
    else:
        most = _most_attempts(journal[0], evaluation)
        print(await _closing(run, evaluation, most, files))
    return 0 if evaluation is not None and evaluation.passed else 1


def _most_attempts(created: Event, evaluation: Evaluation) -> int:
    return jsonlib.loads(created.value or b"{}").get("max_attempts", evaluation.attempts)


async def _evaluation(run: Run) -> Evaluation | None:
    if run.status != "completed":
        return None
    return await (await get_run(run.id)).result()


async def _closing(run: Run, evaluation: Evaluation, most: int, files: list[Path]) -> str:
    """The last line: verdict and its level, time, tokens, cost, files."""
    from holdfast.agents.code import demo
    from holdfast.cli.progress import costs

    verdict = (
        f"passed on attempt {evaluation.attempts} of {most}"
        if evaluation.passed
        else f"not passed after {evaluation.attempts} attempt{'s' * (evaluation.attempts != 1)}"
    )
    took = output.duration((run.finished_at or 0.0) - (run.started_at or 0.0))
    level = evaluation.level if evaluation.passed else ""
    words = [verdict, level, took, await costs(run.id), ", ".join(map(str, files))]
    closing = " · ".join(word for word in words if word)
    if evaluation.model == demo.MODEL:
        output.note(f"  written by {demo.WHAT_IT_IS} (holdfast models list: real ones)")
    if not evaluation.passed and evaluation.error:
        closing += f"\n{output.plain(evaluation.summary)}"
    return closing


def _write(evaluation: Evaluation, folder: Path, run: Run, *, over: bool) -> list[Path]:
    """Write the program and its tests; without `over`, never over other files of these names."""
    contents = {evaluation.code_file: evaluation.code, evaluation.test_file: evaluation.tests}
    if not over and any(_differs(folder / name, text) for name, text in contents.items()):
        folder = Path(run.id)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in contents.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"the files can't be written: {error}",
            hint=f"they are in the run: holdfast runs watch {run.id} --out DIR",
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
