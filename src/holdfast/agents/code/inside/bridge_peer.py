"""Judge and program, each in a process and a sandbox of its own: how one asks the other.

Both sides run the same `Peer`. Frames are lines of JSON. Plain data crosses by value and is
rebuilt from its parts. Containers that can change are twins: each frame brings the other's up to
date, and which names share one container is kept. Everything else is a handle, for which the other
side makes a stand-in. The judge is strict: it answers only for what it lent, tells nothing of its
frames and modules, and takes no exception from the program by which pytest is steered.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import asyncio
import copy
import enum
import json
import os
import random
import sys
import threading
import types
from collections.abc import Callable
from typing import Any, NoReturn

from holdfast.agents.code.inside.bridge_classes import Meta, is_plain
from holdfast.agents.code.inside.bridge_decoding import Decoding
from holdfast.agents.code.inside.bridge_encoding import Encoding
from holdfast.agents.code.inside.bridge_state import CannotCross, Ended, State
from holdfast.agents.code.inside.bridge_values import (
    DATA,
    ORDER,
    PLAIN,
    SPECIAL,
    Encoded,
    data_of,
    decoys,
    flat,
    unchanged,
)

_Chance = random.SystemRandom  # bound here: tests may replace it


__unittest = True  # and unittest's frames are left out where ours are


class Operations(State):
    """The operations that cross."""

    # --- equality, order and arithmetic, as the judge sees them ---

    def compare(self, a: Any, name: str, b: Any) -> Any:
        """`a` is the program's; `b` is the judge's, or the program's too."""
        __tracebackhide__ = True
        foreign = isinstance(type(b), Meta) or isinstance(b, Meta)
        if not (foreign or is_plain(b) or isinstance(b, enum.Enum | types.FunctionType)):
            return NotImplemented  # the tests' own: approx, ANY, a class of theirs; it decides
        if not self.judge or not is_plain(b):
            answer = self._frozen_request("op", a, name, b)
            if self.judge and isinstance(type(answer), Meta):
                object.__setattr__(answer, "_compared", True)
            return answer
        if name == "__contains__":
            return self._contains(a, b)
        return self._compare_with_data(a, name, b)

    def _compare_with_data(self, a: Any, name: str, b: Any) -> Any:
        """The program may see what is expected of it only among much that is not."""
        __tracebackhide__ = True
        equality = name in ("__eq__", "__ne__")
        groups = decoys(b)
        asked: list[tuple[int | None, str, Any]] = [(None, name, b)]
        if equality:
            asked += [(n, "__eq__", each) for n, group in enumerate(groups) for each in group]
        else:
            asked.append((0, ORDER[name], b))
        _Chance().shuffle(asked)
        answers = self._frozen_request("ops", a, [(op, other) for _, op, other in asked])
        claims: dict[int, list[bool]] = {}
        result: Any = NotImplemented
        for (group, _, _), answer in zip(asked, answers, strict=True):
            if group is None:
                # What it raises is raised where the test compares.
                result = answer[1] if answer[0] else self._frozen_request("op", a, name, b)
            else:
                claims.setdefault(group, []).append(answer[0] and _is_true(answer[1]))
        if result is NotImplemented:
            return result
        if not is_plain(result):
            self.cannot(f"{type(a).__name__} answers a comparison by an object")
        wanted = result is not True if name == "__ne__" else bool(result)
        many = any(sum(each) * 2 > len(each) for each in claims.values())
        if many and (wanted or equality):
            what = "be equal to anything" if equality else "be both less and greater"
            self.lie(a, f"claims to {what}")
        if wanted:
            # True to what it was asked, or a good guess: with the answer in sight nobody can say.
            self.cannot(f"{type(a).__name__}, a class of the program, is compared with a value")
        return bool(result)

    def _contains(self, a: Any, b: Any) -> bool:
        __tracebackhide__ = True
        result = bool(self._frozen_request("op", a, "__contains__", b))
        if result:
            others = [*decoys("x")[1], *decoys(1)[1], decoys(b"")[0][0]]
            asked = [("__contains__", each) for each in others]
            if all(ok and _is_true(v) for ok, v in self._frozen_request("ops", a, asked)):
                self.lie(a, "claims to hold anything")
        return result

    def arithmetic(self, a: Any, name: str, *others: Any) -> Any:
        """A number that the program works out with what is expected in sight is no number."""
        __tracebackhide__ = True
        result = self.request("op", a, name, *others)
        numbers = (int, float, complex)
        if isinstance(result, numbers) and is_plain(result) and is_plain(others[0]):
            if name in ("__sub__", "__rsub__"):
                asked = [(name, each) for _ in range(3) for each in decoys(1)[1]]
                answers = self._frozen_request("ops", a, asked)
                if all(ok and is_plain(v) and v == result for ok, v in answers):
                    self.lie(a, "claims the same difference to anything")
            self.cannot(f"{type(a).__name__}, a class of the program, is reckoned with")
        return result

    def _frozen_request(self, op: str, *args: Any) -> Any:
        __tracebackhide__ = True
        was, self._frozen = self._frozen, True
        try:
            return self.request(op, *args)
        finally:
            self._frozen = was

    # --- what the other side may ask ---

    def _allow(self, x: Any, name: str) -> None:
        if not self.judge:
            return
        hidden = name[:1] == "_" and name not in SPECIAL and name not in ("__name__", "__doc__")
        frame = name[:3] in ("gi_", "cr_", "ag_", "tb_", "f_g", "f_l", "f_b")
        module = isinstance(x, types.ModuleType)
        function = isinstance(x, types.FunctionType | types.MethodType)
        if function and (name in x.__dict__ or name in ("__name__", "__doc__")):
            return
        if hidden or frame or module or function:
            raise AttributeError(f"{name} does not cross")

    def do_call(self, target: Any, /, *args: Any, **kw: Any) -> Any:
        __tracebackhide__ = True
        return target(*args, **kw)

    def do_method(self, x: Any, method_name: str, /, *args: Any, **kw: Any) -> Any:
        __tracebackhide__ = True
        if isinstance(x, types.ModuleType | types.FunctionType) or method_name[:1] == "_":
            self._allow(x, method_name)
        return getattr(x, method_name)(*args, **kw)

    def do_unbound(self, cls: Any, method_name: str, /, *args: Any, **kw: Any) -> Any:
        __tracebackhide__ = True
        self._allow(cls, method_name)
        return getattr(cls, method_name)(*args, **kw)

    def do_op(self, x: Any, name: str, *args: Any) -> Any:
        __tracebackhide__ = True
        if name == "__copy__":
            return copy.copy(x)
        if name == "__deepcopy__":
            return copy.deepcopy(x)
        if name == "__bool__" and not hasattr(type(x), name):
            return bool(x)
        if name not in SPECIAL:
            raise AttributeError(name)
        found = next(k.__dict__[name] for k in type(x).__mro__ if name in k.__dict__)
        bound = found.__get__(x, type(x)) if hasattr(type(found), "__get__") else found
        return bound(*args)

    def do_ops(self, x: Any, asked: list[tuple[str, Any]]) -> tuple[tuple[bool, Any], ...]:
        """Each of these operations, and whether it came to anything."""
        found: list[tuple[bool, Any]] = []
        for name, other in asked:
            try:
                found.append((True, self.do_op(x, name, other)))
            except Exception:
                found.append((False, None))
        return tuple(found)

    def do_data(self, x: Any) -> Any:
        """The data that an object is by its base class, whatever its own class makes of it."""
        base = next(kind for kind in type(x).__mro__ if kind in DATA)
        return data_of(x, base)

    def do_get(self, x: Any, name: str) -> Any:
        __tracebackhide__ = True
        self._allow(x, name)
        return getattr(x, name)

    def do_set(self, x: Any, name: str, value: Any) -> None:
        __tracebackhide__ = True
        if self.judge and isinstance(x, type | types.ModuleType | types.FunctionType):
            raise AttributeError(f"{name} does not cross")
        setattr(x, name, value)

    def do_del(self, x: Any, name: str) -> None:
        __tracebackhide__ = True
        if self.judge and isinstance(x, type | types.ModuleType | types.FunctionType):
            raise AttributeError(f"{name} does not cross")
        delattr(x, name)

    def do_spawn(self, x: Any) -> int:
        async def run() -> Any:
            return await x

        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            if self._loop is None or self._loop.is_closed():
                self._loop = asyncio.new_event_loop()
            loop = self._loop
        self._tasks[id(x)] = (loop.create_task(run()), loop, x)
        return id(x)

    def do_pump(self, key: int) -> tuple[bool, Any]:
        task, loop, _ = self._tasks[key]
        if not task.done() and not loop.is_running():
            loop.run_until_complete(asyncio.wait({task}, timeout=0.005))
        if not task.done():
            return False, None
        del self._tasks[key]
        return True, task.result()

    def do_cancel(self, key: int) -> None:
        self._tasks[key][0].cancel()


