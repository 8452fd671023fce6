"""Errors as the journal keeps them, and back.

An error comes back as what it was when it can be made again from its recorded arguments;
otherwise as StepFailed, which carries its name, message and traceback. Which of the two is
decided when it is recorded, so that live and replay see the same.
"""

from __future__ import annotations

import json
import sys
import traceback
from datetime import timedelta
from decimal import Decimal
from importlib.machinery import ModuleSpec
from pathlib import PurePath
from typing import Any

from holdfast.errors import HoldfastError, StepFailed
from holdfast.records import ErrorInfo

MAX_TRACEBACK = 16 * 1024
MAX_MESSAGE = 64 * 1024


def describe(error: BaseException) -> ErrorInfo:
    """What to record of an error."""
    text = "".join(traceback.format_exception(error))
    if len(text) > MAX_TRACEBACK:
        half = MAX_TRACEBACK // 2
        text = f"{text[:half]}\n… {len(text) - 2 * half:,} characters left out …\n{text[-half:]}"
    message = error.message if isinstance(error, HoldfastError) else str(error)
    return ErrorInfo(type(error).__name__, message[:MAX_MESSAGE], text, _recipe(error))


def _recipe(error: BaseException) -> dict[str, Any] | None:
    """How to make the error again, if doing so gives the same."""
    kind = type(error)
    state = {name: _packed(each) for name, each in vars(error).items() if name != "__notes__"}
    recipe = {
        "module": _module_of(kind),
        "name": kind.__qualname__,
        "bases": [[_module_of(base), base.__qualname__] for base in _ancestors(kind)],
        "args": list(error.args),
        "state": state,
    }
    try:
        text = json.dumps(recipe)
        if len(text) > MAX_MESSAGE or json.loads(text) != recipe:
            return None
    except (TypeError, ValueError):
        return None
    again = _make(recipe)
    return recipe if again is not None and again.args == error.args else None


def _packed(value: Any) -> Any:
    """Amounts and durations, which errors carry and JSON does not know."""
    if isinstance(value, Decimal):
        return {"$decimal": str(value)}
    if isinstance(value, timedelta):
        return {"$seconds": value.total_seconds()}
    return value


def _unpacked(value: Any) -> Any:
    match value:
        case {"$decimal": str(text)}:
            return Decimal(text)
        case {"$seconds": float(number)}:
            return timedelta(seconds=number)
        case _:
            return value


def _module_of(kind: type) -> str:
    return _main_name() if kind.__module__ == "__main__" else kind.__module__


def _ancestors(kind: type) -> list[type[Exception]]:
    return [base for base in kind.__mro__[1:] if issubclass(base, Exception)]


def _make(recipe: dict[str, Any]) -> Exception | None:
    found = _find(recipe["module"], recipe["name"]) or _stand_in(recipe)
    if found is None:
        return None
    made = found.__new__(found, *recipe["args"])
    made.args = tuple(recipe["args"])
    made.__dict__.update({name: _unpacked(each) for name, each in recipe["state"].items()})
    return made


def _find(module: str, name: str) -> type[Exception] | None:
    """An error's class, among the modules that are loaded: reading a journal imports nothing.

    The same file may have been another module when the error was recorded: a program of its
    own then (`python orders.py`), and now loaded by a worker, as `orders` or `shop.orders`.
    """
    last = module.rpartition(".")[2]
    alike = [n for n in list(sys.modules) if n != module and n.rpartition(".")[2] == last]
    main = ["__main__"] if _main_name().rpartition(".")[2] == last else []
    for candidate in (module, *main, *alike):
        found: Any = sys.modules.get(candidate)
        for part in name.split("."):
            found = getattr(found, part, None)
        if isinstance(found, type) and issubclass(found, Exception):
            return found
    return None


def _stand_in(recipe: dict[str, Any]) -> type[Exception] | None:
    """A class for an error whose own is not loaded here, caught by the same `except` clauses.

    A step that imports a library when it is called raises that library's errors; on replay the
    step is not called, and the library not loaded.
    """
    bases = [_find(module, name) for module, name in recipe.get("bases", ())]
    loaded = [base for base in bases if base is not None]
    nearest = [b for b in loaded if not any(o is not b and issubclass(o, b) for o in loaded)]
    if not nearest:
        return None
    name = recipe["name"]
    named = {"__module__": recipe["module"], "__qualname__": name}
    return type(name.rpartition(".")[2], tuple(nearest), named)


def _main_name() -> str:
    """What the program's own module is called when it is imported rather than run."""
    main = sys.modules.get("__main__")
    spec: ModuleSpec | None = getattr(main, "__spec__", None)
    if spec is not None:
        return spec.name.removesuffix(".__main__")
    file: str | None = getattr(main, "__file__", None)
    return PurePath(file).stem if file else "__main__"


def rebuild(info: ErrorInfo) -> Exception:
    """The error to raise in the workflow."""
    made = None
    if info.rebuild is not None:
        try:
            made = _make(info.rebuild)
        except TypeError:  # its class has changed since
            made = None
    if made is None:
        return StepFailed(str(info), type=info.type, traceback=info.traceback)
    if info.traceback:
        made.add_note(f"as recorded in the journal:\n{info.traceback.rstrip()}")
    return made


def chain(error: BaseException) -> list[BaseException]:
    """An error and everything it came from."""
    found: list[BaseException] = []
    todo: list[BaseException | None] = [error]
    while todo:
        each = todo.pop()
        if each is None or any(each is other for other in found):
            continue
        found.append(each)
        todo += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            todo += list(each.exceptions)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    return found
