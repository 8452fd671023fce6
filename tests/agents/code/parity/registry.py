"""`make parity`: real test modules by plain pytest and by our runner, with and without a bug.

    python -m agents.code.parity.registry [PACKAGE …]

Prints each disagreement, and at the end how many modules agreed. Exits with 1 if any disagrees
that `NAMED` does not name with its reason.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from dataclasses import dataclass, field

from agents.code.parity import sources
from agents.code.parity.comparing import Pair, compared

NAMED: dict[str, str] = {}
"""Modules that we judge otherwise than pytest does, and why."""
_SECONDS = 60.0


@dataclass
class Tally:
    """What came of the modules of all packages."""

    modules: int = 0
    """With at least one test that passes in plain pytest."""
    caught: int = 0
    """Whose bug plain pytest finds."""
    left_out: int = 0
    """That plain pytest can't run here: something is missing that they need."""
    isolated: int = 0
    """That could be run apart from their package."""
    shared: Counter[str] = field(default_factory=Counter[str])
    """Why the others could not."""
    disagreeing: dict[str, list[str]] = field(default_factory=dict[str, list[str]])


async def tried(package: str, most: int, tally: Tally) -> None:
    """Every test module of a package, plainly and by our runner."""
    files = await asyncio.to_thread(sources.fetched, package)
    program = sources.importable(files)
    top = sorted({path.partition("/")[0].removesuffix(".py") for path in program})
    cases: dict[str, dict[str, str]] = {}
    for module in sources.modules(package, files, most):
        for bug in (None, module.bug):
            about = json.dumps({"package": package, "bug": bug, "modules": top})
            name = f"{module.name}{'.bug' if bug else ''}"
            # The program is whatever the tests import; a file of this name there must be.
            cases[name] = {
                "test_solution.py": module.text, "solution.py": "", "case.json": about,
            }  # fmt: skip
    if not cases or not top:
        return
    found = await compared(cases, seconds=_SECONDS, packages={package: program})
    for name, pair in found.items():
        _count(name, pair, found, tally)


def _count(name: str, pair: Pair, found: dict[str, Pair], tally: Tally) -> None:
    whole = found[name.removesuffix(".bug")]
    if not whole.plain.passed:
        tally.left_out += not name.endswith(".bug")
        return
    if name.endswith(".bug"):
        tally.caught += pair.plain.passes != whole.plain.passes
    else:
        tally.modules += 1
        tally.isolated += pair.apart is not None
        if pair.apart is None:
            tally.shared[pair.why_shared.partition(":")[0]] += 1
    if differing := pair.differences():
        tally.disagreeing[name] = differing


async def main(packages: list[str]) -> int:
    tally = Tally()
    for package in packages or sources.PACKAGES:
        before, known = tally.modules, set(tally.disagreeing)
        try:
            await tried(package, sources.PACKAGES.get(package, 1000), tally)
        except sources.OutOfReach as error:
            print(f"{package}: {error}", flush=True)
            continue
        print(f"{package}: {tally.modules - before} modules", flush=True)
        for name in tally.disagreeing.keys() - known:
            reason = NAMED.get(name.removesuffix(".bug"))
            print(f"=== {name}{f' (known: {reason})' if reason else ''}")
            print("\n".join(each[:1500] for each in tally.disagreeing[name]), flush=True)
    for reason, many in tally.shared.most_common(20):
        print(f"shared, {many}: {reason}")
    unknown = [name for name in tally.disagreeing if name.removesuffix(".bug") not in NAMED]
    print(
        f"\n{tally.modules} modules ({tally.left_out} left out that need more than their package), "
        f"{tally.isolated} of them isolated, {tally.caught} bugs found by pytest, {len(tally.disagreeing)} disagreements, "
        f"{len(unknown)} of them without a reason"
    )
    return 1 if unknown or not tally.modules else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
