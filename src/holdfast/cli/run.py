"""`holdfast run`: give the code agent a task, or run a workflow of your own; and follow it.

`start` creates any kind of run on the engine and follows it, or leaves it to a worker; what is
particular to a kind (how it is created, how it is shown) is handed to it. `holdfast repo` uses it
as well.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json as json_text
import re
import sys
from collections.abc import Awaitable, Callable, Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, get_args

from holdfast import config
from holdfast.agents.code import Evaluation, evaluate_code
from holdfast.agents.code.languages import language_named
from holdfast.agents.code.records import TestCheck
from holdfast.agents.code.toolchain import check_packages
from holdfast.agents.code.workflow import check_task
from holdfast.agents.settings import PROFILE, code_settings
from holdfast.cli import output
from holdfast.cli.config import check_configuration
from holdfast.cli.options import add_common, add_engine, parse_object, store_name
from holdfast.cli.progress import CODE, Progress, Watcher, costs, follow, tell_sandboxes
from holdfast.cli.run_text import ending, exit_code, run_json, show_hint
from holdfast.cli.tracing import tracing
from holdfast.cli.workflow_files import load_workflow
from holdfast.durations import seconds
from holdfast.errors import CodecError, UsageError
from holdfast.records import Event, Run
from holdfast.runtime.app import current_engine, open_engine
from holdfast.runtime.client import create_run, get_run, start_by_name
from holdfast.runtime.engine import Engine
from holdfast.store.base import KeyPolicy

_WORKFLOW = re.compile(r"[\w./~-]+:\w+|\S+\.py")
"""FILE.py:WORKFLOW or MODULE:WORKFLOW; a lone file is one whose workflow was forgotten."""
_OF_TASKS = (
    "language", "model", "test_model", "attempts", "budget", "package", "out", "check_tests",
    "min_score", "cross_check", "evidence",
)  # fmt: skip


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "what",
        metavar="TASK | FILE.py:WORKFLOW",
        help="a task in plain English for the code agent; or one of your workflows "
        "(MODULE:WORKFLOW as well)",
    )
    task = parser.add_argument_group("a task")
    task.add_argument("--language", metavar="NAME", help="python (default), typescript, javascript")
    task.add_argument("--model", metavar="PROVIDER/MODEL", help="writes the program")
    task.add_argument(
        "--test-model", metavar="PROVIDER/MODEL", help="writes the tests (default: the same)"
    )
    task.add_argument("--attempts", type=int, metavar="N", help="at most so many rounds (3)")
    task.add_argument("--budget", metavar="USD", help="the most that the run may spend")
    task.add_argument(
        "--package",
        action="append",
        metavar="NAME",
        help="a package the program may use; may be repeated",
    )
    task.add_argument("--out", metavar="DIR", help="where to write the program and its tests")
    task.add_argument(
        "--check-tests",
        choices=get_args(TestCheck),
        metavar="LEVEL",
        help="whether tests that pass would refuse wrong programs: off, quick (default), thorough",
    )
    task.add_argument(
        "--min-score",
        type=float,
        metavar="SHARE",
        help="pass only if the tests refuse this share of wrong programs, 0 to 1",
    )
    task.add_argument(
        "--cross-check",
        metavar="PROVIDER/MODEL",
        help="writes a second program, with which the first is compared",
    )
    task.add_argument(
        "--evidence",
        metavar="DIR",
        help="write programs, tests, verdicts and hashes there, for `holdfast verify DIR`",
    )
    own = parser.add_argument_group("a workflow")
    own.add_argument(
        "--input",
        metavar="JSON",
        help="the arguments, as an object; @FILE reads a file, - reads stdin",
    )
    parser.add_argument("--key", help="start at most one run with this key; return it if it exists")
    own.add_argument(
        "--key-policy",
        choices=get_args(KeyPolicy),
        default="return",
        metavar="POLICY",
        help=f"what if there is a run with the key: {', '.join(get_args(KeyPolicy))} (return)",
    )
    parser.add_argument(
        "--profile",
        metavar="NAME",
        help="whose [code] and [repo] settings the agents in this run take, here or at a worker",
    )
    parser.add_argument(
        "--timeout",
        metavar="DURATION",
        help="how long the run may take in all, waits included: 90s, 15m, 2h",
    )
    parser.add_argument(
        "--detach", action="store_true", help="print the run's id and leave it to a worker"
    )
    add_engine(parser)
    add_common(parser, _run)


def _run(options: argparse.Namespace) -> int:
    if _WORKFLOW.fullmatch(options.what):
        for name in _OF_TASKS:
            if getattr(options, name) is not None:
                raise UsageError(
                    f"--{name.replace('_', '-')} is for tasks, and {options.what} is a workflow",
                    hint="hand its arguments over with --input",
                )
        return start_workflow(options)
    if options.input is not None:
        raise UsageError(
            "--input is for workflows, and this is a task",
            hint="a workflow is named as FILE.py:WORKFLOW",
        )
    return start_task(options)


Create = Callable[[], Awaitable[str]]
"""Starts the run (or finds the one with the key) on the engine that is open; its id."""
Follow = Callable[[Engine, str], Awaitable[int]]
"""Shows how a run goes until it ends; the exit code."""


# --- any run ---


def start(options: argparse.Namespace, create: Create, follow: Follow, worker: str) -> int:
    """Start a run as the options say; `worker` is the command that carries it out."""
    check_configuration()
    started: list[str] = []
    command = f"{worker}{store_option(options)}"
    try:
        if options.detach:
            return asyncio.run(_detached(options, create, command))
        return asyncio.run(_followed(options, create, follow, started))
    except KeyboardInterrupt:
        _say_how_to_come_back(options, started, command)
        raise


async def _detached(options: argparse.Namespace, create: Create, command: str) -> int:
    async with open_engine(store_name(options), worker=False) as engine:
        run_id = await create()
        run = await engine.store.get(run_id)
        now = engine.clock.now()
        alive = [each for each in await engine.store.workers() if each.expires_at > now]
    if options.json:
        shown = run.as_json() if run else {}
        output.show_json({**shown, "workers": [each.id for each in alive]})
        return 0
    print(run_id)
    if run is not None and run.ended:
        output.note(f"it has {run.status} already")
    elif alive:
        names = ", ".join(f"{each.id} (pid {each.pid})" for each in alive[:3])
        output.note(f"carried out by a worker that knows its workflow; alive: {names}")
    else:
        output.note(f"no worker is alive, so nothing happens until one is: {command}")
    return 0


async def _followed(
    options: argparse.Namespace, create: Create, follow: Follow, started: list[str]
) -> int:
    async with (
        open_engine(store_name(options), engine=options.engine) as engine,
        tracing(engine),
    ):
        run_id = await create()
        started.append(run_id)
        return await follow(engine, run_id)


def _show_end(options: argparse.Namespace, run: Run, journal: list[Event]) -> None:
    if options.json:
        output.show_json(run_json(run, journal))
        return
    output.note(ending(run))
    if run.status == "completed":
        output.show_json(json_text.loads(journal[-1].value or b"null"))
    else:
        show_hint(run, journal)


def _say_how_to_come_back(options: argparse.Namespace, started: list[str], command: str) -> None:
    if not started:
        return
    run_id, store = started[0], store_option(options)
    if options.json:
        output.show_json({"detached": run_id})
        return
    output.note(f"\ndetached: {run_id} is kept, and goes on when a worker runs")
    output.note(f"  go on    {command}")
    output.note(f"  watch    holdfast runs watch {run_id}{store}")
    output.note(f"  stop it  holdfast runs cancel {run_id}{store}")


def _attributes(options: argparse.Namespace) -> dict[str, Any]:
    return {} if options.profile is None else {PROFILE: config.check_profile(options.profile)}


def tell_start(options: argparse.Namespace, run_id: str, *by: str) -> None:
    """Name the run that is followed, where it is kept, and what carries it out."""
    if not options.json:
        output.note("\n  ".join([f"{run_id}  in {store_name(options)}", *by]))


def store_option(options: argparse.Namespace) -> str:
    """The option that leads another command to the same store."""
    return "" if options.store is None else f" --store {store_name(options)}"


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


def time_limit(text: str | None) -> float | None:
    """The seconds that `--timeout` gives."""
    if text is None:
        return None
    found = seconds(text)
    if found <= 0:
        raise UsageError(f"--timeout: {text!r} is no time to run", hint="such as 90s, 15m or 2h")
    return found


# --- a workflow of the user's ---


def start_workflow(options: argparse.Namespace) -> int:
    """Start a run of one of the user's workflows."""
    place = options.what.rpartition(":")[0]

    async def create() -> str:
        workflow = load_workflow(options.what)
        input = json_text.dumps(dict(parse_object(options.input or "{}", "--input"))).encode()
        try:
            handle = await start_by_name(
                workflow.name,
                input,
                key=options.key,
                attributes=_attributes(options),
                key_policy=options.key_policy,
                timeout=time_limit(options.timeout),
            )
        except CodecError as error:
            expected = f"{workflow.name}{inspect.signature(workflow.function)}"
            raise UsageError(f"--input: {error.message}", hint=f"it is {expected}") from error
        return handle.id

    async def follow_workflow(engine: Engine, run_id: str) -> int:
        tell_start(options, run_id)
        watcher = Watcher() if options.json else Progress(sys.stderr, engine, run_id)
        run, journal = await follow(engine, run_id, watcher)
        if not options.json:
            await tell_sandboxes(run_id)
        _show_end(options, run, journal)
        return exit_code(run)

    return start(options, create, follow_workflow, f"holdfast worker {place}")


