"""Names of a package that are loaded when first used, so that importing it costs nothing."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def lazily(package: str, homes: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """A `__getattr__` for a package: which of its modules has which names."""
    home = {name: module for module, names in homes.items() for name in names}

    def find(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{package}.{home[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return find
