"""Workflows by their seed, as source text: steps, branches, loops, waits, timers, children, tasks.

And changes of such a text, as people make them before a deploy: a statement added, taken out, moved,
another argument, another name, another type, a limit, a log line.
"""

from __future__ import annotations

import ast
import random

STEPS = ("alpha", "beta", "gamma", "delta", "omega")

HEAD = '''"""Made for a test."""

import asyncio

from holdfast import now, patched, publish, set_attributes, sleep, step, wait_for_event, workflow


@step(retries=0)
async def alpha(number: int) -> int:
    return number + 1


@step(retries=0)
async def beta(number: int, more: int = 1) -> int:
    return number * 2 + more


@step(retries=0)
async def gamma(text: str) -> str:
    return text[::-1]


@step(retries=0)
async def delta(number: int) -> int:
    if number % 3 == 0:
        raise ValueError("not by three")
    return number


@step(retries=0)
async def omega(number: int) -> list[int]:
    return [number, number + 1]


@workflow(name="{prefix}little")
async def little(number: int) -> int:
    return await alpha(number)


async def helper(number: int) -> int:
    number = await alpha(number)
    return await beta(number)

'''


class Generator:
    """Makes the statements of a body, each valid where it stands."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names = 0

    def body(self, depth: int, most: int) -> list[str]:
        lines: list[str] = []
        for _ in range(self.random.randrange(1, most + 1)):
            lines += self.statement(depth)
        return lines

    def call(self) -> str:
        pick = self.random.randrange(6)
        if pick == 0:
            return f"await beta(total, {self.random.randrange(4)})"
        if pick == 1:
            return f"len(await gamma('x' * {self.random.randrange(1, 5)}))"
        if pick == 2:
            return "sum(await omega(total % 7))"
        if pick == 3:
            return "await helper(total)"
        if pick == 4:
            return f"await little({self.random.randrange(5)})"
        return f"await alpha(total + {self.random.randrange(3)})"

    def statement(self, depth: int) -> list[str]:
        pick = self.random.randrange(13 if depth < 2 else 8)
        call = self.call()
        if pick <= 4:
            return [f"total += {call}"]
        if pick == 5:
            return [f"await sleep({self.random.choice((1, 60, 3600))})"]
        if pick == 6:
            self.names += 1
            seconds = self.random.choice((30, 600))
            return [
                f"news = await wait_for_event('news{self.names}', timeout={seconds})",
                "total += 10 if news else 1",
            ]
        if pick == 7:
            return self.random.choice(
                (["set_attributes(total=total)"], ["publish('total', total)"])
            )
        inner = ["    " + line for line in self.body(depth + 1, 2)]
        if pick == 8:
            return [f"if total % {self.random.randrange(2, 4)} == 0:", *inner]
        if pick == 9:
            other = ["    " + line for line in self.body(depth + 1, 2)]
            return [f"if total > {self.random.randrange(20)}:", *inner, "else:", *other]
        if pick == 10:
            return [f"for turn in range({self.random.randrange(1, 4)}):", *inner]
        if pick == 11:
            parts = self.random.sample(
                ("helper(total)", "alpha(1)", "beta(total)", "little(2)", "alpha(total)"), 2
            )
            return [f"total += sum(await asyncio.gather({', '.join(parts)}))"]
        return [
            "try:",
            "    total += await delta(total)",
            "except ValueError:",
            *inner,
        ]

    def source(self, prefix: str) -> str:
        # A wait in the middle, so that many runs are under way when the code changes.
        body = [*self.body(0, 3), "await wait_for_event('go', timeout=7200)", *self.body(0, 2)]
        lines = ["    " + line for line in body]
        return (
            HEAD.format(prefix=prefix)
            + f'\n@workflow(name="{prefix}flow")\nasync def flow(total: int) -> int:\n'
            + "\n".join(lines)
            + "\n    return total\n"
        )


def source_of(seed: int, prefix: str = "") -> str:
    """The text of the module of that seed, with its workflows `flow` and `little`."""
    return Generator(seed).source(prefix)


# --- changes ---


def changed(source: str, seed: int) -> str:
    """The module with one change in the body of `flow`, of `helper` or of a step's signature."""
    chance = random.Random(seed)
    tree = ast.parse(source)
    functions = {n.name: n for n in tree.body if isinstance(n, ast.AsyncFunctionDef)}
    body = functions["flow"].body
    kind = chance.randrange(12)
    generator = Generator(seed + 1_000_000)
    generator.names = 100
    fresh = ast.parse("async def f():\n" + "\n".join("    " + x for x in generator.statement(1)))
    statements = fresh.body[0].body  # type: ignore[attr-defined]
    if kind in (0, 1):
        block = chance.choice(list(_blocks(body)))
        place = chance.randrange(len(block) + (block is not body))
        block[place:place] = statements
    elif kind == 2 and len(body) > 2:
        del body[chance.randrange(len(body) - 1)]
    elif kind == 3 and len(body) > 2:
        place = chance.randrange(len(body) - 2)
        body[place], body[place + 1] = body[place + 1], body[place]
    elif kind == 4:
        numbers = [n for n in ast.walk(functions["flow"]) if isinstance(n, ast.Constant)]
        numbers = [n for n in numbers if type(n.value) is int]
        if numbers:
            one = chance.choice(numbers)
            assert isinstance(one.value, int)
            one.value += 1
    elif kind == 5:
        calls = [n for n in ast.walk(functions["flow"]) if isinstance(n, ast.Name)]
        calls = [n for n in calls if n.id in ("alpha", "beta")]
        if calls:
            one_call = chance.choice(calls)
            one_call.id = "alpha" if one_call.id == "beta" else "beta"
    elif kind == 6:
        functions["helper"].body.insert(1, ast.parse("number += 1").body[0])
    elif kind == 7:
        functions["helper"].body.insert(chance.randrange(2), ast.parse("f()").body[0])
        functions["helper"].body[:] = (
            ast.parse(
                "async def f():\n    number = await beta(number)\n    return await alpha(number)"
            )
            .body[0]
            .body
        )  # type: ignore[attr-defined]
    elif kind == 8:
        functions["omega"].returns = ast.parse("list[str]", mode="eval").body
    elif kind == 9:
        guarded = ast.parse("if patched('news'): pass").body[0]
        assert isinstance(guarded, ast.If)
        guarded.body = statements
        body.insert(chance.randrange(len(body)), guarded)
    elif kind == 10:
        argument = functions["flow"].args.args[0]
        argument.annotation = ast.parse("list[int]", mode="eval").body
    else:
        body.insert(chance.randrange(len(body)), ast.parse("print(end='')").body[0])
    return ast.unparse(ast.fix_missing_locations(tree))


def _blocks(body: list[ast.stmt]):
    yield body
    for statement in body:
        for part in ("body", "orelse"):
            inner = getattr(statement, part, None)
            if inner:
                yield from _blocks(inner)