# --- a task for the code agent ---


def start_task(options: argparse.Namespace) -> int:
    """Give the code agent a task."""
    settings = code_settings(options.profile)
    language = language_named(options.language or "python")
    attempts: int = options.attempts if options.attempts is not None else settings.attempts
    budget = amount(options.budget) or settings.budget
    min_score: float | None = options.min_score
    check_task(options.what, attempts, min_score)
    if min_score is not None and (options.check_tests or settings.check_tests) == "off":
        raise UsageError("--min-score needs --check-tests quick or thorough")
    limit = time_limit(options.timeout)
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
        "check_tests": options.check_tests,
        "min_score": min_score,
        "cross_check": options.cross_check,
    }
    by: list[str] = []

    async def create() -> str:
        # Not with the command: they bring the gateway along, which help and usage can do without.
        from holdfast.agents.code.demo import check_demo, check_models, choose_or_demo
        from holdfast.gateway import default_gateway

        gateway = default_gateway()  # what is wrong in its configuration is said now
        if not options.detach:  # a worker elsewhere may have other models
            check_models(gateway, model, test_model, options.cross_check)
            chosen = None if options.model else await choose_or_demo(gateway, settings)
            check_demo(options.what, language.name, chosen.model if chosen else model, test_model)
            if chosen is not None:
                by.append(f"by {chosen.model}: {chosen.because}")
            else:
                by.append(f"by {model}: named for this run")
            if test_model not in (None, chosen.model if chosen else model):
                by.append(f"tests by {test_model}")
        text = json_text.dumps(input, ensure_ascii=False).encode()
        workflow = evaluate_code.options(
            key=options.key, attributes=_attributes(options), timeout=limit
        )
        created = await create_run(await current_engine(), workflow, text, same_input=True)
        if created.existed:
            by.clear()
        return created.run.id

    async def follow_it(engine: Engine, run_id: str) -> int:
        tell_start(options, run_id, *by)
        here = options.out or "."
        code = await follow_task(engine, run_id, out=here, asked=options.out, json=options.json)
        if options.evidence is not None:
            await write_evidence(engine, run_id, Path(options.evidence), json=options.json)
        return code

    if options.evidence is not None and options.detach:
        raise UsageError(
            "--evidence needs the run's end, and --detach leaves it to others",
            hint="holdfast runs watch RUN --out DIR writes the files later",
        )
    return start(options, create, follow_it, "holdfast worker")


