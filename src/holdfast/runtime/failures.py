"""Errors as the journal keeps them, and back.

Neither describing an error nor rebuilding one ever raises, whatever the error is: what a step
raised is foreign code, down to its `__str__`, and a failure to record it would leave the step
without an end. So no method of an error's class is relied on, and each part that can't be had
has something in its stead.

An error comes back as what it was when it can be made again from what was recorded of it;
otherwise as StepFailed, which carries its name, message and traceback. Which of the two is
decided when it is recorded, so that live and replay see the same. Its class's own `__new__` and
`__init__` are not called: they may want other arguments, and what they did is in the fields.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import PurePath
from types import BuiltinFunctionType, GetSetDescriptorType, MemberDescriptorType
from typing import Any, Final, TypeVar, cast

from holdfast.errors import HoldfastError, StepFailed
from holdfast.records import ErrorInfo
from holdfast.runtime.error_values import Unstorable, packed, unpacked

MAX_TRACEBACK = 16 * 1024
MAX_MESSAGE = 64 * 1024
MAX_INNER_MESSAGE = 4 * 1024
"""Of an error's causes, notes and members, of which there may be many."""
MAX_ERRORS = 32
"""Kept of one chain or group."""
MAX_NOTES = 16

T = TypeVar("T")
Descriptor = GetSetDescriptorType | MemberDescriptorType

_JOURNALED: Final = "as recorded in the journal:\n"

# Read by these, since a class may have put something of its own in the attributes' place.
_cause: Any = BaseException.__dict__["__cause__"]
_context: Any = BaseException.__dict__["__context__"]
_suppress: Any = BaseException.__dict__["__suppress_context__"]
_args: Any = BaseException.__dict__["args"]
_fields: Any = BaseException.__dict__["__dict__"]
_group_members: Any = BaseExceptionGroup.__dict__["exceptions"]
_group_message: Any = BaseExceptionGroup.__dict__["message"]
_class_name: Any = type.__dict__["__name__"]
_class_qualname: Any = type.__dict__["__qualname__"]


def _try(action: Callable[[], T], otherwise: T) -> T:
    """What the action gives; if it fails in any way, the other."""
    try:
        return action()
    except BaseException:  # noqa: BLE001 - the action runs foreign code, which may raise anything
        return otherwise


# --- describing ---


def describe(error: BaseException) -> ErrorInfo:
    """What to record of an error. Never raises."""
    return _try(lambda: _Description(error).info, _bare(error))


def _bare(error: BaseException) -> ErrorInfo:
    return ErrorInfo(_class_name.__get__(type(error)), "")


class _Description:
    """One error and what it came from, up to a number of errors in all."""

    def __init__(self, error: BaseException) -> None:
        self._left = MAX_ERRORS
        self._above: set[int] = set()
        """The errors that are being described: one that comes round again is left out."""
        self._cut = False
        self.info = self._describe(
            error, MAX_MESSAGE, lambda: _traceback(error, whole=not self._cut)
        )

    def _describe(self, error: BaseException, limit: int, text: Callable[[], str]) -> ErrorInfo:
        self._left -= 1
        self._above.add(id(error))
        inner_cause, inner_context = _cause.__get__(error), _context.__get__(error)
        cause = self._inner(inner_cause)
        context = cause if inner_context is inner_cause else self._inner(inner_context)
        members = tuple(
            found for member in _members(error) if (found := self._inner(member)) is not None
        )
        self._above.discard(id(error))
        return ErrorInfo(
            type=_class_name.__get__(type(error)),
            message=_message(error, limit),
            traceback=_try(text, ""),
            rebuild=_try(lambda: _recipe(error, limit), None),
            hint=_hint(error),
            notes=(*_notes(error), *_left_out(error, members)),
            cause=cause,
            context=context,
            suppress_context=bool(_suppress.__get__(error)),
            members=members,
        )

    def _inner(self, error: BaseException | None) -> ErrorInfo | None:
        if error is None or id(error) in self._above:
            return None
        if self._left <= 0:
            self._cut = True
            return None
        return self._describe(error, MAX_INNER_MESSAGE, lambda: "")


def _members(error: BaseException) -> tuple[BaseException, ...]:
    if not issubclass(type(error), BaseExceptionGroup):
        return ()
    return _group_members.__get__(error)


def _message(error: BaseException, limit: int) -> str:
    ours = issubclass(type(error), HoldfastError)
    try:
        text: Any = cast("HoldfastError", error).message if ours else str(error)
        return _clipped(text if issubclass(type(text), str) else str(text), limit)
    except BaseException as problem:  # noqa: BLE001 - foreign code
        return f"(no message: its __str__ raised {_class_name.__get__(type(problem))})"


