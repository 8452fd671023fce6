"""Public names of a package that are loaded when first used, so that importing it costs nothing.

The names are listed once, in the package's `__init__.pyi`: type checkers and editors read them
there, and so does `lazily`. A stub holds `from module import Name as Name` and nothing that has to
be executed. See decision 0014 for why this is not the `lazy_loader` package.
"""

from __future__ import annotations

import importlib
import sys

TYPE_CHECKING = False  # `typing` costs more than all of this
if TYPE_CHECKING:
    from typing import Any


def lazily(package: str) -> None:
    """Give the package, from its `__init__.py`, the names of the stub beside it."""
    module = sys.modules[package]
    homes = names_in(_stub(package))

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(homes[name]), name)
        setattr(module, name, value)  # found without us from now on
        return value

    public = sorted(homes)
    module.__dict__.update(__getattr__=load, __dir__=lambda: public, __all__=public)


def names_in(stub: str) -> dict[str, str]:
    """Each name that a stub imports, and the module it comes from."""
    homes: dict[str, str] = {}
    for statement in ("\n" + stub).split("\nfrom ")[1:]:
        module, _, rest = statement.partition(" import ")
        listed = rest[1 : rest.index(")")] if rest.startswith("(") else rest.partition("\n")[0]
        for each in listed.split(","):
            if name := each.partition(" as ")[0].strip():
                homes[name] = module
    return homes


def _stub(package: str) -> str:
    """The text of the stub, by the package's own loader: it may be in a zip file."""
    module: Any = sys.modules[package]
    return module.__loader__.get_data(f"{module.__path__[0]}/__init__.pyi").decode()