def _is_true(answer: Any) -> bool:
    return is_plain(answer) and isinstance(answer, PLAIN) and bool(answer)


__unittest = True  # and unittest's frames are left out where ours are
MOST_FRAME = 32 * 1024 * 1024
_write, _dumps, _loads = os.write, json.dumps, json.loads
"""Bound here: tests may replace them."""
_ASK, _ANSWER, _RAISE, _CANNOT = range(4)
_UNASKED = ("input", "stdin", "pump", "cancel")
"""What the program may ask of the judge about nothing that was lent."""


class Peer(Operations, Encoding, Decoding):
    """One side of the conversation."""

    def _send(self, kind: int, body: Callable[[], Encoded]) -> None:
        """Send a frame; `body` is encoded after the twins, as it will be decoded."""
        self.before()
        changed: list[Encoded] = []
        for number, twin in list(self._twins.items()):
            if not unchanged(twin[0], twin[1]):
                twin[1] = flat(twin[0])
                changed.append([number, self._items(twin[0])])
        if self.judge:
            self._forget_twins()
        whole = body()
        gone, self._gone = self._gone, []
        returned, self._returned = self._returned, []
        events, self.events = self.events, []
        self._write([kind, changed, gone, returned, events, whole])

    def _write(self, frame: list[Any]) -> None:
        data = memoryview(_dumps(frame, separators=(",", ":")).encode() + b"\n")
        if len(data) > MOST_FRAME:
            raise CannotCross("more data than can cross at once")
        with self._writing:
            while data:
                try:
                    data = data[_write(self._writer, data) :]
                except BrokenPipeError:
                    raise Ended from None

    def _forget_twins(self) -> None:
        for number, twin in list(self._twins.items()):
            if sys.getrefcount(twin[0]) <= 2:  # nobody but us holds it
                del self._twins[number], self._twin_ids[id(twin[0])]
                self._gone.append(number)
            del twin

    def receive(self) -> tuple[int, Encoded]:
        """The next frame, with what came along taken note of."""
        line = self._reader.readline(MOST_FRAME + 1)
        if not line.endswith(b"\n"):
            raise Ended
        kind, changed, gone, returned, events, body = _loads(line)
        for what, value in events:
            self.on_event(what, value)
        for number, items in changed:
            if number in self._twins:
                self._fill(number, self._twins[number][0], items)
        for number in gone:
            twin = self._twins.pop(number, None)
            if twin:
                del self._twin_ids[id(twin[0])]
        for hid, many in returned:
            self._lent_often[hid] -= many
            if self._lent_often[hid] <= 0 and hid in self._lent:
                del self._lent_often[hid], self._lent_ids[id(self._lent.pop(hid))]
        return kind, body

    def request(self, op: str, *args: Any, kw: dict[str, Any] | None = None) -> Any:
        """Ask the other side; serve what it asks meanwhile."""
        __tracebackhide__ = True
        if threading.get_ident() != self._owner:
            self.cannot("the program is used by several threads")
        self.asked += 1
        kind, body = self._exchange(op, args, kw or {})
        if kind == _ANSWER:
            return self._understood(body)
        error = self._understood(body)
        if not isinstance(error, BaseException):
            self.cannot("an error that is none")
        try:
            raise error
        finally:
            del error

    def _exchange(self, op: str, args: tuple[Any, ...], kw: dict[str, Any]) -> tuple[int, Encoded]:
        __tracebackhide__ = True

        def body() -> Encoded:
            return [op, [self.enc(a) for a in args], {k: self.enc(v) for k, v in kw.items()}]

        try:
            self._send(_ASK, body)
            while True:
                kind, answer = self.receive()
                if kind in (_ANSWER, _RAISE):
                    return kind, answer
                if kind == _CANNOT:
                    self.cannot(str(answer))
                self.serve(answer)
        except (Ended, CannotCross):
            raise
        except Exception as error:
            # Whatever is wrong with a frame, it is not for the test to fail by it.
            self.cannot(f"{op}: {error!r}"[:300])

    def _understood(self, body: Encoded) -> Any:
        try:
            return self.dec(body)
        except Exception as error:
            self.cannot(f"an answer that can't be understood: {error!r}"[:300])

    def serve(self, body: Encoded) -> None:
        """Do what the other side asks, and answer."""
        __tracebackhide__ = True
        try:
            op, args, kw = body
            args = [self.dec(a) for a in args]
            kw = {k: self.dec(v) for k, v in kw.items()}
            if self.judge and op not in _UNASKED:
                self._must_be_lent(args[0])
            result = getattr(self, f"do_{op}")(*args, **kw)
        except (Ended, CannotCross):
            raise
        except BaseException as error:  # the code under test may raise anything
            told = error  # the name of an except clause does not outlive it
            self._send(_RAISE, lambda: self.enc(told))
            return
        try:
            self._send(_ANSWER, lambda: self.enc(result))
        except Exception as error:
            self.cannot(f"{type(result).__name__}: {error!r}"[:300])

    def _must_be_lent(self, x: Any) -> None:
        if id(x) not in self._lent_ids and type(x) not in self._described:
            raise PermissionError("only what the tests gave may be asked")

    def cannot(self, why: str) -> NoReturn:
        """Give up: what the tests do needs one interpreter."""
        if not self.judge:
            self._write([_CANNOT, [], [], [], [], why])
        raise CannotCross(why)