async def write_evidence(engine: Engine, run_id: str, folder: Path, *, json: bool) -> None:
    """Write what the run's pass rests on."""
    from holdfast.agents.code import evidence  # brings the sandbox along

    run = await engine.store.get(run_id)
    if run is None or run.status != "completed":
        return
    try:
        files = evidence.written(folder, run, await engine.store.events(run_id, 0, -1))
    except OSError as error:
        raise UsageError(f"the evidence can't be written: {error}") from error
    if not json:
        output.note(f"  {files} files in {folder}: holdfast verify {folder}")


async def follow_task(
    engine: Engine, run_id: str, *, out: str | None, asked: str | None, json: bool
) -> int:
    """Show how a task goes until its end; write the files to `out`, or if need be elsewhere.

    Where `asked` for, they are written in any case; else only what passed, and over nothing.
    """
    watcher = Watcher() if json else Progress(sys.stderr, engine, run_id, CODE)
    run, journal = await follow(engine, run_id, watcher)
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
        await tell_sandboxes(run_id)
        most = _most_attempts(journal[0], evaluation)
        print(await _closing(run, evaluation, most, files))
    return 0 if evaluation is not None and evaluation.passed else 1


def _most_attempts(created: Event, evaluation: Evaluation) -> int:
    return json_text.loads(created.value or b"{}").get("max_attempts", evaluation.attempts)


