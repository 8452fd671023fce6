"""One trial of a program: a fresh sandbox, its tests, the verdict."""

from __future__ import annotations

from holdfast.agents.code import toolchain
from holdfast.agents.code.languages import language_named
from holdfast.agents.code.records import Task, Verdict
from holdfast.agents.code.settings import load
from holdfast.agents.code.verdict import Limits, judge
from holdfast.sandbox import Sandbox


async def try_out(task: Task, code: str, tests: str) -> Verdict:
    """Run the tests on the program in a sandbox of their own."""
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
