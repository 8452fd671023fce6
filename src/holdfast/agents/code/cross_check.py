"""Two programs for one task, by two models, compared on calls that neither has seen.

The calls are those that the tests make, and variations of them: other lengths, signs, edges. Where
the programs answer differently one of them is wrong, or the task leaves it open; that is for a
person to say, so a disagreement is told and decides nothing. Only plain data is compared.
"""

from __future__ import annotations

import ast
import json
import random
from collections.abc import Iterator, Sequence
from typing import Any, cast

from holdfast.agents.code.isolated import runner_modules
from holdfast.agents.code.languages import Language
from holdfast.agents.code.records import CrossCheck, Disagreement
from holdfast.agents.code.verdict import inside
from holdfast.sandbox import Sandbox

_PLACE = "/tmp/runner"  # noqa: S108 - the sandbox's own
_SECONDS = 60.0
MOST_CALLS = 400
MOST_TOLD = 10
Call = tuple[str, str]
"""The function's name, and its arguments as a literal of the language."""
_Answer = list[str] | None


async def compared(
    sandbox: Sandbox, language: Language, code: str, other: str, tests: str, model: str
) -> CrossCheck:
    """Compare two programs, in this sandbox, which is used for nothing else."""
    found = await _asked(sandbox, language, code, tests, None)
    if not found:
        why = "the tests make no call with plain arguments that could be compared"
        return CrossCheck(model, code=other, problem=why)
    calls = varied([(name, told) for name, told in found], language)
    one = await _asked(sandbox, language, code, tests, calls)
    two = await _asked(sandbox, language, other, tests, calls)
    if one is None or two is None:
        side = "the program" if one is None else "the other program"
        return CrossCheck(model, code=other, problem=f"{side} did not answer all calls")
    pairs = [(c, a, b) for c, a, b in zip(calls, one, two, strict=True) if a and b]
    differing = [_told(call, a, b) for call, a, b in pairs if _differ(a, b)]
    differing.sort(key=lambda each: "raises" in (each.program.split()[0], each.other.split()[0]))
    return CrossCheck(model, len(pairs), tuple(differing[:MOST_TOLD]), other)


async def _asked(
    sandbox: Sandbox, language: Language, code: str, tests: str, calls: Sequence[Call] | None
) -> list[Any] | None:
    given: dict[str, Any] = {"code": language.code_file, "tests": language.test_file}
    if calls is not None:
        given = {"code": language.code_file, "calls": calls}
    python = language.runtime == "python"
    runner = "calls_python.py" if python else "calls_node.mjs"
    place = f"{_PLACE}/{'compare.py' if python else 'compare.mjs'}"
    files = {language.code_file: code, language.test_file: tests, place: inside(runner)}
    await sandbox.write_files({**files, **(runner_modules("run_python.py") if python else {})})
    result = await sandbox.run(
        "python" if python else "node",
        place,
        stdin=f"{json.dumps(given)}\n",
        timeout=_SECONDS,
        max_output="8mb",
    )
    try:
        found: Any = json.loads(result.stdout.rstrip().rpartition("\n")[2])
    except ValueError:
        return None
    return cast("list[Any]", found) if calls is None or len(found) == len(calls) else None


def _differ(one: list[str], other: list[str]) -> bool:
    """Two errors are the same: which one, tasks seldom say."""
    return one != other and not one[0] == other[0] == "raises"


def _told(call: Call, one: list[str], other: list[str]) -> Disagreement:
    name, told = call
    return Disagreement(f"{name}{told}"[:300], " ".join(one)[:300], " ".join(other)[:300])


# --- variations ---


def varied(calls: Sequence[Call], language: Language) -> list[Call]:
    """The calls, and variations of them; the same ones whenever it is asked."""
    python = language.runtime == "python"
    chance = random.Random(repr(calls))  # noqa: S311 - the same wherever it is drawn
    found = dict.fromkeys(calls)
    for name, told in calls:
        arguments = ast.literal_eval(told) if python else json.loads(told)
        given = arguments[0] if python else arguments
        # As many arguments as the tests give.
        variations = [each for each in _neighbours(given) if len(each) == len(given)]
        chance.shuffle(variations)
        for each in variations[: max(MOST_CALLS // len(calls), 4)]:
            text = repr([each, arguments[1]]) if python else json.dumps(each)
            found[name, text] = None
    return list(found)[:MOST_CALLS]


def _neighbours(value: Any) -> Iterator[Any]:
    """Values near one: never another type, one change at a time."""
    match value:
        case bool():
            yield not value
        case int():
            yield from (value + 1, value - 1, 0, 2 * value + 3)
        case float():
            yield from (value + 0.5, 2 * value, 0.0)
        case str():
            yield from ("", value[::-1], value * 2, value[:-1], value[1:], value.swapcase())
            yield from (f" {value}", f"{value}{value[:1]}")
        case list():
            items = cast("list[Any]", value)
            if items:
                yield from (items[::-1], items[1:], items[:-1], [*items, items[0]])
            for place, each in enumerate(items[:6]):
                for near in _neighbours(each):
                    yield [*items[:place], near, *items[place + 1 :]]
        case tuple():
            parts = cast("tuple[Any, ...]", value)
            for near in _neighbours(list(parts)):
                if len(near) == len(parts):
                    yield tuple(near)
        case dict():
            entries = cast("dict[Any, Any]", value)
            for key in list(entries)[:4]:
                yield {name: each for name, each in entries.items() if name != key}
                for near in _neighbours(entries[key]):
                    yield {**entries, key: near}
        case _:
            pass
