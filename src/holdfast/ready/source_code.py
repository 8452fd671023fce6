"""The project's source as trees: functions by what their decorators make of them, names resolved.

A name in the source is looked up in the module as it was loaded, so that `from time import time as
clock` is found out, and a function of one's own called `time` is not mistaken for it.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Literal

from holdfast import create_webhook, start, step, tool, wait_for_event, workflow
from holdfast.ready.project import Project, code_of
from holdfast.sandbox.sandbox import Sandbox

Function = ast.FunctionDef | ast.AsyncFunctionDef
Kind = Literal["workflow", "step", "tool", "plain"]
_MISSING: Any = object()
_DECORATORS: dict[Any, Kind] = {workflow: "workflow", step: "step", tool: "tool"}
WAITS = (wait_for_event,)
START = start
SANDBOX = Sandbox
WEBHOOK = create_webhook


@dataclass(frozen=True)
class Source:
    """One file of the project."""

    path: str
    """Relative to the project."""
    tree: ast.Module
    names: dict[str, Any]
    """What the module's names stand for, as loaded."""

    @cached_property
    def functions(self) -> tuple[SourceFunction, ...]:
        found: list[SourceFunction] = []
        self._collect(self.tree, (), found)
        return tuple(found)

    def _collect(
        self, node: ast.AST, around: tuple[Function, ...], found: list[SourceFunction]
    ) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                found.append(SourceFunction(self, child, around))
                self._collect(child, (*around, child), found)
            else:
                self._collect(child, around, found)

    def resolve(self, node: ast.AST) -> Any:
        """The object that a dotted name stands for; None if that can't be known."""
        found = self._look_up(node)
        return None if found is _MISSING else found

    def _look_up(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Name):
            builtins = importlib.import_module("builtins").__dict__
            return self.names.get(node.id, builtins.get(node.id, _MISSING))
        if isinstance(node, ast.Attribute):
            base = self._look_up(node.value)
            # Only where looking carries out nothing of the user's: modules and classes.
            if isinstance(base, ModuleType | type):
                return getattr(base, node.attr, _MISSING)
        return _MISSING

    def calls(self, node: ast.AST) -> Iterator[ast.Call]:
        """Every call below a node."""
        for each in ast.walk(node):
            if isinstance(each, ast.Call):
                yield each


@dataclass(frozen=True)
class SourceFunction:
    """A function in a file, wherever it is."""

    source: Source
    node: Function
    around: tuple[Function, ...] = ()

    @property
    def name(self) -> str:
        return self.node.name

    @cached_property
    def kind(self) -> Kind:
        for decorator in self.node.decorator_list:
            made = self.source.resolve(
                decorator.func if isinstance(decorator, ast.Call) else decorator
            )
            for known, kind in _DECORATORS.items():
                if made is known:
                    return kind
        return "plain"

    def options(self) -> set[str]:
        """The names of the options its decorator was given."""
        return {
            keyword.arg
            for decorator in self.node.decorator_list
            if isinstance(decorator, ast.Call)
            for keyword in decorator.keywords
            if keyword.arg
        }

    @property
    def is_route(self) -> bool:
        """Whether a web framework calls it: `@app.post("/…")`."""
        verbs = {"get", "post", "put", "patch", "delete", "route", "websocket"}
        called = [d.func for d in self.node.decorator_list if isinstance(d, ast.Call)]
        return any(isinstance(each, ast.Attribute) and each.attr in verbs for each in called)

    def own_nodes(self) -> Iterator[ast.AST]:
        """Everything in its body, but nothing of functions in it that are more than plain."""
        apart = {f.node for f in self.source.functions if f.kind != "plain"} - {self.node}

        def walk(node: ast.AST) -> Iterator[ast.AST]:
            for child in ast.iter_child_nodes(node):
                if child in apart:
                    continue
                yield child
                yield from walk(child)

        for statement in self.node.body:
            yield statement
            yield from walk(statement)

    def own_calls(self) -> Iterator[ast.Call]:
        for node in self.own_nodes():
            if isinstance(node, ast.Call):
                yield node


class Sources:
    """All files of a project that were loaded."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.files: list[Source] = []
        for module in project.modules:
            path = Path(str(module.__file__))
            tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
            self.files.append(Source(project.relative(path), tree, vars(module)))

    @cached_property
    def functions(self) -> tuple[SourceFunction, ...]:
        return tuple(each for source in self.files for each in source.functions)

    def of_kind(self, *kinds: Kind) -> list[SourceFunction]:
        return [each for each in self.functions if each.kind in kinds]

    def called(self, function: SourceFunction) -> list[SourceFunction]:
        """The function and the project's plain ones that it calls by name, however deep."""
        found, open_ = {function.node: function}, [function]
        while open_:
            for call in open_.pop().own_calls():
                target = self._plain(function.source.resolve(call.func))
                if target is not None and target.node not in found:
                    found[target.node] = target
                    open_.append(target)
        return list(found.values())

    def function_of(self, made: Any) -> SourceFunction | None:
        """The source of a function of the project."""
        code = code_of(made)
        if code is None:
            return None
        return self._by_place.get((self.project.relative(code.co_filename), code.co_firstlineno))

    @cached_property
    def _by_place(self) -> dict[tuple[str, int], SourceFunction]:
        return {
            (
                each.source.path,
                min([each.node.lineno, *(d.lineno for d in each.node.decorator_list)]),
            ): each
            for each in self.functions
        }

    def _plain(self, made: Any) -> SourceFunction | None:
        found = self.function_of(made) if isinstance(made, FunctionType) else None
        return found if found is not None and found.kind == "plain" else None


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """The value that a call gives a keyword, if it does."""
    return next((each.value for each in call.keywords if each.arg == name), None)


def text_of(node: ast.AST | None) -> str | None:
    """A text written in the source, if it is one."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def words_in(node: ast.AST) -> set[str]:
    """Every name, attribute and text below a node."""
    found: set[str] = set()
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            found.add(each.id)
        elif isinstance(each, ast.Attribute):
            found.add(each.attr)
        elif isinstance(each, ast.Constant) and isinstance(each.value, str):
            found.add(each.value)
    return found
