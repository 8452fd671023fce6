"""Judge and program, each in a process and a sandbox of its own: how one asks the other.

Both sides run the same `Peer`. Frames are lines of JSON. Plain data crosses by value and is
rebuilt from its parts. Containers that can change are twins: each frame brings the other's up to
date, and which names share one container is kept. Everything else is a handle, for which the other
side makes a stand-in. The judge is strict: it answers only for what it lent, tells nothing of its
frames and modules, and takes no exception from the program by which pytest is steered.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn

from holdfast.agents.code.inside.bridge_decoding import Decoding
from holdfast.agents.code.inside.bridge_encoding import Encoding
from holdfast.agents.code.inside.bridge_operations import Operations
from holdfast.agents.code.inside.bridge_state import CannotCross, Ended
from holdfast.agents.code.inside.bridge_values import Encoded, flat, unchanged

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
