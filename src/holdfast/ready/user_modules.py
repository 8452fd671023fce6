"""Import a user's file or module for a test, as Python itself would from its folder."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from holdfast.errors import NotFound


def load_module(named: str, root: Path) -> ModuleType:
    """`orders.py`, by its path from `root`, or `shop.orders`; a file is executed once."""
    if not named.endswith(".py"):
        return importlib.import_module(named)
    path = (root / named).resolve()
    known = sys.modules.get(path.stem)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise NotFound(f"there is no file {named} in {root}")
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
