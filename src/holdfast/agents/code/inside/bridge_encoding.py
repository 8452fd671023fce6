"""Values on their way out: plain data by its parts, containers as twins, the rest as handles."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import dataclasses
import datetime
import dis
import enum
import inspect
import math
import sys
import types
from typing import Any

from holdfast.agents.code.inside.bridge_classes import Meta, StandInModule
from holdfast.agents.code.inside.bridge_state import State, described
from holdfast.agents.code.inside.bridge_values import (
    BY_TEXT,
    CONTROL,
    DATA,
    FIXED,
    HIDDEN,
    KIND_OF,
    NEVER,
    ORIGIN,
    PARTS,
    SPECIAL,
    SURPRISES,
    Encoded,
    data_of,
    flat,
    is_standard,
    named,
)

_STEPS = 5  # links of a chain of exceptions that cross


class Encoding(State):
    """Makes of a value what a frame can hold."""

    def enc(self, x: Any) -> Encoded:
        # By the exact type: an object of a class that derives from one of these is no plain data.
        # What most frames are full of comes first.
        kind = type(x)
        if kind is str or kind is bool or x is None:
            return x
        if kind is int:
            return x if -(1 << 63) < x < 1 << 63 else ["i", hex(x)]
        if kind is float:
            return x if math.isfinite(x) else ["f", repr(x)]
        if kind is tuple:
            return ["t", [self.enc(v) for v in x]]
        if kind in KIND_OF:
            return self._enc_container(x, KIND_OF[kind])
        return self._enc_rare(x, kind)

    def _enc_rare(self, x: Any, kind: Any) -> Encoded:
        """Plain data that is rebuilt from its parts; else an object."""
        if kind is bytes:
            return ["b", x.decode("latin-1")]
        if kind is frozenset:
            return ["z", [self.enc(v) for v in x]]
        if kind is complex:
            return ["j", self.enc(x.real), self.enc(x.imag)]
        if kind is range or kind is slice:
            return [kind.__name__, *[self.enc(v) for v in (x.start, x.stop, x.step)]]
        if x is Ellipsis or x is NotImplemented:
            return ["k", "..." if x is Ellipsis else "NI"]
        if BY_TEXT.get(kind.__name__) is kind:
            return ["n", kind.__name__, str(x)]
        if kind in PARTS:
            return ["p", kind.__name__, [self.enc(getattr(x, p)) for p in PARTS[kind].split()]]
        if kind is datetime.timezone:
            return ["tz", self.enc(x.utcoffset(None)), x.tzname(None)]
        return self._enc_object(x, kind)

    def _enc_container(self, x: Any, tag: str) -> Encoded:
        number = self._twin_ids.get(id(x))
        if number is not None and not self._frozen:
            return ["T", number]
        number, extra = 0, None
        if not self._frozen:
            number = self.next_number()
            self._twins[number], self._twin_ids[id(x)] = [x, flat(x)], number
        if tag in "FQ":
            extra = self.enc(x.default_factory if tag == "F" else x.maxlen)
        return [tag, number, self._items(x), extra]

    def _items(self, x: Any) -> Encoded:
        if isinstance(x, dict):
            pairs: Any = x.items()
            return [[self.enc(k), self.enc(v)] for k, v in pairs]
        return x.decode("latin-1") if type(x) is bytearray else [self.enc(v) for v in x]

    def _enc_object(self, x: Any, kind: Any) -> Encoded:
        """By the number under which the other side knows it, by name, by its parts, or lent."""
        number = self._number_there(x, kind)
        if number is not None:
            return ["m", number]
        if isinstance(x, enum.Enum) and type(x.name) is str:  # a flag may have none
            return ["E", self._class(kind), x.name]
        if isinstance(x, type):
            return self._class(x, by_name=True)
        if _is_named_tuple(kind) and isinstance(x, tuple):
            return ["N", self._class(kind), [self.enc(v) for v in tuple.__iter__(x)]]
        if isinstance(x, BaseException):
            return self._enc_error(x, kind, _STEPS)
        if kind is types.ModuleType and _is_known_module(x):
            return ["M", x.__name__]
        if self.judge:
            if callable(x) and not isinstance(x, types.MethodType) and (found := named(x)):
                return ["c", *found]
            if isinstance(x, NEVER):
                return ["k", "NI"]
        return self._enc_lent(x, kind)

    def _number_there(self, x: Any, kind: Any) -> int | None:
        """The other side's number for what is a stand-in here; None for what is ours."""
        if isinstance(kind, Meta) and not isinstance(x, BaseException):
            return object.__getattribute__(x, "_hid")
        if isinstance(x, Meta):
            return x.__dict__["_cid"]
        if isinstance(x, type) and x in self._local:
            return self._local[x]
        number = x.__dict__.get("__hf__") if kind is types.FunctionType else None
        if number is not None and self._borrowed.get(number) is x:  # functools.wraps copies it
            return number
        return x.__hid__ if isinstance(x, StandInModule) else None

    def _enc_lent(self, x: Any, kind: Any) -> Encoded:
        """A handle: the object stays here, and the other side makes a stand-in for it."""
        about = self._about(x) if kind is types.FunctionType else None
        base = next((b for b in FIXED if issubclass(kind, b)), None)
        data = self.enc(data_of(x, base)) if base is not None else None
        return ["h", self.lend(x), self._class(kind), about, data]

    def _about(self, f: Any) -> Encoded:
        """What a stand-in for a function shows; None if it has attributes of its own."""
        if f.__dict__.keys() - {"__hf__"}:
            return None
        is_async = inspect.iscoroutinefunction(f)
        return [f.__name__, f.__qualname__, f.__module__, f.__doc__, is_async, self._signature(f)]

    def _signature(self, f: Any) -> Encoded:
        def note(annotation: Any) -> Encoded:
            if annotation is inspect.Parameter.empty:
                return None
            return ["c", *found] if (found := named(annotation)) else str(annotation)

        try:
            given = inspect.signature(f)
        except (ValueError, TypeError):
            return None
        parameters: list[Encoded] = []
        for each in given.parameters.values():
            has = each.default is not each.empty
            default = self._frozenly(each.default) if has else None
            parameters.append([each.name, int(each.kind), has, default, note(each.annotation)])
        return [note(given.return_annotation), parameters]

    def _frozenly(self, x: Any) -> Encoded:
        """Encoded with its containers as they are now, not as twins."""
        was, self._frozen = self._frozen, True
        try:
            return self.enc(x)
        finally:
            self._frozen = was

    def _enc_error(self, x: BaseException, kind: Any, steps: int) -> Encoded:
        chain: list[Encoded] = [None, None, x.__suppress_context__]
        context = None if x.__context__ is x.__cause__ else x.__context__
        for place, linked in enumerate((x.__cause__, context)):
            if linked is not None and linked is not x and steps:
                chain[place] = self._enc_error(linked, type(linked), steps - 1)
        origin = None
        if isinstance(kind, Meta):
            origin = object.__getattribute__(x, "_hid")
        elif not self.judge:
            origin = getattr(x, "__dict__", {}).get(ORIGIN)
        if origin is not None:  # it was raised on the other side, and goes back there
            return ["o", origin, None if self.judge else described(x)]
        trace = None if self.judge else described(x)
        found = named(kind)
        if found and kind.__name__ not in CONTROL:
            extra = {
                k: self.enc(v)
                for k, v in getattr(x, "__dict__", {}).items()
                if isinstance(k, str) and k != "__notes__"
            }
            notes = [str(note) for note in getattr(x, "__notes__", ())]
            if self.judge:
                extra[ORIGIN] = self.lend(x)
            return ["e", list(found), [self.enc(a) for a in x.args], extra, notes, chain, trace]
        args = [self.enc(a) for a in x.args]
        return ["x", self.lend(x), self._class(kind), args, chain, trace]

    def _class(self, c: Any, *, by_name: bool = False) -> Encoded:
        if by_name and (found := named(c)):
            return ["c", *found]
        if isinstance(c, Meta):
            return ["m", c.__dict__["_cid"]]
        if c in self._local:
            return ["m", self._local[c]]
        if c in self._described:
            return ["K", self._described[c], None]
        if not self.judge and _is_installed(c):
            self.cannot(f"{c.__qualname__} is of an installed package")
        hid = self._described[c] = self.lend(c)
        return ["K", hid, self._describe(c)]

    def _describe(self, c: Any) -> Encoded:
        """All that a stand-in for a class is made of."""
        base = next((b for b in c.__mro__ if b in DATA), None)
        kind, extra = self._shape(c, base)
        bases: list[Encoded] = []
        if kind in ("", "error", "data", "zone"):
            bases = [self._class(b, by_name=True) for b in c.__bases__ if b is not object]
        known = named(c)
        real = known or ((None, c.__name__) if HIDDEN.get(c.__name__) is c else None)
        abstract = [
            list(found)
            for b in c.__mro__
            if (found := named(b)) and b.__module__ in ("collections.abc", "numbers")
        ]
        return {
            "name": c.__name__,
            "module": c.__module__,
            "qualname": c.__qualname__,
            "doc": c.__doc__ if isinstance(c.__doc__, str) else None,
            "bases": bases,
            "kind": kind,
            "extra": extra,
            "special": _specials(c, base),
            "hashable": c.__hash__ is not None,
            "methods": self._methods(c),
            "init": self._signature(c) if known is None and kind != "enum" else None,
            "abstract": abstract,
            "real": real,
            "base": base.__name__ if base else None,
            "fixed": base in FIXED and kind == "",
            "generated_eq": _file_of(c.__eq__) == "<string>",
        }

    def _methods(self, c: Any) -> dict[str, Encoded]:
        """The class's own methods, with their signatures."""
        functions = {n: f for n, f in vars(c).items() if isinstance(f, types.FunctionType)}
        stored = {
            each.argval
            for f in functions.values()
            for each in dis.get_instructions(f)
            if each.opname == "STORE_ATTR"
        }  # an attribute of that name may hide a method
        return {
            n: self._signature(f)
            for n, f in functions.items()
            if n not in SPECIAL and n[:2] != "__" and n not in stored
        }

    def _shape(self, c: Any, base: Any) -> tuple[str, Encoded]:
        if issubclass(c, enum.Enum) and "__eq__" not in vars(c):
            flavour = next(b.__name__ for b in c.__mro__ if b.__module__ == "enum")
            members = [[n, self.enc(m.value)] for n, m in c.__members__.items()]
            return "enum", [flavour, base.__name__ if base else None, members]
        if _is_named_tuple(c):
            defaults = getattr(c, "_field_defaults", {})
            return "tuple", [
                list(getattr(c, "_fields", ())),
                [self.enc(v) for v in defaults.values()],
            ]
        if dataclasses.is_dataclass(c):
            return "data", [f.name for f in dataclasses.fields(c)]
        if issubclass(c, BaseException):
            return "error", None
        return ("zone", None) if issubclass(c, datetime.tzinfo) else ("", None)


