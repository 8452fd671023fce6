"""Import a user's file or module, as Python itself would from its folder."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from holdfast.errors import NotFound


def is_file_name(named: str) -> bool:
    """Whether `orders.py` is meant rather than `shop.orders`."""
    return named.endswith(".py") or "/" in named


def load_module(named: str, root: Path) -> ModuleType:
    """`orders.py`, by its path from `root`, or `shop.orders`; a file is executed once."""
    if not is_file_name(named):
        _search(root)
        return importlib.import_module(named)
    path = (root / named).resolve()
    if not path.is_file():
        raise NotFound(f"there is no file {named} in {root}")
    # A file of the user's may be called as a module that others have imported: both are kept.
    for name in (path.stem, f"_holdfast.{path.stem}"):
        known = sys.modules.get(name)
        if known is None:
            break
        if getattr(known, "__file__", None) == str(path):
            return known
    _search(path.parent)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{named} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _search(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
