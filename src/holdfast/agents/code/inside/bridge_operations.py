"""What one side does for the other, and how the judge takes the program's word for nothing.

An object of the program's own class that is compared with data is asked about that data among much
that is not. Claiming too much of it is a lie, on record. A true answer proves little, since what is
expected was in sight: there the verdict needs another level.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import asyncio
import copy
import enum
import random
import types
from typing import Any

from holdfast.agents.code.inside.bridge_classes import Meta, is_plain
from holdfast.agents.code.inside.bridge_state import State
from holdfast.agents.code.inside.bridge_values import (
    DATA,
    ORDER,
    PLAIN,
    SPECIAL,
    data_of,
    decoys,
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
