"""`make parity`, its part for node: real test modules by plain `node --test` and by our runner.

    python -m agents.code.parity.npm_packages [PACKAGE …]

Packages are installed from the machine's registry into a sandbox. A module of tests is taken if it
asserts by node's own modules and imports one file of its package, which becomes the program. Each is
run plainly, in one process and, where its text allows it, apart from the program, without and with a
bug. Nothing of theirs is kept. Exits with 1 if any disagrees that `NAMED` does not name.
"""

from __future__ import annotations

import asyncio
import json
import posixpath
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

from holdfast.agents.code import isolated, javascript, toolchain, verdict
from holdfast.agents.code.languages import LANGUAGES
from holdfast.agents.code.mutants import mutants
from holdfast.errors import SandboxError
from holdfast.sandbox import Sandbox

JAVASCRIPT = LANGUAGES["javascript"]
LIMITS = verdict.Limits(seconds=60)
PACKAGES = {
    "find-my-way": 70, "fast-json-stringify": 60, "fast-uri": 10, "secure-json-parse": 3,
    "fast-querystring": 5, "@fastify/deepmerge": 3, "@fastify/error": 3, "ret": 10, "rfdc": 3,
    "@fastify/merge-json-schemas": 20, "json-schema-ref-resolver": 10, "process-warning": 12,
    "toad-cache": 5, "avvio": 30, "light-my-request": 8, "safe-regex2": 3, "reusify": 3,
    "@fastify/forwarded": 3, "@fastify/proxy-addr": 4, "@fastify/accept-negotiator": 3,
    "fastify-plugin": 10, "pino-std-serializers": 8, "split2": 3, "fast-decode-uri-component": 2,
    "@fastify/ajv-compiler": 6, "@fastify/fast-json-stringify-compiler": 6, "middie": 3,
    "semver": 5, "qs": 3, "on-exit-leak-free": 3, "fast-json-patch": 2, "hyperid": 3,
}  # fmt: skip
"""And how many test modules of each are taken at most."""
NAMED: dict[str, str] = {}
"""Modules that we judge otherwise than node does, and why."""
_LOADS = re.compile(
    r"""(?:require\(\s*|from\s+|^import\s+)(['"])(\.{1,2}(?:/[^'"]*)?)\1""", re.MULTILINE
)
_OWN = re.compile(r"""['"](node:)?(test|assert)(/strict)?['"]""")
_MORE = re.compile(r"__dirname|__filename|import\.meta|require\.(resolve|cache)|jest\.|proxyquire")


class OutOfReach(Exception):
    """The registry does not answer, or does not have the package."""


@dataclass(frozen=True)
class Case:
    """A module of tests and the file of its package that it tests."""

    name: str
    target: str
    tests: str
    is_module: bool

    @property
    def program(self) -> str:
        if self.is_module:
            return f'export * from "./{self.target}";\n'
        return f'module.exports = require("./{self.target}");\n'


@dataclass
class Tally:
    """What came of the modules of all packages."""

    modules: int = 0
    left_out: int = 0
    """That plain node does not pass here: something is missing that they need."""
    caught: int = 0
    isolated: int = 0
    shared: Counter[str] = field(default_factory=Counter[str])
    disagreeing: dict[str, list[str]] = field(default_factory=dict[str, list[str]])


async def tried(package: str, most: int, tally: Tally) -> None:
    """Every test module of a package, plainly and by our runners."""
    try:
        source = await toolchain.ready(JAVASCRIPT, (package,))
    except SandboxError as error:
        raise OutOfReach(error.message) from error

    async def made() -> Sandbox:
        return await Sandbox.create(runtime="node", source=source, timeout=3600, memory="1gb")

    async with await made() as one, await made() as judges, await made() as programs:
        places = (one, judges, programs)
        for case in [case async for case in _cases(one, package)][:most]:
            await _both_ways(case, places, tally)


async def _both_ways(case: Case, places: tuple[Sandbox, Sandbox, Sandbox], tally: Tally) -> None:
    whole = (await places[0].read_file(case.target)).decode()
    package = json.dumps({"type": "module" if case.is_module else "commonjs"})
    for each in places:
        await each.write_files({"package.json": package})
    plain = await _plain(case, places[0])
    if plain:
        tally.left_out += 1
        return
    tally.modules += 1
    await _compare(case.name, case, plain, places, tally, count=True)
    made, _ = mutants(whole, JAVASCRIPT, 1)
    if not made:
        return
    for each in places:
        await each.write_files({case.target: made[0].code})
    try:
        plain = await _plain(case, places[0])
        tally.caught += bool(plain)
        await _compare(f"{case.name}.bug", case, plain, places, tally, count=False)
    finally:
        for each in places:
            await each.write_files({case.target: whole})