def _clipped(text: str, limit: int) -> str:
    # By str's own method: a subclass may have another.
    return str.__getitem__(text, slice(0, limit))


def _hint(error: BaseException) -> str | None:
    if not issubclass(type(error), HoldfastError):
        return None
    hint: Any = _try(lambda: cast("HoldfastError", error).hint, None)
    return _clipped(hint, MAX_INNER_MESSAGE) if type(hint) is str else None


def _notes(error: BaseException) -> tuple[str, ...]:
    found: Any = _try(lambda: _fields.__get__(error).get("__notes__"), None)
    if type(found) is not list:
        return ()
    notes = [note for note in cast("list[Any]", found) if type(note) is str]
    own = [_clipped(note, MAX_INNER_MESSAGE) for note in notes if not note.startswith(_JOURNALED)]
    return tuple(own[:MAX_NOTES])


def _left_out(error: BaseException, kept: tuple[ErrorInfo, ...]) -> list[str]:
    number = len(_members(error)) - len(kept)
    return [f"({number:,} more errors of this group were not recorded)"] if number else []


def _traceback(error: BaseException, *, whole: bool) -> str:
    """The traceback as Python prints it; of a chain too long for that, the frames alone."""
    try:
        # With chain=False, too, Python goes through the whole chain first.
        lines = traceback.format_exception(error) if whole else _own_frames(error)
    except BaseException:  # noqa: BLE001 - foreign code
        lines = _own_frames(error)
    text = "".join(lines)
    if len(text) > MAX_TRACEBACK:
        half = MAX_TRACEBACK // 2
        text = f"{text[:half]}\n… {len(text) - 2 * half:,} characters left out …\n{text[-half:]}"
    return text


def _own_frames(error: BaseException) -> list[str]:
    name: str = _class_name.__get__(type(error))
    last = f"{name}: {_message(error, MAX_INNER_MESSAGE)}\n"
    return ["Traceback (most recent call last):\n", *traceback.format_tb(error.__traceback__), last]


# --- the recipe: how to make an error again ---


def _recipe(error: BaseException, limit: int) -> dict[str, Any] | None:
    """How to make the error again, if doing so gives the same."""
    recipe = _ingredients(error)
    text = json.dumps(recipe)
    if len(text) > limit:
        return None
    again = _make(json.loads(text), _members(error))
    same = again is not None and _contents(_ingredients(again)) == _contents(recipe)
    return recipe if same else None


def _contents(recipe: dict[str, Any]) -> str:
    return json.dumps([recipe["args"], recipe["state"], recipe["slots"]])


def _ingredients(error: BaseException) -> dict[str, Any]:
    kind = type(error)
    group = issubclass(kind, BaseExceptionGroup)
    state: dict[str, Any] = _fields.__get__(error)
    return {
        "module": _module_of(kind),
        "name": _class_qualname.__get__(kind),
        "bases": [[_module_of(base), base.__qualname__] for base in _ancestors(kind)],
        "args": [packed(_group_message.__get__(error))] if group else _packed_args(error),
        "state": {name: packed(each) for name, each in state.items() if name != "__notes__"},
        "slots": dict(_packed_slots(error)),
    }


def _packed_args(error: BaseException) -> list[Any]:
    return [packed(each) for each in _args.__get__(error)]


def _slots(kind: type) -> Iterator[tuple[type, str, Descriptor]]:
    """What the class and its bases keep outside of `__dict__`: `__slots__`, and fields in C."""
    for base in reversed(kind.__mro__):
        for name, found in vars(base).items():
            ours = isinstance(found, Descriptor) and not name.startswith("__")
            if ours and name != "args" and base is not BaseExceptionGroup:
                yield base, name, found


def _packed_slots(error: BaseException) -> Iterator[tuple[str, Any]]:
    for base, name, slot in _slots(type(error)):
        pythons_own = base.__module__ == "builtins"
        try:
            value = slot.__get__(error)
            if value is None and pythons_own:
                continue  # not set: setting None is not the same, as with OSError.filename2
            yield name, packed(value)
        except AttributeError:
            continue  # not set
        except Unstorable:
            if not pythons_own:
                raise
            # An extra such as AttributeError.obj: a live object, for suggestions.


def _module_of(kind: type) -> str:
    return _main_name() if kind.__module__ == "__main__" else kind.__module__


def _ancestors(kind: type) -> list[type[BaseException]]:
    return [base for base in kind.__mro__[1:] if issubclass(base, BaseException)]


