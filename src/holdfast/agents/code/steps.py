"""What the steps of the workflow do: settle a run's plan, have a file written, try a program out.

Loaded by the first step that needs it, not with the workflow: it brings the gateway and the
sandbox along.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Coroutine
from dataclasses import replace
from decimal import Decimal
from typing import Any
from weakref import WeakKeyDictionary

from holdfast.agents.code import cross_check, demo, isolated, javascript, mutation_score, toolchain
from holdfast.agents.code.demo import check_demo, check_models, choose_or_demo
from holdfast.agents.code.isolated import needs_one_process
from holdfast.agents.code.languages import Language, language_named
from holdfast.agents.code.records import (
    CrossCheck,
    Draft,
    MutationScore,
    Plan,
    Task,
    TestCheck,
    Verdict,
)
from holdfast.agents.code.replies import code_in
from holdfast.agents.code.verdict import Limits as TestLimits
from holdfast.agents.code.verdict import judge
from holdfast.agents.models import set_budget
from holdfast.agents.settings import CodeSettings, code_settings
from holdfast.errors import BudgetExceeded, FatalError
from holdfast.gateway import default_gateway, generate_text
from holdfast.sandbox import Sandbox, default_host
from holdfast.sandbox.spec import Limits, Spec

_warming: set[asyncio.Task[None]] = set()
_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
_WRONG = re.compile(
    r"^[\s>*#`_-]*WRONG[*_`]*\s*:\s*[*_`]*\s*(code|tests?)\b[*_`]*[\s.:,-]*", re.IGNORECASE
)
_MOST_NOTE = 2000

demo.register()  # here, where models are asked: whoever goes on with a run must know it too


async def settle(
    run_id: str,
    task: str,
    language: Language,
    model: str | None,
    test_model: str | None,
    budget: Decimal | None,
    packages: tuple[str, ...],
    check_tests: TestCheck | None,
) -> Plan:
    """Choose the models, limit what the run may spend, make the sandbox's packages ready."""
    gateway, settings = default_gateway(), code_settings()
    because = "named for this run"
    if model is None:
        chosen = await choose_or_demo(gateway, settings)
        model, because = chosen.model, chosen.because
    test_model = test_model or settings.test_model or model
    toolchain.check_packages(language, packages)
    check_models(gateway, model, test_model)
    check_demo(task, language.name, model, test_model)
    await set_budget(gateway, run_id, budget if budget is not None else settings.budget)
    source = await toolchain.ready(language, packages)
    if source is None:
        _warm(Spec(language.runtime, Limits.of(memory=settings.memory, pids=settings.pids)))
    return Plan(model, test_model, because, check_tests or settings.check_tests, settings.min_score)


def _warm(spec: Spec) -> None:
    """Have a sandbox like the tests' ready by the time the models have answered.

    Whether that works is for the step that needs the sandbox to say.
    """
    task = asyncio.get_running_loop().create_task(default_host().warm(spec=spec))
    _warming.add(task)
    task.add_done_callback(_warmed)


def _warmed(task: asyncio.Task[None]) -> None:
    _warming.discard(task)
    if not task.cancelled():
        task.exception()


async def write(model: str, system: str, prompt: str, language: Language, *, tests: bool) -> Draft:
    """Ask the model; what it wrote, or why that can't be used."""
    reply = await generate_text(
        model, system=system, prompt=prompt, max_tokens=code_settings().max_tokens
    )
    filename = language.test_file if tests else language.code_file
    if reply.refusal is not None or reply.finish in ("refusal", "content_filter"):
        words = reply.refusal or reply.text or "it gave no reason"
        hint = demo.HOW_TO_GET_ONE if model == demo.MODEL else None
        raise FatalError(f"{model} declined the task: {words}", hint=hint)
    code = code_in(reply.text, language, tests=tests)
    said, disputes = _said(reply.text)
    if disputes is not None and not tests:
        return Draft(filename, "", said, None, disputes)
    if reply.finish == "length":
        problem = f"the reply was cut off after {reply.usage.output:,} tokens"
        return Draft(filename, code or "", said, problem)
    if code is None:
        empty = not reply.text.strip()
        problem = "the reply was empty" if empty else "there was no code in the reply"
        return Draft(filename, "", said, problem)
    return Draft(filename, code, said)


