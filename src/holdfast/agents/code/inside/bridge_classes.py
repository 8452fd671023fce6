"""Stand-ins for the other side's classes, objects and modules.

A stand-in has the name, the bases and the special methods of its original, and holds nothing: all
that is done with it is asked of the other side. What is asked, and what may be, is for
`bridge_peer.py`.
"""

# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import asyncio
import builtins
import sys
import types
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from holdfast.agents.code.inside.bridge_values import BINARY, DATA, ORDER, PLAIN

if TYPE_CHECKING:
    from holdfast.agents.code.inside.bridge_state import State as Peer

__unittest = True  # and unittest's frames are left out where ours are
_OWN = ("__module__", "__qualname__", "__classcell__", "__doc__", "__annotations__", "__slots__")
_NO_CLASS_ATTRIBUTE = (
    "_peer", "__test__", "__wrapped__", "__isabstractmethod__", "__signature__",
    "__text_signature__",
)  # fmt: skip
_NO_ATTRIBUTE = (
    "_hid", "_compared", "__slots__", "_pytestfixturefunction", "__array__", "__array_interface__",
)  # fmt: skip


_dict_of = type.__dict__["__dict__"].__get__


def _asked_by_tests() -> bool:
    """Whether it is the tests' own text that asks, two frames up, and not pytest or `mock`."""
    return sys._getframe(2).f_code.co_filename.endswith("test_solution.py")  # pyright: ignore[reportPrivateUsage]


class Meta(type):
    """The class of the stand-ins for classes."""

    def __new__(cls, name: str, bases: tuple[type, ...], ns: dict[str, Any], **_: Any) -> Any:
        # Only tests come here: by a class statement with a stand-in among its bases.
        known = (b.__dict__["_peer"] for b in bases if isinstance(b, Meta) and "_peer" in vars(b))
        peer: Peer | None = next(known, None)
        if peer is None:
            return type.__new__(cls, name, bases, ns)
        own = {key: value for key, value in ns.items() if key not in _OWN}
        remote = peer.request("make_class", name, list(bases), own)
        hid = remote.__dict__["_cid"]
        inherited = [b.__dict__.get("_own", ()) for b in bases]
        # Plain data is looked up there, where an object may have its own under that name.
        kept = {k: v for k, v in ns.items() if k != "__slots__" and (k[:2] == "__" or _binds(v))}
        kept |= {"_peer": peer, "_cid": hid, "_own": frozenset(own).union(*inherited)}
        made = type.__new__(cls, name, bases, kept)
        peer.classes[hid] = made
        return made

    def __init__(cls, *_: Any, **__: Any) -> None:
        pass

    @property
    def __dict__(cls) -> Any:  # pyright: ignore[reportGeneralTypeIssues, reportIncompatibleVariableOverride]
        if "_peer" in (own := _dict_of(cls)) and _asked_by_tests():
            own["_peer"].cannot("the tests look at all that a class of the program holds")
        return own

    def __call__(cls, /, *args: Any, **kw: Any) -> Any:
        __tracebackhide__ = True
        return _peer(cls).request("call", cls, *args, kw=kw)

    def __getattr__(cls, name: str) -> Any:
        __tracebackhide__ = True
        if name in _NO_CLASS_ATTRIBUTE or "_peer" not in cls.__dict__:
            raise AttributeError(name)
        return _peer(cls).request("get", cls, name)

    def __setattr__(cls, name: str, value: Any) -> None:
        __tracebackhide__ = True
        _peer(cls).request("set", cls, name, value)
        if name in cls.__dict__ and not name.startswith("__"):
            type.__delattr__(cls, name)

    def __delattr__(cls, name: str) -> None:
        __tracebackhide__ = True
        _peer(cls).request("del", cls, name)

    def __getitem__(cls, item: Any) -> Any:
        __tracebackhide__ = True
        return _peer(cls).request("unbound", cls, "__class_getitem__", item)

    def __iter__(cls) -> Any:
        __tracebackhide__ = True
        return iter(_peer(cls).request("call", list, cls))

    def __dir__(cls) -> list[str]:
        return list(_peer(cls).request("call", dir, cls))


def _binds(value: Any) -> bool:
    return hasattr(type(value), "__get__")


def _peer(cls: Any) -> Peer:
    return cls._peer


class Thing(metaclass=Meta):
    """The base of all stand-ins for objects."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        __tracebackhide__ = True
        if name in _NO_ATTRIBUTE:
            raise AttributeError(name)
        return _peer(type(self)).request("get", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        __tracebackhide__ = True
        if isinstance(self, BaseException) and (name[:2] == "__" or name == "args"):
            BaseException.__setattr__(self, name, value)
        else:
            _peer(type(self)).request("set", self, name, value)

    def __delattr__(self, name: str) -> None:
        __tracebackhide__ = True
        _peer(type(self)).request("del", self, name)

    def __copy__(self) -> Any:
        return _peer(type(self)).request("op", self, "__copy__")

    def __deepcopy__(self, memo: Any) -> Any:
        return _peer(type(self)).request("op", self, "__deepcopy__")

    def __dir__(self) -> Any:
        return _peer(type(self)).request("op", self, "__dir__")

    def __repr__(self) -> str:
        return _peer(type(self)).request("op", self, "__repr__")

    def __str__(self) -> str:
        return _peer(type(self)).request("op", self, "__str__")

    def __reduce_ex__(self, protocol: Any) -> Any:
        _peer(type(self)).cannot("an object of the program is pickled")


class Object(Thing):
    """The base of stand-ins for objects that are no exceptions."""

    __slots__ = ("__weakref__", "_compared", "_hid")


def method(peer: Peer, hid: int, name: str, signature: Any) -> Callable[..., Any]:
    """A method of a stand-in's class."""

    def stub(self: Any, /, *args: Any, **kw: Any) -> Any:
        __tracebackhide__ = True
        if name == "__init__" or name in getattr(type(self), "_own", ()):  # by super()
            return peer.request("unbound", peer.classes[hid], name, self, *args, kw=kw)
        return peer.request("method", self, name, *args, kw=kw)

    stub.__name__ = name
    if signature is not None:
        stub.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess]
    return stub


