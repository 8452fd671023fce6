"""`make parity`, its part on test strength: are tests noticed that would accept anything?

    python -m agents.code.parity.weak_tests [MOST]

Programs with good tests, whose every assertion is then made one that only looks at its left side, and
whose expected errors are left out: the program is called, and nothing is said of what it returns. Tests are noticed as weak if
fewer mutants are refused than the quick level wants. Exits with 1 if under 90 % of the weak are.
"""

from __future__ import annotations

import ast
import asyncio
import sys
from dataclasses import dataclass, field

from agents.code.healing.pairing import pairs
from agents.code.parity.honest import PROGRAMS
from holdfast.agents.code import mutation_score
from holdfast.agents.code.languages import LANGUAGES
from holdfast.agents.code.records import MutationScore
from holdfast.agents.code.workflow import ENOUGH
from holdfast.sandbox import Sandbox


@dataclass
class Found:
    """What was measured, by program."""

    weak: dict[str, MutationScore] = field(default_factory=dict[str, MutationScore])
    good: dict[str, MutationScore] = field(default_factory=dict[str, MutationScore])

    @property
    def missed(self) -> list[str]:
        return [name for name, each in self.weak.items() if not is_noticed(each)]

    @property
    def suspected(self) -> list[str]:
        """Good tests that are asked for more as well."""
        return [name for name, each in self.good.items() if is_noticed(each)]


def is_noticed(found: MutationScore) -> bool:
    return found.score is not None and found.score < ENOUGH


def programs() -> dict[str, tuple[str, str]]:
    """Programs with good tests."""
    found = {name: (program, tests) for name, (program, _, tests) in PROGRAMS.items()}
    return found | {pair.name: (pair.fixed, pair.tests) for pair in pairs("python")}


def weakened(tests: str) -> str:
    tree = _Weaken().visit(ast.parse(tests))
    return ast.unparse(ast.fix_missing_locations(tree))


class _Weaken(ast.NodeTransformer):
    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        looked = node.test.left if isinstance(node.test, ast.Compare) else node.test
        return ast.Assert(ast.List([looked], ast.Load()), None)

    def visit_With(self, node: ast.With) -> ast.AST:
        used = ast.unparse(node.items[0].context_expr)
        if "raises" in used.lower() or "warns" in used.lower():
            return ast.Pass()
        self.generic_visit(node)
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        match node.value:
            case ast.Call(ast.Attribute(ast.Name("self"), str(name)), [looked, *_]) if (
                name.startswith("assert") and "Raises" not in name
            ):
                return ast.Assert(ast.List([looked], ast.Load()), None)
            case _:
                return node


async def measured(most: int = 1000) -> Found:
    """Each program with its good tests and with weak ones."""
    found = Found()
    for name, (program, tests) in list(programs().items())[:most]:
        for kind, text in ((found.good, tests), (found.weak, weakened(tests))):
            async with await Sandbox.create(timeout=300) as made:
                score = await mutation_score.measured(
                    made, LANGUAGES["python"], program, text, "quick"
                )
            if score.problem is None:
                kind[name] = score
    return found


async def main(most: int) -> int:
    found = await measured(most)
    noticed = len(found.weak) - len(found.missed)
    print(f"weak tests of {len(found.weak)} programs: {noticed} noticed; missed: {found.missed}")
    print(
        f"good tests of {len(found.good)}: {len(found.suspected)} asked for more: {found.suspected}"
    )
    return 0 if noticed >= 0.9 * len(found.weak) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(int(sys.argv[1]) if sys.argv[1:] else 1000)))
