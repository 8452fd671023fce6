"""The same files run by plain pytest and by our runner, and what each made of them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as xml

from holdfast.agents.code import isolated, verdict
from holdfast.agents.code.isolated import needs_one_process
from holdfast.sandbox import Sandbox

DRIVER = Path(__file__).with_name("driver.py")
_CHANGING = re.compile(
    r"0x[0-9a-f]{6,}|\b\d+\.\d+s\b|/tmp/[\w./-]+|\d{4}-\d\d-\d\d[ T][\d:.]+|\d+\.\d{5,}|\d{9,}"
)


@dataclass(frozen=True)
class Outcome:
    """What came of a file of tests."""

    passes: bool
    passed: frozenset[str] = frozenset()
    skipped: frozenset[str] = frozenset()
    failed: dict[str, str] = field(default_factory=dict[str, str])
    """What was said about each."""
    broken: str = ""


@dataclass(frozen=True)
class Pair:
    """What plain pytest and our runner made of the same files."""

    plain: Outcome
    ours: Outcome
    """With tests and program in one process."""
    apart: Outcome | None = None
    """With the program in another; None if that can't be."""
    why_shared: str = ""

    def differences(self) -> list[str]:
        """In what they disagree; nothing if they don't."""
        found = self._differing(self.ours)
        if self.apart is not None:
            found += [f"isolated: {each}" for each in self._differing(self.apart)]
        return found

    def _differing(self, ours: Outcome) -> list[str]:
        plain = self.plain
        found: list[str] = []
        if plain.passes != ours.passes:
            found.append(f"pytest: {plain.passes}, ours: {ours.passes} {ours.broken}")
        if bool(plain.broken) != bool(ours.broken):
            found.append(f"broken: {plain.broken!r} and {ours.broken!r}")
        if plain.broken or ours.broken:
            return found
        for what in ("passed", "skipped"):
            more, less = getattr(ours, what), getattr(plain, what)
            if more != less:
                found.append(
                    f"{what}: only pytest {sorted(less - more)}, only ours {sorted(more - less)}"
                )
        if len(ours.failed) < 50 and set(plain.failed) != set(ours.failed):
            found.append(f"failed: pytest {sorted(plain.failed)}, ours {sorted(ours.failed)}")
        for name in set(plain.failed) & set(ours.failed):
            one, other = _said(plain.failed[name]), _said(ours.failed[name])
            if not one.endswith(other.removeprefix("… ")):
                found.append(f"{name}: pytest says\n{one}\nours\n{other}")
        return found


async def compared(
    cases: Mapping[str, Mapping[str, str]],
    *,
    seconds: float = 60,
    packages: Mapping[str, Mapping[str, str]] | None = None,
    **sandbox: Any,
) -> dict[str, Pair]:
    """Each case, a folder with test_solution.py and solution.py, by both.

    A `case.json` in it may name one of the packages, and a bug for it: see `driver.py`.
    """
    runner, *pieces = verdict._RUNNERS["python"]  # pyright: ignore[reportPrivateUsage]
    inside = {f"/tmp/runner/{each}": verdict.inside(each) for each in pieces}
    inside["/tmp/runner/run_tests.py"] = verdict.inside(runner)
    inside["/tmp/runner/program.py"] = verdict.inside("bridge_program.py")
    inside["/tmp/runner/run_isolated.py"] = verdict.inside("run_isolated.py")
    for each in isolated.PIECES:
        place = f"/tmp/runner/holdfast/agents/code/inside/{each}"
        inside[place] = verdict.inside(each)
    files = {
        f"cases/{name}/{path}": text for name, case in cases.items() for path, text in case.items()
    }
    why = {name: needs_one_process(case["test_solution.py"]) for name, case in cases.items()}
    for name, reason in why.items():
        about = json.loads(cases[name].get("case.json", "{}"))
        files[f"cases/{name}/case.json"] = json.dumps({**about, "shared": reason})
    for name, package in (packages or {}).items():
        files |= {f"packages/{name}/{path}": text for path, text in package.items()}
    limit = 2 * seconds * max(len(cases), 1) + 60
    async with await Sandbox.create(timeout=limit, memory="2gb", pids=256, **sandbox) as made:
        await made.write_files({**files, **inside, "/tmp/runner/driver.py": DRIVER.read_text()})
        result = await made.run(
            "python", "/tmp/runner/driver.py", str(seconds), timeout=limit, max_output="64mb"
        )
    assert result.ok, f"{result}: {result.stderr[-3000:]}"
    found: dict[str, Pair] = {}
    for line in result.stdout.splitlines():
        told = json.loads(line)
        name = told["name"]
        apart, reason = _apart(told["apart"]), why[name] or ""
        if isinstance(apart, str):
            apart, reason = None, apart or reason
        plain, ours = _plain(*told["plain"]), _ours(*told["ours"], told["said"])
        found[name] = Pair(plain, ours, apart, reason)
    return found


def _apart(told: list[str]) -> Outcome | str:
    """What came of it, or why it has to be judged in one process."""
    ended, raw, said = told
    if not ended:
        return ""
    report = json.loads(raw) if raw else {}
    if report.get("cannot_cross") and not report["lies"]:
        return str(report["cannot_cross"])
    if report.get("ended"):
        return Outcome(False, broken="the program ended by itself")
    return _ours(ended, raw, said)


def _plain(ended: str, raw: str) -> Outcome:
    if not raw:
        return Outcome(False, broken=f"ended with {ended}")
    passed, skipped, failed, broken = set[str](), set[str](), dict[str, str](), ""
    for case in xml.fromstring(raw).iter("testcase"):
        classes = case.get("classname", "").split(".")[1:]
        name = ".".join([*classes, case.get("name", "")])
        problems = [*case.findall("failure"), *case.findall("error")]
        if case.get("classname") == "":
            broken += "".join(str(each.text) for each in problems)
        elif problems:
            failed.setdefault(name, str(problems[0].text))
        elif case.find("skipped") is not None:
            skipped.add(name)
        else:
            passed.add(name)
    known = set(failed)
    return Outcome(
        ended == "0", frozenset(passed - known), frozenset(skipped - known), failed, broken
    )


def _ours(ended: str, raw: str, said: str) -> Outcome:
    if not raw:
        return Outcome(False, broken=f"ended with {ended}: {said}")
    report = json.loads(raw)
    failed: dict[str, str] = {}
    for failure in report["failures"]:
        failed.setdefault(failure["name"], failure["text"])
    broken = report["broken"]["text"] if report["broken"] else ""
    missing = f"missing: {', '.join(report['missing'])}" if report["missing"] else ""
    ran = frozenset(report["ran"]) - frozenset(failed)
    return Outcome(report["passed"], ran, frozenset(report["skipped"]), failed, broken or missing)


def _said(text: str) -> str:
    return "\n".join(line.rstrip() for line in _CHANGING.sub("…", text.strip()).splitlines())
