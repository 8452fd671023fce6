"""Write the `patched` guard that lets old runs go on with changed code, and try it.

With the old source at hand (of the commit that is deployed), the statements that differ are put
into `if patched(…): new, else: old`; if that does not do, the whole body is. Without it, only a
call that was added can be guarded. Either way a guard counts if the runs that did not fit replay on
the guarded code, and those that did fit still do: nothing is proposed that was not tried.

Only functions at the top of the workflow's own module are looked at; they are compiled and tried in
a copy of its namespace, so that the module is not executed a second time.
"""

from __future__ import annotations
import __future__

import ast
import copy
import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any, cast

from holdfast import config
from holdfast.ready.replay_check import LIVE, CheckReport, Replayed, replay
from holdfast.records import Event
from holdfast.runtime.context import patched
from holdfast.runtime.definitions import Workflow
from holdfast.runtime.settings import Settings
from holdfast.store.base import RunFilter, Store

Function = ast.AsyncFunctionDef | ast.FunctionDef
Journals = Mapping[str, Sequence[Event]]


@dataclass(frozen=True, slots=True)
class Guard:
    """A change of a workflow's file that was tried: these runs fit then."""

    file: str
    patch: str
    """What the guard is called: the argument of `patched`."""
    runs: frozenset[str]
    diff: str

    def as_json(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "patch": self.patch,
            "runs": sorted(self.runs),
            "diff": self.diff,
        }


FITTING = 200
"""Live runs of a workflow that fit, and on which a guard is tried, too."""


async def propose_guards(
    store: Store,
    workflows: Mapping[str, Workflow[..., Any]],
    report: CheckReport,
    old_source: Callable[[Path], str | None],
) -> list[Guard]:
    """A guard for each workflow with stuck runs, where there is one; the runs that fit with it are
    no longer `stuck` in the report, but `needs patched`.

    `old_source`: a file's text as it is deployed, or None if nobody knows.
    """
    max_payload = config.section("runtime", Settings).max_payload
    found: list[Guard] = []
    for name in sorted({each.workflow for each in report.problems if each.verdict == "stuck"}):
        problems = {each.run_id: each for each in report.problems if each.workflow == name}
        stuck = [run for run, each in problems.items() if each.verdict == "stuck" and each.key]
        live = await store.list_runs(RunFilter(workflow=name, status=LIVE), FITTING, None)
        fitting = [run.id for run in live.runs if run.id not in problems]
        guard = find_guard(
            workflows[name],
            {run: await store.load(run) for run in stuck},
            {run: await store.load(run) for run in fitting},
            old_source=old_source(Path(workflows[name].function.__code__.co_filename)),
            max_payload=max_payload,
        )
        if guard is not None:
            found.append(guard)
            for run in guard.runs:
                report.judge_anew(problems[run], "needs patched")
    return found


def find_guard(
    workflow: Workflow[..., Any],
    broken: Journals,
    fitting: Journals,
    *,
    old_source: str | None,
    max_payload: int,
) -> Guard | None:
    """The guard that makes the most of the `broken` runs fit, and none of the others unfit."""
    file = Path(workflow.function.__code__.co_filename)
    if "<locals>" in workflow.function.__qualname__ or not file.is_file():
        return None
    source = file.read_text(encoding="utf-8")
    called = {replay(workflow, j, max_payload=max_payload).called for j in broken.values()}
    best: Guard | None = None
    for patch, guarded, changed in _candidates(workflow, source, old_source, called - {""}):
        candidate = _with_source(workflow, guarded, changed)
        if candidate is None or not _all_fit(candidate, fitting, max_payload):
            continue
        runs = frozenset(
            run for run, journal in broken.items() if _fits(candidate, journal, max_payload)
        )
        if len(runs) > (0 if best is None else len(best.runs)):
            best = Guard(str(file), patch, runs, _diff(str(file), source, guarded))
        if best is not None and len(best.runs) == len(broken):
            break
    return best


def _fits(workflow: Workflow[..., Any], journal: Sequence[Event], max_payload: int) -> bool:
    found: Replayed = replay(workflow, journal, max_payload=max_payload)
    return found.error is None


def _all_fit(workflow: Workflow[..., Any], journals: Journals, max_payload: int) -> bool:
    return all(_fits(workflow, journal, max_payload) for journal in journals.values())


def _diff(file: str, before: str, after: str) -> str:
    path = Path(file)
    if path.is_relative_to(Path.cwd()):
        file = str(path.relative_to(Path.cwd()))
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{file}", f"b/{file}"
    )
    return "".join(lines)


# --- what to try ---

Candidate = tuple[str, str, set[str]]
"""The patch's name, the guarded source, and the functions in it that differ."""


