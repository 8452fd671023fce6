"""The repo agent's steps as lines, and its closing words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from holdfast.agents.repo.patches import sensitive
from holdfast.cli.output import duration, plain, short
from holdfast.cli.progress import Progress, cost_of, tokens_of
from holdfast.cli.view import SYMBOLS

if TYPE_CHECKING:
    from holdfast.agents.repo.records import Repair
    from holdfast.records import Step

_SILENT = frozenset(
    {"settle", "open_workspace", "close_workspace", "let_go", "add_up", "join_budget", "timer"}
)
_NAMES = {"take_repo": "take the repo", "run_tests": "tests before", "try_repair": "try"}


class RepoProgress(Progress):
    """Draws the steps of a run on a repo."""

    def line(self, step: Step, now: float, width: int) -> str | None:
        """A step on one line; None for one that is not worth a line."""
        given, found = _object(step.input), _object(step.output)
        if (step.name in _SILENT and step.error is None) or found.get("lost"):
            return None
        took = step.seconds if step.seconds is not None else now - step.started_at
        bad = found.get("passed") is False or found.get("is_error") or found.get("ok") is False
        symbol = SYMBOLS["failed" if bad else step.status]
        name = _NAMES.get(step.name, step.name.partition(" ")[0].replace("_", " "))
        if step.name.startswith("generate_text"):
            name = "think"
        spent = self.spent_by(step)
        head = f" {symbol} {name:<14} {duration(took):>8}"
        head = f"{head}  {tokens_of(spent):>6}  {cost_of(spent):>7}"
        words = _words(step, given, found)
        return f"{head}   {short(words, max(width - len(head) - 4, 20))}".rstrip()


def _words(step: Step, given: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    if step.error is not None:
        return str(step.error)
    match step.name:
        case "take_repo":
            tests: Any = found.get("tests")
            how = cast("dict[str, Any]", tests).get("command") if tests else "no tests found"
            return f"{found.get('files', '')} files, {how}" if found else ""
        case "run_tests":
            return str(found.get("summary", "no tests"))
        case "judge":
            again = given.get("round", 1)
            return f"{found.get('summary', '')}{f'  round {again}' if again > 1 else ''}"
        case "run":
            return str(given.get("command", ""))
        case "search":
            return str(given.get("pattern", ""))
        case "try_repair":
            verdict: Any = found.get("verdict") or {}
            return f"{given.get('number', '')}  {verdict.get('summary', '')}"
        case _ if "path" in given:
            wrong = f"  {found.get('text')}" if found.get("is_error") else ""
            return f"{given['path']}{wrong}"
        case _:
            return _asked(found)


def _asked(found: Mapping[str, Any]) -> str:
    """What a model's reply says or calls."""
    parts: list[dict[str, Any]] = found.get("parts") or []
    called = [str(part.get("name")) for part in parts if part.get("type") == "tool_call"]
    said = " ".join(str(part.get("text")) for part in parts if part.get("type") == "text")
    return "  ".join(word for word in (said, f"→ {', '.join(called)}" if called else "") if word)


def _object(raw: bytes | None) -> dict[str, Any]:
    found: Any = json.loads(raw) if raw else None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def told(repair: Repair, made: Mapping[str, str]) -> list[str]:
    """What came of it, for people."""
    verdict, spent = repair.verdict, repair.spent
    size = f"{len(verdict.files)} file{'s' * (len(verdict.files) != 1)}, {verdict.lines} lines"
    cost = "$?" if spent.usd is None else f"${spent.usd:.3f}"
    rounds = next(each.rounds for each in repair.tries if each.number == repair.chosen)
    kept = f"try {repair.chosen} of {len(repair.tries)}, " if len(repair.tries) > 1 else ""
    words = [
        f"{'passed' if repair.passed else 'not passed'}: {verdict.summary}",
        f"{kept}round {rounds}",
        size if verdict.files else "",
        duration(repair.seconds),
        f"{spent.tokens / 1000:.1f}k tokens",
        cost,
    ]
    lines = [" · ".join(word for word in words if word)]
    lines += [f"  {line}" for line in repair.summary.strip().splitlines()[-12:]]
    for test in verdict.changed_tests:
        if test.how != "added":
            lines.append(f"  ! {test.path}: {test.how}")
    if verdict.original is not None:
        lines.append(f"  ! with the tests as they were before: {verdict.original.summary}")
    twice = sensitive(repair.patch)
    if twice:
        lines.append(f"  ! look twice at what acts by being there: {', '.join(twice)}")
    lines += [f"  note: {note}" for note in repair.base.notes]
    names = {"file": "patch", "commit": "commit", "branch": "branch", "applied": "applied to"}
    lines += [f"  {names[key]} {value}" for key, value in made.items()]
    return [plain(line) for line in lines]