async def _evaluation(run: Run) -> Evaluation | None:
    if run.status != "completed":
        return None
    return await (await get_run(run.id)).result()


async def _closing(run: Run, evaluation: Evaluation, most: int, files: list[Path]) -> str:
    """The last line: verdict and its level, time, tokens, cost, files."""
    from holdfast.agents.code import demo  # brings the gateway along

    verdict = (
        f"passed on attempt {evaluation.attempts} of {most}"
        if evaluation.passed
        else f"not passed after {evaluation.attempts} attempt{'s' * (evaluation.attempts != 1)}"
    )
    took = output.duration((run.finished_at or 0.0) - (run.started_at or 0.0))
    level = evaluation.level if evaluation.passed else ""
    score = str(evaluation.mutation) if evaluation.mutation and evaluation.mutation.tried else ""
    words = [verdict, level, score, took, await costs(run.id), ", ".join(map(str, files))]
    closing = " · ".join(word for word in words if word)
    for line in _findings(evaluation):
        output.note(f"  {output.plain(line)}")
    if evaluation.model == demo.MODEL:
        output.note(f"  written by {demo.WHAT_IT_IS} (holdfast models list: real ones)")
    if not evaluation.passed and evaluation.error:
        closing += f"\n{output.plain(evaluation.summary)}"
    return closing


_MOST_SHOWN = 3


def _findings(evaluation: Evaluation) -> Iterator[str]:
    """What was found out about tests that passed: a line each."""
    mutation, compared = evaluation.mutation, evaluation.cross_check
    if mutation is not None and (mutation.survivors or mutation.problem):
        yield f"the tests: {mutation}"
        for survivor in mutation.survivors[:_MOST_SHOWN]:
            changed = [line for line in survivor.diff.splitlines() if line.startswith("+")]
            yield f"  accepted, line {survivor.line}: {' '.join(changed)[1:].strip()[:160]}"
        left = len(mutation.survivors) - _MOST_SHOWN
        if left > 0:
            yield f"  and {left} more (--json has them all)"
    if compared is not None:
        yield str(compared)
        for each in compared.disagreements[:_MOST_SHOWN]:
            yield f"  {each.call} {each.program}, the other {each.other}"
    if evaluation.doubts:
        yield evaluation.doubts


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