def special(peer: Peer, name: str, base: str | None, own: bool) -> Callable[..., Any]:
    """A special method of a stand-in's class.

    `base` is the kind of data that the original's class derives from, and `own` says whether that
    class has a method of this name itself: if not, the judge does it on the data.
    """
    data: Any = next((kind for kind in DATA if kind.__name__ == base), None)
    made: Callable[..., Any]
    if peer.judge and data is not None and not own and name in _ON_DATA:
        made = _on_data(peer, name, data)
    elif name in ("__eq__", "__ne__", *ORDER, "__contains__"):

        def compare(self: Any, other: Any) -> Any:
            __tracebackhide__ = True
            return peer.compare(self, name, other)

        made = compare
    elif name in BINARY and peer.judge:

        def arithmetic(self: Any, *others: Any) -> Any:
            __tracebackhide__ = True
            return peer.arithmetic(self, name, *others)

        made = arithmetic
    elif name == "__bool__":

        def truth(self: Any) -> Any:
            __tracebackhide__ = True
            if peer.judge and getattr(self, "_compared", False):
                peer.lie(self, "is the answer to a comparison, and no bool")
            return peer.request("op", self, name)

        made = truth
    elif name == "__await__":
        made = _awaiting(peer)
    elif name == "__call__":

        def call(self: Any, /, *args: Any, **kw: Any) -> Any:
            __tracebackhide__ = True
            return peer.request("call", self, *args, kw=kw)

        made = call
    elif name in ("__exit__", "__aexit__"):

        def leave(self: Any, kind: Any, value: Any, _: Any) -> Any:
            __tracebackhide__ = True
            return peer.request("op", self, name, kind, value, None)

        made = leave
    elif name in ("__copy__", "__deepcopy__"):

        def copy(self: Any, _: Any = None) -> Any:
            return peer.request("op", self, name)

        made = copy
    else:

        def other(self: Any, *args: Any) -> Any:
            __tracebackhide__ = True
            return peer.request("op", self, name, *args)

        made = other
    made.__name__ = name
    return made


_ON_DATA = frozenset({"__eq__", "__ne__", *ORDER, *BINARY, "__contains__", "__hash__"})


def _on_data(peer: Peer, name: str, data: Any) -> Callable[..., Any]:
    """What a class has from the data it derives from is done on that data, by the judge."""

    def stub(self: Any, *others: Any) -> Any:
        __tracebackhide__ = True
        value = peer.request("data", self)
        if type(value) is not data:
            peer.lie(self, f"is no {data.__name__}")
        others = tuple(_plain(peer, each) for each in others)
        return getattr(value, name)(*others)

    return stub


def _plain(peer: Peer, other: Any) -> Any:
    based = isinstance(type(other), Meta) and type(other).__dict__.get("_base")
    return peer.request("data", other) if based else other


def _awaiting(peer: Peer) -> Callable[..., Any]:
    """Wait for a coroutine of the other side's, which goes on a little each time it is asked."""

    def wait(self: Any) -> Generator[Any, Any, Any]:
        __tracebackhide__ = True
        key = peer.request("spawn", self)
        while True:
            try:
                done, value = peer.request("pump", key)
                if done:
                    return value
                yield from asyncio.sleep(0 if peer.judge else 0.0005).__await__()
            except asyncio.CancelledError:
                peer.request("cancel", key)
                raise

    return wait


class StandInModule(types.ModuleType):
    """A module of the program, as its tests see it: every name is looked up there."""

    LOCAL = frozenset(
        {"__hid__", "__peer__", "__name__", "__spec__", "__loader__", "__class__", "__package__",
         "__path__", "__file__", "__cached__", "__taken__"}
    )  # fmt: skip

    def __getattribute__(self, name: str) -> Any:
        __tracebackhide__ = True
        get = super().__getattribute__
        if name in StandInModule.LOCAL:
            return get(name)
        peer: Peer = get("__peer__")
        if name == "__dict__":
            if _asked_by_tests():
                peer.cannot("the tests look at all that a module of the program holds")
            return {each: getattr(self, each) for each in peer.request("names", self)}
        if name == "__all__":
            # A star import: it takes the place of no built-in, and of nothing the tests import.
            taken = get("__taken__")
            listed = peer.request("all", self)
            return [n for n in listed if not (n in taken or hasattr(builtins, n))]
        below = sys.modules.get(f"{get('__name__')}.{name}")
        if isinstance(below, StandInModule):
            return below
        return peer.request("get", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        __tracebackhide__ = True
        if name in StandInModule.LOCAL or isinstance(value, StandInModule):
            super().__setattr__(name, value)
        else:
            super().__getattribute__("__peer__").request("set", self, name, value)

    def __delattr__(self, name: str) -> None:
        __tracebackhide__ = True
        super().__getattribute__("__peer__").request("del", self, name)

    def __dir__(self) -> list[str]:
        return list(super().__getattribute__("__peer__").request("names", self))


def is_plain(x: Any) -> bool:
    """Whether it is data of this side's own."""
    return isinstance(x, PLAIN) and not isinstance(type(x), Meta)