def _said(text: str) -> tuple[str, str | None]:
    """The words before the code, and why the tests are wrong if they say so."""
    words, *fenced = re.split(r"^[ \t]*(?:```|~~~)", text, maxsplit=1, flags=re.MULTILINE)
    words = words.strip()
    match = _WRONG.match(words)
    if match is None:
        # Without a fence the words can't be told from the code.
        return words[:_MOST_NOTE] if fenced else "", None
    reason = words[match.end() :].strip()[:_MOST_NOTE]
    if match[1].lower() == "code":
        return reason, None
    return reason, reason or "it gave no reason"


async def try_out(task: Task, code: str, tests: str) -> Verdict:
    """Run the tests on the program, in sandboxes of their own, when it is their turn.

    As many at a time as there are processors: tests have a time limit, and fifty at once on two
    processors would fail by it though nothing is wrong with them.
    """
    async with _turn():
        return await _try_out(task, code, tests, code_settings())


def _turn() -> asyncio.Semaphore:
    loop = asyncio.get_running_loop()
    if loop not in _slots:
        _slots[loop] = asyncio.Semaphore(code_settings().parallel_tests or os.cpu_count() or 1)
    return _slots[loop]


async def _sandboxes(task: Task, seconds: float) -> Callable[[], Coroutine[Any, Any, Sandbox]]:
    """What makes sandboxes for a task, with its packages in them."""
    language, settings = language_named(task.language), code_settings()
    source = await toolchain.ready(language, task.packages)
    return lambda: Sandbox.create(
        runtime=language.runtime,
        timeout=seconds,
        memory=settings.memory,
        pids=settings.pids,
        source=source,
    )


async def _try_out(task: Task, code: str, tests: str, settings: CodeSettings) -> Verdict:
    """Apart from the program where the tests allow it, else in one process with it."""
    language = language_named(task.language)
    limits = TestLimits(settings.test_timeout, settings.memory, settings.pids)
    sandbox = await _sandboxes(task, 2 * limits.seconds + 30)
    why = _why_one_process(language, tests)
    if why is None:
        judges, programs = await _both(sandbox)
        async with judges, programs:
            both = isolated.Both(judges, programs)
            found = await isolated.judge(both, language, code, tests, limits)
        if isinstance(found, Verdict):
            return found
        why = found.why
    async with await sandbox() as one:
        return replace(await judge(one, language, code, tests, limits), why_shared=why)


def _why_one_process(language: Language, tests: str) -> str | None:
    if language.name == "python":
        return needs_one_process(tests)
    return javascript.needs_one_process(tests, language.name)


async def score(task: Task, code: str, tests: str, check: TestCheck) -> MutationScore:
    """How many mutants of the program its tests refuse."""
    async with _turn():
        sandbox = await _sandboxes(task, mutation_score.SECONDS[check] + 60)
        async with await sandbox() as one:
            return await mutation_score.measured(
                one, language_named(task.language), code, tests, check
            )


async def write_more(model: str, system: str, prompt: str, language: Language) -> Draft:
    """Ask for further tests; that nothing comes of it is no reason to fail a run that passed."""
    try:
        return await write(model, system, prompt, language, tests=True)
    except (FatalError, BudgetExceeded) as error:
        return Draft(language.test_file, "", problem=error.message)


async def write_and_compare(
    task: Task, code: str, tests: str, model: str, system: str
) -> CrossCheck:
    """Have another model write the program too, from the task alone, and compare the two."""
    language = language_named(task.language)
    try:
        draft = await write(model, system, task.prompt, language, tests=False)
    except (FatalError, BudgetExceeded) as error:
        return CrossCheck(model, problem=error.message)
    if draft.problem or draft.disputes:
        return CrossCheck(model, problem=draft.problem or "it wrote no program")
    async with _turn():
        sandbox = await _sandboxes(task, 300)
        async with await sandbox() as one:
            return await cross_check.compared(one, language, code, draft.code, tests, model)


async def _both(create: Callable[[], Coroutine[Any, Any, Sandbox]]) -> tuple[Sandbox, Sandbox]:
    """Two sandboxes, made at the same time; if one can't be made there is none."""
    made = await asyncio.gather(create(), create(), return_exceptions=True)
    first, second = made
    if isinstance(first, BaseException) or isinstance(second, BaseException):
        for each in made:
            if isinstance(each, Sandbox):
                await each.stop("the other one could not be created")
        failed = [each for each in made if isinstance(each, BaseException)]
        raise failed[0]
    return first, second