def _make(recipe: dict[str, Any], members: tuple[BaseException, ...]) -> BaseException | None:
    found = _find(recipe["module"], recipe["name"]) or _stand_in(recipe)
    if found is None:
        return None
    if "slots" not in recipe:
        return _make_of_old(found, recipe)
    args = tuple(unpacked(each) for each in recipe["args"])
    new = _new(found)
    if issubclass(found, BaseExceptionGroup):
        made = new(found, *args, list(members))
    else:
        made = new(found)
        _args.__set__(made, args)
    for _base, name, slot in _slots(type(made)):
        if name in recipe["slots"]:
            _set(slot, made, unpacked(recipe["slots"][name]))
    state = {name: unpacked(each) for name, each in recipe["state"].items()}
    _fields.__get__(made).update(state)
    return made


def _set(slot: Descriptor, made: BaseException, value: Any) -> None:
    try:
        slot.__set__(made, value)
    except (AttributeError, TypeError):
        return  # it can't be set, or not to "nothing": it has what Python gave it


def _new(kind: type[BaseException]) -> Callable[..., BaseException]:
    """The `__new__` of the nearest base that is written in C, which any subclass can be made by."""
    for base in kind.__mro__:
        found: Any = vars(base).get("__new__")
        if isinstance(found, BuiltinFunctionType):
            return found
    raise TypeError(f"{kind} has no __new__")


def _make_of_old(found: type[BaseException], recipe: dict[str, Any]) -> BaseException:
    """By a recipe of before fields were recorded: Python took them from the arguments."""
    made = _new(found)(found, *recipe["args"])
    _args.__set__(made, tuple(recipe["args"]))
    state: dict[str, Any] = {
        name: unpacked(each) if _is_old_tag(each) else each
        for name, each in recipe["state"].items()
    }
    _fields.__get__(made).update(state)
    return made


def _is_old_tag(value: Any) -> bool:
    return isinstance(value, dict) and list(cast("dict[str, Any]", value)) in _OLD_TAGS


_OLD_TAGS = (["$decimal"], ["$seconds"])


def _find(module: str, name: str) -> type[BaseException] | None:
    """An error's class, among the modules that are loaded: reading a journal imports nothing.

    The same file may have been another module when the error was recorded: a program of its
    own then (`python orders.py`), and now loaded by a worker, as `orders` or `shop.orders`.
    """
    return _class_in(module, name) or next(
        (found for alike in _alike(module) if (found := _class_in(alike, name)) is not None), None
    )


def _alike(module: str) -> Iterator[str]:
    """Names that the module's file may be loaded by."""
    last = module.rpartition(".")[2]
    if _main_name().rpartition(".")[2] == last:
        yield "__main__"
    for each in list(sys.modules):
        if each != module and each.rpartition(".")[2] == last:
            yield each


def _class_in(module: str, name: str) -> type[BaseException] | None:
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def _stand_in(recipe: dict[str, Any]) -> type[BaseException] | None:
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


# --- rebuilding ---


def rebuild(info: ErrorInfo) -> Exception:
    """The error to raise in the workflow. Never raises."""
    made = _try(lambda: _rebuilt(info), None)
    if made is None or not issubclass(type(made), Exception):
        made = _stand_in_for(info, made)
    if issubclass(type(made), StopIteration):
        # No future takes one: a coroutine could not tell it from its own end.
        wrapped = RuntimeError(f"raised {info}")
        wrapped.__cause__ = made
        made = wrapped
    return cast("Exception", made)


def _stand_in_for(info: ErrorInfo, made: BaseException | None) -> StepFailed:
    failed = StepFailed(str(info), type=info.type, traceback=info.traceback)
    failed.__cause__ = made
    return failed


def _rebuilt(info: ErrorInfo) -> BaseException:
    """The error with its notes, cause and context; StepFailed for one that can't be made."""
    members = tuple(_rebuilt(member) for member in info.members)
    recipe = info.rebuild
    made = None if recipe is None else _try(lambda: _make(recipe, members), None)
    if made is None:
        made = StepFailed(str(info), type=info.type, traceback=info.traceback)
        notes = list(info.notes)
    else:
        notes = [*info.notes]
        if info.traceback:
            notes.append(f"{_JOURNALED}{info.traceback.rstrip()}")
    if notes:
        _fields.__get__(made)["__notes__"] = notes
    cause = None if info.cause is None else _rebuilt(info.cause)
    if info.context is not None:
        same = info.context is info.cause
        _context.__set__(made, cause if same else _rebuilt(info.context))
    _cause.__set__(made, cause)
    _suppress.__set__(made, info.suppress_context)
    return made


def chain(error: BaseException) -> list[BaseException]:
    """An error and everything it came from. Never raises."""
    found: dict[int, BaseException] = {}
    todo: list[BaseException | None] = [error]
    while todo:
        each = todo.pop()
        if each is None or id(each) in found:
            continue
        found[id(each)] = each
        todo += [_cause.__get__(each), _context.__get__(each), *_members(each)]
    return list(found.values())