async def _compare(
    name: str,
    case: Case,
    plain: frozenset[str],
    places: tuple[Sandbox, Sandbox, Sandbox],
    tally: Tally,
    *,
    count: bool,
) -> None:
    one, judges, programs = places
    _, shared = await verdict._run(one, JAVASCRIPT, "run_tests", case.program, case.tests, LIMITS)  # pyright: ignore[reportPrivateUsage]
    told = _differences("shared", plain, shared)
    why = javascript.needs_one_process(case.tests, "javascript")
    if why is None:
        both = isolated.Both(judges, programs)
        run = await isolated._carried(  # pyright: ignore[reportPrivateUsage]
            both, "run_tests", JAVASCRIPT, case.program, case.tests, LIMITS
        )
        why = (run.report or {"cannot_cross": "no report"}).get("cannot_cross")
        if why is None and run.report is not None:
            told += _differences("isolated", plain, verdict.report_of(run.report))
            tally.isolated += count
    if why is not None and count:
        tally.shared[why.partition(":")[0]] += 1
    if told:
        tally.disagreeing[name] = told


def _differences(level: str, plain: frozenset[str], report: verdict.Report | None) -> list[str]:
    if report is None:
        return [f"{level}: no report"]
    names = {failure["name"].partition(" > ")[0] for failure in report.failures}
    broken = report.broken["line"] if report.broken else ""
    if report.passed != (not plain):
        return [f"{level}: node fails {sorted(plain)}, ours {sorted(names)} {broken}"]
    if plain and "file" not in plain and names and not broken and names != plain:
        return [f"{level}: node fails {sorted(plain)}, ours {sorted(names)}"]
    return []


async def _plain(case: Case, place: Sandbox) -> frozenset[str]:
    """The tests at the top that fail in plain node; `file` if it is the file itself."""
    await place.write_files({"solution.js": case.program, "solution.test.js": case.tests})
    ran = await place.run(
        "node", "--test", "--test-reporter=tap", "solution.test.js", timeout=LIMITS.seconds
    )
    if ran.exit_code == 0:
        return frozenset()
    found = frozenset(re.findall(r"^not ok \d+ - (.*?)(?: #.*)?$", ran.stdout, re.MULTILINE))
    return (
        frozenset({"file"}) if not found or any("solution.test.js" in n for n in found) else found
    )


async def _cases(place: Sandbox, package: str) -> AsyncIterator[Case]:
    root = f"node_modules/{package}"
    listed = await place.run("find", root, "-path", "*test*", "-name", "*.js", "-size", "-200k")
    known = set((await place.run("find", root, "-name", "*.js")).stdout.split())
    for path in sorted(listed.stdout.split()):
        if path.count("node_modules/") > 1 or "fixture" in path:
            continue
        text = (await place.read_file(path)).decode(errors="replace")
        for target, tests in _moved(text, path, known):
            yield Case(
                path.removeprefix("node_modules/"),
                target,
                tests,
                "import " in text.split("require(")[0],
            )


def _moved(text: str, path: str, known: set[str]) -> Iterator[tuple[str, str]]:
    """The file it tests, and its text as it is beside the program; nothing if it needs more."""
    loads = {found for _, found in _LOADS.findall(text)}
    if len(loads) != 1 or not _OWN.search(text) or _MORE.search(text):
        return
    [load] = loads
    place = posixpath.normpath(posixpath.join(posixpath.dirname(path), load))
    ends = ("", ".js", "/index.js", "/lib/index.js")
    targets = [f"{place}{end}" for end in ends if f"{place}{end}" in known]
    if targets and "test" not in targets[0].rpartition("/")[2]:
        yield targets[0], re.sub(rf"(['\"]){re.escape(load)}\1", '"./solution.js"', text)


async def main(packages: list[str]) -> int:
    tally = Tally()
    for package in packages or PACKAGES:
        before, known = tally.modules, set(tally.disagreeing)
        try:
            await tried(package, PACKAGES.get(package, 1000), tally)
        except OutOfReach as error:
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
        f"\n{tally.modules} modules for node ({tally.left_out} left out that need more), "
        f"{tally.isolated} of them isolated, {tally.caught} bugs found by node, "
        f"{len(tally.disagreeing)} disagreements, {len(unknown)} of them without a reason"
    )
    return 1 if unknown or not tally.modules else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
