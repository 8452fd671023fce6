"""Loading the files and modules that define the user's workflows."""

from __future__ import annotations

import importlib
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from holdfast.cli.options import nearest
from holdfast.errors import NotFound, UnknownWorkflow, UsageError
from holdfast.ready import user_modules
from holdfast.ready.user_modules import is_file_name, load_module
from holdfast.runtime.definitions import Workflow, registered

AGENTS = ("holdfast.agents.code.workflow", "holdfast.agents.repo.workflow")
"""The ready-made agents, whose runs every worker carries out."""


def load_agents() -> set[str]:
    """Import the ready-made agents; the names of their workflows."""
    for module in AGENTS:
        importlib.import_module(module)
    return set(registered())


def load(named: str) -> ModuleType:
    """Import `orders.py` or `shop.orders`, as Python itself would from this folder."""
    if is_file_name(named) and not Path(named).is_file():
        raise NotFound(f"there is no file {named}")
    try:
        return load_module(named, Path.cwd())
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"{named} can't be loaded: {type(error).__name__}: {error}{_place(error)}"
        ) from error


def _place(error: BaseException) -> str:
    """Where in the user's code it went wrong."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = (__file__, user_modules.__file__)
    inside = [f for f in frames if "importlib" not in f.filename and f.filename not in ours]
    if not inside:
        return ""
    return f"\n  in {inside[-1].filename}, line {inside[-1].lineno}"


def load_workflow(named: str) -> Workflow[..., Any]:
    """The workflow that `FILE.py:name` or `MODULE:name` stands for."""
    place, sign, name = named.rpartition(":")
    if not sign or not place or not name:
        raise UsageError(
            f"{named!r} names no workflow", hint="write it as FILE.py:workflow or MODULE:workflow"
        )
    found = getattr(load(place), name, None) or registered().get(name)
    if isinstance(found, Workflow):
        return found  # pyright: ignore[reportUnknownVariableType]
    # The agents' workflows are registered, too, and not this file's.
    own = {
        flow
        for flow, each in registered().items()
        if not each.function.__module__.startswith("holdfast.")
    }
    hint = nearest(name, own) if own else "mark it with @workflow"
    raise UnknownWorkflow(f"{place} has no workflow {name!r}", hint=hint)
