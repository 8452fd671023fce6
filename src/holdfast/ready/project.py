"""A user's project as it is examined: where it is, what it defines, what was written about it.

    [project]
    app = ["desk.py"]                       # what a worker would be given
    examples.answer = { ticket = { … } }    # what a drill starts a workflow with

Loading a project carries its modules out: do it in a process of its own, and never in that of a
server or a command.
"""

from __future__ import annotations

import gc
import os
import sys
import typing
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar, cast

from holdfast import config, session
from holdfast.errors import ConfigError, NotFound
from holdfast.loop.agent import Agent
from holdfast.loop.tools import AgentTool
from holdfast.ready.project_settings import SECTION, ProjectSettings
from holdfast.ready.user_modules import load_module
from holdfast.runtime.definitions import Step, Workflow, registered

T = TypeVar("T")
_NOT_OURS = frozenset({"site-packages", "dist-packages", "node_modules", "__pycache__"})


def find(named: Path | None) -> Path | None:
    """The folder of the project: the one named, or this one if its file has a `[project]`.

    A file that is named stands for its folder.
    """
    if named is None:
        return Path.cwd() if Path(config.FILE).exists() and SECTION in config.read() else None
    if not named.exists():
        raise NotFound(f"there is no project at {named}")
    return (named.parent if named.is_file() else named).resolve()


@dataclass(frozen=True)
class Project:
    """What was loaded. Everything in it is the user's own, and none of Holdfast's."""

    root: Path
    settings: ProjectSettings
    profile: str
    modules: tuple[ModuleType, ...]
    workflows: tuple[Workflow[..., Any], ...]
    steps: tuple[Step[..., Any], ...]
    tools: tuple[AgentTool, ...]
    agents: tuple[Agent[Any], ...]

    @property
    def store(self) -> str:
        return session.default_store()

    def relative(self, file: str | Path) -> str:
        path = Path(file).resolve()
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)

    def place(self, function: Any) -> tuple[str, int] | tuple[None, None]:
        """File and line of a function."""
        code = code_of(function)
        if code is None:
            return None, None
        return self.relative(code.co_filename), code.co_firstlineno


def load(root: Path, app: tuple[str, ...] = ()) -> Project:
    """Import the project that is in `root`, which becomes this process's folder."""
    os.chdir(root)
    sys.path.insert(0, str(root))
    settings = config.section(SECTION, ProjectSettings)
    named = app or settings.app or _guessed(root)
    if not named:
        raise ConfigError(
            f"{root} names no app, and no Python file in it uses holdfast",
            hint=f'say which in {config.FILE}: [project] app = ["agent.py"]',
        )
    for each in named:
        load_module(each, root)
    modules = tuple(
        m for m in list(sys.modules.values()) if _is_in(getattr(m, "__file__", None), root)
    )
    return Project(
        root=root,
        settings=settings,
        profile=str(config.read()["profile"]),
        modules=modules,
        workflows=tuple(w for w in registered().values() if _ours(w.function, root)),
        steps=tuple(s for s in _alive(Step[..., Any]) if _ours(s.function, root)),
        tools=tuple(t for t in _alive(AgentTool) if _ours(t.function, root)),
        agents=tuple(_alive(Agent[Any])),
    )


def _guessed(root: Path) -> tuple[str, ...]:
    """The Python files of the folder that use holdfast; tests are not part of an app."""
    files = [f for f in sorted(root.glob("*.py")) if not f.name.startswith(("test_", "conftest"))]
    return tuple(
        f.name for f in files if "holdfast" in f.read_text(encoding="utf-8", errors="replace")
    )


def _is_in(file: str | None, root: Path) -> bool:
    if not file or not file.endswith(".py"):
        return False
    path = Path(file).resolve()
    if not path.is_relative_to(root):
        return False
    inside = path.relative_to(root).parts
    return not any(part in _NOT_OURS or part.startswith(".") for part in inside)


def code_of(function: Any) -> CodeType | None:
    """The code of a function, whatever it is wrapped in."""
    while not isinstance(function, FunctionType):
        function = getattr(function, "function", None) or getattr(function, "__wrapped__", None)
        if function is None:
            return None
    return function.__code__


def _ours(function: Any, root: Path) -> bool:
    code = code_of(function)
    return code is not None and _is_in(code.co_filename, root)


def _alive(kind: type[T]) -> list[T]:
    """Every object of this kind, in the order of making: those in closures as well."""
    plain = typing.get_origin(kind) or kind
    # By type(), for isinstance() asks the object itself, which is foreign code.
    return [cast(T, each) for each in gc.get_objects() if issubclass(type(each), plain)]
