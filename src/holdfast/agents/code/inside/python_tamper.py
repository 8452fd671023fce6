"""What a program replaced of the modules its tests use: `math.isclose`, `pytest.raises` …

What the tests import is loaded before the program is, and each function, class and method of it
remembered. That the tests themselves replace things is fine.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import re
import sys
from collections.abc import Mapping
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from holdfast.agents.code.inside import python_watch

_OURS = ("solution", "test_solution", "conftest")
_CHANGE_BY_THEMSELVES = ("sys", "warnings", "threading", "logging", "os.environ")
_ALWAYS = ("pytest", "_pytest", "unittest")
"""If they are loaded at all."""
_PATCHING = re.compile(r"setattr|delattr|patch|mock|object", re.IGNORECASE)


def load_imports(tree: ast.Module) -> None:
    """Import what the tests import, as long as only the originals are to be found."""
    for name in _imported(tree):
        try:
            importlib.import_module(name)
        except Exception:  # noqa: S110 - the tests will say so themselves
            pass


def _imported(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return {name for name in names if name.partition(".")[0] not in _OURS}


class Originals:
    """The functions, classes and methods of the modules that the tests use, as they were."""

    def __init__(self, tree: ast.Module) -> None:
        self._assigned = _assigned(tree)
        self._reloads = _reloads(tree)
        self._mark: Any = getattr(sys.modules.get("pytest"), "mark", ModuleType("none"))
        self._modules: list[tuple[str, ModuleType]] = []
        self._kept: list[tuple[str, Any, str, Any, Any]] = []
        tops = {name.partition(".")[0] for name in _imported(tree)} | set(_ALWAYS)
        self._keep(builtins)
        for name, module in list(sys.modules.items()):
            top = name.partition(".")[0]
            if top in tops and name not in _CHANGE_BY_THEMSELVES and module.__name__ == name:
                self._keep(module)

    def _keep(self, module: ModuleType) -> None:
        self._modules.append((module.__name__, module))
        for name, value in list(vars(module).items()):
            if not callable(value):
                continue
            self._kept.append((module.__name__, module, name, value, _code(value)))
            if isinstance(value, type) and value.__module__ == module.__name__:
                self._keep_class(module.__name__, value)

    def _keep_class(self, module: str, kept: type) -> None:
        place = f"{module}.{kept.__qualname__}"
        members: list[tuple[str, Any]] = list(vars(kept).items())
        for name, value in members:
            if callable(value) or type(value) in (classmethod, staticmethod, property):
                self._kept.append((place, kept, name, value, _code(value)))

    def replaced(self) -> str | None:
        """The name of something that is no longer what it was."""
        if python_watch.traced():
            return "sys.settrace"
        if "parametrize" in _members(self._mark):  # pytest makes it anew each time it is asked for
            return "pytest.mark.parametrize"
        for name, module in self._modules:
            if sys.modules.get(name) is not module:
                return f"the module {name}"
        for place, holder, name, value, code in self._kept:
            top = place.partition(".")[0]
            if name in self._assigned or (self._reloads and top not in ("builtins", *_ALWAYS)):
                continue
            now = _members(holder).get(name)
            if now is not value or (code is not None and value.__code__ is not code):
                return f"{place}.{name}"
        return None


def _members(holder: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", vars(holder))


def _code(value: object) -> object:
    return value.__code__ if isinstance(value, FunctionType) else None


def _reloads(tree: ast.Module) -> bool:
    """Whether the tests load modules anew, which replaces all that is in them."""
    names = (getattr(node, "attr", getattr(node, "id", "")) for node in ast.walk(tree))
    return "reload" in names


def _assigned(tree: ast.Module) -> set[str]:
    """The names that the tests may have replaced by themselves.

    Attributes they set (`time.sleep = …`), and if they have anything to replace things with, all
    the words in their strings: `patch("time.sleep")`, `setattr(time, "sleep", …)`.
    """
    found: set[str] = set()
    words: set[str] = set()
    patches = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            if isinstance(node.ctx, ast.Store | ast.Del):
                found.add(node.attr)
            patches = patches or _PATCHING.search(node.attr) is not None
        elif isinstance(node, ast.Name):
            patches = patches or _PATCHING.search(node.id) is not None
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            words |= set(re.findall(r"\w+", node.value))
    return found | words if patches else found
