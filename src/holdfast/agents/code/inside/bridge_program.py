"""The program's process: loads the program when it is asked to, and serves it to the judge.

Copied into a sandbox of its own, which holds neither the tests nor anything of pytest's run. Frames
come on standard input and go out on standard error; whatever the program itself writes to either
output goes to the other one. What it prints travels with the next frame.
"""

from __future__ import annotations

import builtins
import faulthandler
import importlib
import json
import os
import random
import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any

from holdfast.agents.code.inside.bridge_peer import Peer
from holdfast.agents.code.inside.bridge_state import CannotCross, Ended

MOST_PRINTED = 1_000_000
READY = b"ready\n"
"""Comes before all frames: what fails before it is no fault of the program's."""
PRINTED_TOO_MUCH = 77
"""The exit status of a program that prints without end."""


class _Out:
    """Standard output or error: what is written goes to the judge, which prints it."""

    encoding, errors, closed, newlines, line_buffering = "utf-8", "strict", False, None, True

    def __init__(self, peer: Peer, kind: str) -> None:
        self._peer, self._kind, self._left = peer, kind, MOST_PRINTED
        self.name = "<stdout>" if kind == "o" else "<stderr>"
        self.mode = "w"

    def write(self, text: Any) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self._left -= len(text)
        if self._left < 0:
            os._exit(PRINTED_TOO_MUCH)
        self._peer.events.append([self._kind, text])
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def fileno(self) -> int:
        return 2

    @property
    def buffer(self) -> Any:
        self._peer.cannot("the program writes bytes to its output")


class _In:
    """Standard input, as the tests have set it."""

    encoding, closed = "utf-8", False

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def readline(self, *args: Any) -> Any:
        return self._peer.request("stdin", "readline", *args)

    def read(self, *args: Any) -> Any:
        return self._peer.request("stdin", "read", *args)

    def readlines(self, *args: Any) -> Any:
        return self._peer.request("stdin", "readlines", *args)

    def __iter__(self) -> Iterator[str]:
        return iter(self.readline, "")

    def isatty(self) -> bool:
        return False


class Program(Peer):
    """The program's side: more may be asked of it."""

    def __init__(self, *args: Any, **kw: Any) -> None:
        super().__init__(*args, **kw)
        self._replaced: dict[tuple[str, str], Any] = {}

    def do_import(self, name: str) -> tuple[int, bool, str | None]:
        module = importlib.import_module(name)
        is_package = getattr(module, "__path__", None) is not None
        return self.lend(module), is_package, getattr(module, "__file__", None)

    def do_names(self, module: types.ModuleType) -> list[str]:
        return list(vars(module))

    def do_all(self, module: types.ModuleType) -> list[str]:
        listed = getattr(module, "__all__", None)
        if listed is not None:
            return list(listed)
        return [name for name in vars(module) if name[:1] != "_"]

    def do_make_class(self, name: str, bases: list[Any], ns: dict[str, Any]) -> Any:
        """A class of the tests that derives from one of the program's."""

        def fill(made: dict[str, Any]) -> None:
            made.update(ns, __module__="test_solution")

        return types.new_class(name, tuple(bases), {}, fill)

    def do_seed(self, *args: Any, **kw: Any) -> None:
        random.seed(*args, **kw)

    def do_patch(self, module: str, name: str, value: Any) -> None:
        target = importlib.import_module(module)
        self._replaced.setdefault((module, name), getattr(target, name, None))
        setattr(target, name, value)

    def do_unpatch(self, module: str, name: str) -> None:
        if (module, name) in self._replaced:
            setattr(sys.modules[module], name, self._replaced.pop((module, name)))


def _event(kind: str, value: Any) -> None:
    if kind == "env":
        os.environ.clear()
        os.environ.update(value)
    elif kind == "argv":
        sys.argv[:] = value


def _show(peer: Peer) -> Any:
    """How a warning is shown: the judge gives it once more."""

    def show(
        message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None
    ) -> None:
        if getattr(builtins, category.__name__, None) is not category:
            peer.cannot("the program gives warnings of its own kinds")
        peer.events.append(["w", [str(message), category.__name__, filename, lineno]])

    return show


def main() -> None:
    # Frames on descriptors of their own; the program gets an empty input, and one output.
    reader, writer = os.fdopen(os.dup(0), "rb"), os.dup(2)
    given = json.loads(reader.readline())
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(1, 2)
    faulthandler.dump_traceback_later(given["limit"], file=os.fdopen(os.dup(1), "w"))
    sys.dont_write_bytecode = True
    sys.path.pop(0)  # ours
    sys.path.extend([os.getcwd(), *given.get("path", ())])  # takes the place of no module
    peer = Program(reader, writer, judge=False)
    peer.on_event = _event
    out, err, inp = _Out(peer, "o"), _Out(peer, "e"), _In(peer)
    sys.stdout, sys.stderr, sys.stdin = out, err, inp
    builtins.input = lambda prompt="": peer.request("input", prompt)
    warnings.simplefilter("always")
    warnings.showwarning = _show(peer)
    os.write(writer, READY)
    try:
        while True:
            _, body = peer.receive()
            peer.serve(body)
    except (Ended, CannotCross):
        os._exit(0)


if __name__ == "__main__":
    main()
