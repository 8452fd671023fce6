"""Values on their way in: rebuilt from their parts; the judge builds nothing but data.

What the program sends is hostile until proven otherwise: of classes only those of the standard
library are found by name, of functions none, and no exception by which pytest is steered.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import collections
import dataclasses
import datetime
import enum
import functools
import inspect
import sys
import weakref
from typing import Any

from holdfast.agents.code.inside.bridge_classes import Meta, Object, Thing, method, special
from holdfast.agents.code.inside.bridge_state import State, rebuilt
from holdfast.agents.code.inside.bridge_values import (
    BY_PARTS,
    BY_TEXT,
    CONTROL,
    DATA,
    FIXED,
    HIDDEN,
    KINDS,
    SINGLES,
    SURPRISES,
    Encoded,
    flat,
    is_standard,
)

__unittest = True  # and unittest's frames are left out where ours are


class Decoding(State):
    """Makes of what a frame holds a value, and stand-ins for what did not cross."""

    def dec(self, x: Encoded) -> Any:
        if type(x) is not list:
            return x
        tag: str = x[0]
        if tag in KINDS:
            return self._dec_container(*x)
        return getattr(self, f"dec_{tag}")(*x[1:])

    def _dec_container(self, tag: str, number: int, items: Encoded, extra: Encoded) -> Any:
        make: Any = KINDS[tag]
        if tag == "F":
            new = make(self.dec(extra))
        elif tag == "Q":
            new = make((), self.dec(extra))
        else:
            new = make()
        if number:
            self._twins[number], self._twin_ids[id(new)] = [new, ()], number
        self._fill(number, new, items)
        return new

    def _fill(self, number: int, x: Any, items: Encoded) -> None:
        if isinstance(x, dict):
            pairs = [(self.dec(k), self.dec(v)) for k, v in items]
            x.clear()
            for k, v in pairs:
                dict.__setitem__(x, k, v)
        elif type(x) is bytearray:
            x[:] = items.encode("latin-1")
        else:
            new = [self.dec(v) for v in items]
            x.clear()
            (x.update if type(x) is set else x.extend)(new)
        if number:
            self._twins[number][1] = flat(x)

    def dec_T(self, number: int) -> Any:
        return self._twins[number][0]

    def dec_t(self, items: Encoded) -> Any:
        return tuple([self.dec(v) for v in items])

    def dec_z(self, items: Encoded) -> Any:
        return frozenset([self.dec(v) for v in items])

    def dec_i(self, digits: str) -> int:
        return int(digits, 16)

    def dec_f(self, digits: str) -> float:
        return float(digits)

    def dec_b(self, text: str) -> bytes:
        return text.encode("latin-1")

    def dec_j(self, real: Encoded, imaginary: Encoded) -> complex:
        return complex(self.dec(real), self.dec(imaginary))

    def dec_range(self, *parts: Encoded) -> range:
        return range(*map(self.dec, parts))

    def dec_slice(self, *parts: Encoded) -> Any:
        return slice(*map(self.dec, parts))

    def dec_k(self, name: str) -> Any:
        return SINGLES[name]

    def dec_M(self, name: str) -> Any:
        if not is_standard(name) or name.partition(".")[0] in SURPRISES:
            raise LookupError(name)
        return sys.modules.get(name) or __import__(name, fromlist=["x"])

    def dec_n(self, name: str, text: str) -> Any:
        return BY_TEXT[name](text)

    def dec_tz(self, delta: Encoded, name: str) -> Any:
        return datetime.UTC if name == "UTC" else datetime.timezone(self.dec(delta), name)

    def dec_m(self, hid: int) -> Any:
        return self._lent[hid]

    def dec_p(self, name: str, parts: Encoded) -> Any:
        *most, last = map(self.dec, parts)
        make = BY_PARTS[name]
        return make(*most, fold=last) if name in ("datetime", "time") else make(*most, last)

    def dec_c(self, module: str, name: str) -> Any:
        if not self.judge:
            __import__(module)
        elif not is_standard(module) or name in CONTROL:
            raise LookupError(f"{module}.{name}")
        elif module not in sys.modules:
            self.dec_M(module)
        found = functools.reduce(getattr, name.split("."), sys.modules[module])
        if self.judge and not isinstance(found, type):
            raise LookupError(f"{module}.{name} is no class")
        return found

    def dec_K(self, hid: int, description: Encoded) -> Any:
        return self.classes[hid] if description is None else self._make_class(hid, description)

    def dec_E(self, ref: Encoded, name: str) -> Any:
        return self.dec(ref)[name]

    def dec_N(self, ref: Encoded, items: Encoded) -> Any:
        return tuple.__new__(self.dec(ref), [self.dec(v) for v in items])

    def dec_h(self, hid: int, ref: Encoded, about: Encoded, data: Encoded) -> Any:
        cls = self.dec(ref)
        self._borrowed_often[hid] += 1
        made = self._borrowed.get(hid, self._held.get(hid))
        if made is None:
            if about:
                made = self._make_function(hid, *about)
            else:
                root: Any = next(
                    (b for b in (datetime.tzinfo, *FIXED) if issubclass(cls, b)), object
                )
                made = root.__new__(cls, *([self.dec(data)] if root in FIXED else []))
                object.__setattr__(made, "_hid", hid)
            self._borrow(hid, made)
        return made

    def _borrow(self, hid: int, made: Any) -> None:
        try:
            self._borrowed[hid] = made
        except TypeError:
            self._held[hid] = made
            return

        def give_back() -> None:
            self._returned.append([hid, self._borrowed_often.pop(hid, 1)])

        weakref.finalize(made, give_back).atexit = False

    def dec_e(
        self,
        found: list[str],
        args: Encoded,
        extra: Encoded,
        notes: list[str],
        chain: Encoded,
        trace: Encoded,
    ) -> Any:
        cls = self.dec_c(*found)
        args = [self.dec(a) for a in args]
        if not issubclass(cls, BaseException):
            raise TypeError("not an exception")
        try:
            error = cls(*args)
        except Exception:  # it wants other arguments than it keeps
            error = cls.__new__(cls, *args)
            error.args = tuple(args)
        for k, v in extra.items():
            error.__dict__[k] = self.dec(v)
        for note in notes:
            error.add_note(note)
        return self._linked(error, chain, trace)

    def dec_o(self, hid: int, trace: Encoded) -> Any:
        """An error of ours that went through the other side."""
        error = self._lent[hid]
        if self.judge and trace:
            BaseException.__setattr__(error, "__traceback__", rebuilt(trace, error.__traceback__))
        return error

    def dec_x(self, hid: int, ref: Encoded, args: Encoded, chain: Encoded, trace: Encoded) -> Any:
        cls, args = self.dec(ref), [self.dec(a) for a in args]
        self._borrowed_often[hid] += 1
        error = self._borrowed.get(hid)
        if error is None:
            error = cls.__new__(cls, *args)
            BaseException.__setattr__(error, "args", tuple(args))
            BaseException.__setattr__(error, "_hid", hid)
            self._borrow(hid, error)
        return self._linked(error, chain, trace)

    def _linked(self, error: BaseException, chain: Encoded, trace: Encoded) -> BaseException:
        cause, context, suppressed = chain
        put = BaseException.__setattr__
        if context is not None:
            put(error, "__context__", self.dec(context))
        if cause is not None:
            put(error, "__cause__", self.dec(cause))
        put(error, "__suppress_context__", bool(suppressed))
        if self.judge and trace:
            put(error, "__traceback__", rebuilt(trace))
        return error

    # --- stand-ins ---

    def _make_signature(self, encoded: Encoded) -> Any:
        if encoded is None:
            return None
        returns, parameters = encoded
        empty = inspect.Parameter.empty
        made = [
            inspect.Parameter(
                name,
                inspect._ParameterKind(kind),  # pyright: ignore[reportPrivateUsage]
                default=self.dec(default) if has else empty,
                annotation=empty if note is None else self.dec(note),
            )
            for name, kind, has, default, note in parameters
        ]
        result = inspect.Signature.empty if returns is None else self.dec(returns)
        return inspect.Signature(made, return_annotation=result)

    def _make_function(
        self,
        hid: int,
        name: str,
        qualname: str,
        module: str,
        doc: str | None,
        is_async: bool,
        signature: Encoded,
    ) -> Any:
        made: Any
        if is_async:

            async def later(*args: Any, **kw: Any) -> Any:
                __tracebackhide__ = True
                return await self.request("call", later, *args, kw=kw)

            made = later
        else:

            def now(*args: Any, **kw: Any) -> Any:
                __tracebackhide__ = True
                return self.request("call", now, *args, kw=kw)

            made = now
        made.__name__, made.__qualname__, made.__module__ = name, qualname, module
        made.__doc__, made.__hf__ = doc, hid
        if signature is not None:
            made.__signature__ = self._make_signature(signature)
        return made

    def _make_class(self, hid: int, about: dict[str, Any]) -> Any:
        """A stand-in for a class of the other side, from what `Encoding._describe` says of it."""
        self._borrowed_often[hid] += 1
        kind = about["kind"]
        if kind == "enum":
            return self._make_enum(hid, about)
        ns = self._namespace(hid, about)
        if kind == "tuple":
            return self._make_named_tuple(hid, about, ns)
        if not about["real"]:
            ns["__init__"] = method(self, hid, "__init__", None)
        # The data that objects of the class are by a base that never changes: `class Id(int)`.
        fixed = next((b for b in FIXED if about["fixed"] and b.__name__ == about["base"]), None)
        bases = self._bases(about, fixed)
        self._add_specials(about, ns, fixed)
        self._show_as(about, ns)
        plain = kind not in ("error", "zone") and fixed is None
        if plain and not any(isinstance(b, Meta) and b is not Object for b in bases):
            ns["__slots__"] = ()
        try:
            made: Any = type.__new__(Meta, about["name"], tuple(bases), ns)
        except TypeError:  # their layouts or orders don't go together
            made = type.__new__(Meta, about["name"], (Object,), ns)
        self._complete_class(about, made)
        self.classes[hid] = made
        return made

    def _namespace(self, hid: int, about: dict[str, Any]) -> dict[str, Any]:
        """Names and methods of a stand-in's class."""
        ns: dict[str, Any] = {
            "__module__": about["module"], "__qualname__": about["qualname"],
            "__doc__": about["doc"], "_peer": self, "_cid": hid, "_own": frozenset[str](),
            "_base": about["base"],
        }  # fmt: skip
        for each, signature in about["methods"].items():
            ns[each] = method(self, hid, each, self._make_signature(signature))
        return ns

    def _bases(self, about: dict[str, Any], fixed: Any) -> list[Any]:
        """Stand-ins for its bases, and one of ours that makes its objects stand-ins.

        Real ones only of errors and time zones, which `raise` and `datetime` insist on, and the
        data that never changes.
        """
        kind = about["kind"]
        real_bases: list[Any] = []
        for base in map(self.dec, about["bases"]):
            taken = kind in ("error", "zone") and isinstance(base, type)
            if isinstance(base, Meta) or (
                taken and issubclass(base, (BaseException, datetime.tzinfo))
            ):
                real_bases.append(base)
        if not any(issubclass(b, Thing) for b in real_bases):
            place = len(real_bases) if kind == "zone" else 0
            real_bases.insert(place, Thing if kind in ("error", "zone") else Object)
        if fixed is not None and not any(issubclass(b, fixed) for b in real_bases):
            real_bases = [b for b in real_bases if b is not Object] or [Thing]
            real_bases.append(fixed)
        return real_bases

    def _add_specials(self, about: dict[str, Any], ns: dict[str, Any], fixed: Any) -> None:
        """The methods that Python looks up on classes; equality and hash go together."""
        for each, own in about["special"]:
            if own or fixed is None:
                ns[each] = special(self, each, about["base"], own)
        if about["generated_eq"] and "__eq__" in ns:  # by which pytest knows a dataclass's own
            ns["__eq__"].__code__ = ns["__eq__"].__code__.replace(co_filename="<string>")
        if not about["hashable"]:
            ns["__hash__"] = None
        elif "__eq__" in ns and "__hash__" not in ns and fixed is None:
            ns["__hash__"] = object.__hash__
        if "__eq__" in ns and "__ne__" not in ns:
            ns["__ne__"] = _unequal

    def _complete_class(self, about: dict[str, Any], made: Any) -> None:
        """What `inspect`, `dataclasses` and abstract classes are told of a stand-in's class."""
        if about["init"] is not None:
            type.__setattr__(made, "__signature__", self._make_signature(about["init"]))
        if about["kind"] == "data":
            shown = dataclasses.make_dataclass(about["name"], about["extra"])
            fields = shown.__dataclass_fields__
            type.__setattr__(made, "__dataclass_fields__", fields)
        for module, abstract in about["abstract"]:
            found = self.dec_c(module, abstract)
            if hasattr(found, "register"):
                found.register(made)

    def _show_as(self, about: dict[str, Any], ns: dict[str, Any]) -> None:
        """Have `isinstance` say what it would say of the original."""
        real, base = about["real"], about["base"]
        if about["kind"] in ("error", "zone") or about["fixed"] or not (real or base):
            return
        if real and real[0] is None:
            shown: Any = HIDDEN[real[1]]
        elif real:
            shown = self.dec_c(*real)
        else:
            parent = next(kind for kind in DATA if kind.__name__ == base and kind is not bool)
            shown = type(about["name"], (parent,), {"__module__": about["module"]})
        ns["__class__"] = property(lambda self: shown)

    def _make_named_tuple(self, hid: int, about: dict[str, Any], ns: dict[str, Any]) -> Any:
        fields, defaults = about["extra"]
        made: Any = collections.namedtuple(  # pyright: ignore[reportUntypedNamedTuple]
            about["name"],
            fields,
            defaults=[self.dec(v) for v in defaults],
            module=about["module"],
        )
        made.__doc__ = about["doc"]
        for each in about["methods"]:
            setattr(made, each, ns[each])
        made.__getattr__ = lambda own, name: self.request("get", own, name)
        self.classes[hid], self._local[made] = made, hid
        return made

    def _make_enum(self, hid: int, about: dict[str, Any]) -> Any:
        flavour, mixin, members = about["extra"]
        data = next((kind for kind in DATA if kind.__name__ == mixin), None)
        bases: tuple[Any, ...] = (getattr(enum, flavour),)
        if data is not None and flavour in ("Enum", "Flag"):
            bases = (data, *bases)
        ns: Any = enum.EnumMeta.__prepare__(about["name"], bases)
        for name, value in members:
            ns[name] = self.dec(value)
        for each in about["methods"]:
            if each != "_generate_next_value_":
                ns[each] = method(self, hid, each, None)

        def get(own: Any, name: str) -> Any:
            if name[:1] == "_":
                raise AttributeError(name)
            return self.request("get", own, name)

        def text(own: Any) -> str:
            return self.request("op", own, "__str__") if own._name_ else ""

        ns["__getattr__"], ns["__str__"], ns["__module__"] = get, text, about["module"]
        made = enum.EnumMeta(about["name"], bases, ns)
        self.classes[hid], self._local[made] = made, hid
        return made


def _unequal(self: Any, other: Any) -> Any:
    __tracebackhide__ = True
    kind: Any = type(self)
    answer = kind.__eq__(self, other)
    return answer if answer is NotImplemented else not answer