def _specials(c: Any, base: Any) -> list[list[Any]]:
    """The methods that Python looks up on classes, and whether each is other than the data's."""
    specials: list[list[Any]] = []
    for name in SPECIAL:
        found = _of_objects(c, name)
        if found is _of_objects(object, name) or (name == "__hash__" and found is None):
            continue
        specials.append([name, base is None or found is not _of_objects(base, name)])
    return specials


def _of_objects(c: Any, name: str) -> Any:
    """What Python finds for an object of this class; `c.__call__` would find the metaclass's."""
    return next((k.__dict__[name] for k in c.__mro__ if name in k.__dict__), None)


def _is_named_tuple(c: Any) -> bool:
    return (
        isinstance(c, type)
        and issubclass(c, tuple)
        and hasattr(c, "_fields")
        and c.__eq__ is tuple.__eq__
        and c.__getattribute__ is tuple.__getattribute__
    )


def _file_of(method: Any) -> str:
    return getattr(getattr(method, "__code__", None), "co_filename", "")


def _is_installed(c: Any) -> bool:
    """Whether a class is of a package that both sides have: theirs would not be ours."""
    file = getattr(sys.modules.get(c.__module__), "__file__", None) or ""
    return "/site-packages/" in file or "/dist-packages/" in file


def _is_known_module(x: Any) -> bool:
    """Whether the other side has a module of its own in the place of this one."""
    name = x.__name__
    known = is_standard(name) and sys.modules.get(name) is x
    return known and name.partition(".")[0] not in SURPRISES
