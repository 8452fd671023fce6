"""One trial of a program: a fresh sandbox, its tests, the verdict.

As many at a time as there are processors: tests have a time limit, and fifty at once on two
processors would fail by it though nothing is wrong with them.
"""

from __future__ import annotations

import asyncio
import os
from weakref import WeakKeyDictionary

from holdfast.agents.code import toolchain
from holdfast.agents.code.languages import language_named
from holdfast.agents.code.records import Task, Verdict
from holdfast.agents.code.settings import load
from holdfast.agents.code.verdict import Limits, judge
from holdfast.sandbox import Sandbox

_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


async def try_out(task: Task, code: str, tests: str) -> Verdict:
    """Run the tests on the program in a sandbox of their own, when it is their turn."""
    loop = asyncio.get_running_loop()
    if loop not in _slots:
        _slots[loop] = asyncio.Semaphore(load().parallel_tests or os.cpu_count() or 1)
    async with _slots[loop]:
        return await _try_out(task, code, tests)


async def _try_out(task: Task, code: str, tests: str) -> Verdict:
    language, settings = language_named(task.language), load()
    limits = Limits(settings.test_timeout, settings.memory, settings.pids)
    source = await toolchain.ready(language, task.packages)
    sandbox = await Sandbox.create(
        runtime=language.runtime,
        timeout=2 * limits.seconds + 30,
        memory=limits.memory,
        pids=limits.pids,
        source=source,
    )
    async with sandbox:
        return await judge(sandbox, language, code, tests, limits)