def _candidates(
    workflow: Workflow[..., Any], source: str, old_source: str | None, called: set[str]
) -> Iterator[Candidate]:
    new = _functions(source)
    if old_source is not None:
        old = _functions(old_source)
        changed = {name for name in new.keys() & old.keys() if not _same(new[name], old[name])}
        for hunks_of in (_hunks, _whole):
            if changed:
                hunks = [h for name in changed for h in hunks_of(old[name].body, new[name].body)]
                yield from _guarded(workflow, source, old_source, hunks, changed)
    name = workflow.function.__name__
    if name in new:
        for block in _blocks(new[name].body):
            for place, statement in enumerate(block):
                if _calls(statement) & called and not _is_block(statement):
                    hunk = _Hunk([], [statement], block, place)
                    yield from _guarded(workflow, source, "", [hunk], {name})


def _functions(source: str) -> dict[str, Function]:
    tree = ast.parse(source)
    found = (node for node in tree.body if isinstance(node, Function))
    return {node.name: node for node in found}


def _same(one: ast.AST, other: ast.AST) -> bool:
    return ast.dump(one) == ast.dump(other)


@dataclass(frozen=True, slots=True)
class _Hunk:
    """Statements of a block that differ: what they were, what they are, and where."""

    old: list[ast.stmt]
    new: list[ast.stmt]
    block: list[ast.stmt]
    place: int


def _whole(old: list[ast.stmt], new: list[ast.stmt]) -> list[_Hunk]:
    skip_old, skip_new = _docstring(old), _docstring(new)
    return [_Hunk(old[skip_old:], new[skip_new:], new, skip_new)]


def _docstring(body: list[ast.stmt]) -> int:
    first = body[0]
    text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return int(text and len(body) > 1)


def _hunks(old: list[ast.stmt], new: list[ast.stmt]) -> list[_Hunk]:
    """The statements that differ, as deep inside of blocks as can be."""
    matcher = difflib.SequenceMatcher(
        None, [ast.dump(s) for s in old], [ast.dump(s) for s in new], autojunk=False
    )
    found: list[_Hunk] = []
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag == "equal":
            continue
        inner = _inside(old[a], new[c]) if b - a == d - c == 1 else None
        found += inner if inner is not None else [_Hunk(old[a:b], new[c:d], new, c)]
    return found


_PARTS = ("body", "orelse", "finalbody")


def _inside(old: ast.stmt, new: ast.stmt) -> list[_Hunk] | None:
    """What differs inside of two blocks with the same head; None if that is not all."""
    if type(old) is not type(new) or not _is_block(new) or isinstance(new, ast.Try):
        return None
    heads = [copy.copy(old), copy.copy(new)]
    for head in heads:
        for part in _PARTS:
            if hasattr(head, part):
                setattr(head, part, [])
    if not _same(*heads):
        return None
    found: list[_Hunk] = []
    for part in _PARTS:
        before = cast("list[ast.stmt]", getattr(old, part, []))
        after = cast("list[ast.stmt]", getattr(new, part, []))
        if bool(before) != bool(after):
            return None
        found += _hunks(before, after)
    return found


def _is_block(statement: ast.stmt) -> bool:
    return bool(getattr(statement, "body", None))


def _blocks(body: list[ast.stmt]) -> Iterator[list[ast.stmt]]:
    yield body
    for statement in body:
        for part in _PARTS:
            inner = getattr(statement, part, None)
            if inner:
                yield from _blocks(inner)


def _calls(node: ast.AST) -> set[str]:
    """The last part of the name of each function that is called there."""
    found: set[str] = set()
    for each in ast.walk(node):
        if isinstance(each, ast.Call):
            function = each.func
            if isinstance(function, ast.Name):
                found.add(function.id)
            elif isinstance(function, ast.Attribute):
                found.add(function.attr)
    return found


# --- writing ---


def _guarded(
    workflow: Workflow[..., Any],
    source: str,
    old_source: str,
    hunks: Sequence[_Hunk],
    changed: set[str],
) -> Iterator[Candidate]:
    if not hunks:
        return
    patch = _patch_name(workflow.name, source, hunks)
    namespace = workflow.function.__globals__
    lines = source.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    old_lines = old_source.splitlines(keepends=True)
    name = _spelled(namespace)
    for hunk in sorted(hunks, key=_line, reverse=True):
        indent = " " * hunk.block[0].col_offset
        new = _moved(hunk.new, lines, indent)
        old = _moved(hunk.old, old_lines, indent)
        if new:
            text = [f'{indent}if {name}("{patch}"):\n', *new]
            text += [f"{indent}else:\n", *old] if old else []
        else:
            text = [f'{indent}if not {name}("{patch}"):\n', *old]
        first = _line(hunk) - 1
        last = (hunk.new[-1].end_lineno or first) if hunk.new else first
        lines[first:last] = text
    if name == "patched" and namespace.get("patched") is not patched:
        _import_patched(lines)
    guarded = "".join(lines)
    try:
        ast.parse(guarded)
    except SyntaxError:
        return  # statements that share a line, an `elif`: the next candidate is the whole body
    yield patch, guarded, changed


def _line(hunk: _Hunk) -> int:
    """The line of the new source that the hunk begins at."""
    if hunk.place < len(hunk.block):
        return hunk.block[hunk.place].lineno
    return (hunk.block[-1].end_lineno or hunk.block[-1].lineno) + 1


def _moved(statements: Sequence[ast.stmt], lines: Sequence[str], indent: str) -> list[str]:
    """The text of statements, one level deeper than `indent`; texts over several lines stay."""
    if not statements:
        return []
    fixed = {
        line
        for statement in statements
        for node in ast.walk(statement)
        if isinstance(node, ast.Constant | ast.JoinedStr)
        for line in range(node.lineno + 1, (node.end_lineno or node.lineno) + 1)
    }
    first, last = statements[0].lineno, statements[-1].end_lineno or statements[-1].lineno
    before = statements[0].col_offset
    moved: list[str] = []
    for number in range(first, last + 1):
        line = lines[number - 1]
        if number in fixed or not line.strip():
            moved.append(line)
        else:
            moved.append(f"{indent}    {line[min(before, len(line) - len(line.lstrip())) :]}")
    return moved


def _patch_name(workflow: str, source: str, hunks: Sequence[_Hunk]) -> str:
    """A name that tells what it is about: `order-check-stock`, `order-without-charge`."""
    new = {call for hunk in hunks for statement in hunk.new for call in _calls(statement)}
    old = {call for hunk in hunks for statement in hunk.old for call in _calls(statement)}
    about = ""
    if new - old:
        about = min(new - old)
    elif old - new:
        about = f"without-{min(old - new)}"
    elif new:
        about = min(new)
    name = "-".join(part for part in (workflow, about or "changed") if part).replace("_", "-")
    number = 2
    chosen = name
    while f'"{chosen}"' in source or f"'{chosen}'" in source:
        chosen, number = f"{name}-{number}", number + 1
    return chosen


def _spelled(namespace: Mapping[str, Any]) -> str:
    """How this module says `patched`: it has the name, or the package, or gets the name."""
    if namespace.get("patched") is patched:
        return "patched"
    package = namespace.get("holdfast")
    return "holdfast.patched" if getattr(package, "__name__", "") == "holdfast" else "patched"


def _import_patched(lines: list[str]) -> None:
    tree = ast.parse("".join(lines))
    place = _docstring(tree.body) and (tree.body[0].end_lineno or 0)
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == "holdfast":
            names = sorted([*(a.name for a in node.names if a.asname is None), "patched"])
            renamed = [f"{a.name} as {a.asname}" for a in node.names if a.asname is not None]
            line = f"from holdfast import {', '.join([*names, *renamed])}\n"
            if len(line) <= 101:
                lines[node.lineno - 1 : node.end_lineno] = [line]
                return
        if isinstance(node, ast.Import | ast.ImportFrom):
            place = node.end_lineno or place
    lines.insert(int(place), "from holdfast import patched\n")


# --- trying ---


def _with_source(
    workflow: Workflow[..., Any], source: str, changed: set[str]
) -> Workflow[..., Any] | None:
    """The workflow as it would be with this source; None if that can't be told."""
    original = workflow.function.__globals__
    namespace: dict[str, Any] = dict(original)
    namespace["patched"] = patched
    for name, value in original.items():
        if isinstance(value, FunctionType) and value.__globals__ is original:
            made = FunctionType(
                value.__code__, namespace, value.__name__, value.__defaults__, value.__closure__
            )
            made.__kwdefaults__ = value.__kwdefaults__
            namespace[name] = made
    functions = _functions(source)
    own = workflow.function.__name__
    compile_ = _compiler(workflow.function)
    function: Callable[..., Any] | None = None
    for name in changed | {own}:
        known = original.get(name)
        if name not in functions or not isinstance(known, FunctionType | Workflow):
            return None
        node = functions[name]
        node.decorator_list = []
        exec(compile_(ast.Module([node], [])), namespace)  # noqa: S102 - the user's own code
        if name == own:
            function = namespace[name]
        if isinstance(known, Workflow):
            namespace[name] = known
    if function is None:
        return None
    made_workflow = copy.copy(workflow)
    made_workflow.function = function
    return made_workflow


def _compiler(function: Callable[..., Any]) -> Callable[[ast.Module], Any]:
    code = function.__code__
    flags = code.co_flags & __future__.annotations.compiler_flag
    return lambda tree: compile(tree, code.co_filename, "exec", flags, dont_inherit=True)
