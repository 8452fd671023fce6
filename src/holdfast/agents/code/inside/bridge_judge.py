"""The judge's side of the bridge: stand-ins for the program's modules, in a process of pytest's.

Tests import `solution` and get a stand-in. What they replace in the standard library, the
environment and the arguments is passed on to the program. What they do that only works in one
process (files, other processes, threads) is noticed, and the whole file is judged anew in one.
"""

from __future__ import annotations

import ast
import builtins
import importlib.abc
import importlib.machinery
import os
import random
import re
import sys
import types
import warnings
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO, NoReturn, cast

from holdfast.agents.code.inside.bridge_classes import StandInModule
from holdfast.agents.code.inside.bridge_peer import Peer
from holdfast.agents.code.inside.bridge_state import Ended
from holdfast.agents.code.inside.bridge_values import is_standard

__unittest = True  # and unittest's frames are left out where ours are
_TESTS = re.compile(r"(^|\.)(tests?|conftest|test_\w+)(\.|$)")
_REACHES_OUT = re.compile(
    r"(subprocess|ctypes|sqlite3|pty|shutil|tempfile|ftplib|smtplib|urllib|mmap)\.|"
    r"socket\.(connect|bind|getaddrinfo|gethostbyname|sendto)|"
    r"os\.(system|exec|fork|forkpty|spawn|posix_spawn|startfile|chdir|mkdir|remove|rmdir|rename|"
    r"link|symlink|truncate|chmod|chown|utime|kill|killpg)|sys\.(settrace|setprofile)"
)
_SYSTEM = ("/usr", "/etc", "/dev", "/opt", "/lib", "/proc/self")
_LOOKS = ("open", "os.listdir", "os.scandir")
_STREAMS = ("stdin", "stdout", "stderr", "argv")
_getcwd = os.getcwd


class Judge(Peer):
    """The judge's side: the program may ask for what is typed, and for what was lent."""

    def __init__(self, reader: BinaryIO, writer: int, give_up: Callable[[str], NoReturn]) -> None:
        super().__init__(reader, writer, judge=True)
        self._give_up = give_up
        self.on_end: Callable[[], NoReturn] | None = None
        self.watching = False
        """Whether tests are running that must not reach out of their process."""

    def receive(self) -> tuple[int, Any]:
        try:
            return super().receive()
        except Ended:
            self.watching = False
            if self.on_end is not None:
                self.on_end()
            raise

    def cannot(self, why: str) -> NoReturn:
        self.watching = False
        self._give_up(why)

    def do_input(self, prompt: Any) -> Any:
        return builtins.input(prompt)

    def do_stdin(self, name: str, *args: Any) -> Any:
        if name not in ("readline", "read", "readlines"):
            raise AttributeError(name)
        return getattr(sys.stdin, name)(*args)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the program's modules: on the other side."""

    def __init__(self, peer: Judge, roots: Iterable[str], taken: frozenset[str]) -> None:
        self._peer, self._roots, self._taken = peer, frozenset(roots), taken

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        __tracebackhide__ = True
        if fullname.partition(".")[0] not in self._roots or _TESTS.search(fullname):
            return None
        try:
            hid, is_package, file = self._peer.request("import", fullname)
        except ModuleNotFoundError as error:
            if error.name == fullname:
                return None
            raise
        spec = importlib.machinery.ModuleSpec(fullname, self, is_package=bool(is_package))
        spec.loader_state = hid, file
        return spec

    def create_module(self, spec: Any) -> Any:
        module = StandInModule(spec.name)
        hid, file = spec.loader_state
        for name, value in {"__hid__": hid, "__peer__": self._peer, "__file__": file}.items():
            object.__setattr__(module, name, value)
        object.__setattr__(module, "__taken__", self._taken)
        return module

    def exec_module(self, module: Any) -> None:
        pass


def connect(
    reader: BinaryIO,
    writer: int,
    roots: Iterable[str],
    tree: ast.Module,
    give_up: Callable[[str], NoReturn],
) -> Judge:
    """Have the program's modules found on the other side."""
    peer = Judge(reader, writer, give_up)
    peer.on_event = _event
    peer.before = _state_sender(peer)
    sys.meta_path.insert(0, Finder(peer, roots, frozenset(_bound(tree))))
    seed = random.seed

    def both(*args: Any, **kw: Any) -> None:
        seed(*args, **kw)
        peer.request("seed", *args, kw=kw)

    random.seed = both
    _forward_patches(peer)
    return peer


def _bound(tree: ast.Module) -> Iterable[str]:
    """The names that the tests bind by themselves: no star import takes their place."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((a.asname or a.name).partition(".")[0] for a in node.names)


def _event(kind: str, value: Any) -> None:
    if kind == "o":
        sys.stdout.write(str(value))
    elif kind == "e":
        sys.stderr.write(str(value))
    elif kind == "w":
        text, name, file, line = value
        category = getattr(builtins, name)
        if issubclass(category, Warning):
            warnings.warn_explicit(str(text), category, str(file), int(line))


def _state_sender(peer: Judge) -> Callable[[], None]:
    """Tells the program of the environment and the arguments, whenever they have changed."""
    known = {"env": _environment(), "argv": [str(each) for each in sys.argv]}

    def send() -> None:
        now = {"env": _environment(), "argv": [str(each) for each in sys.argv]}
        for kind, value in now.items():
            if value != known[kind]:
                peer.events.append([kind, value])
                known[kind] = value

    return send


def _environment() -> Any:
    return {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"}


def watch(peer: Judge, where: str, allowed: Iterable[str]) -> None:
    """Give up when tests reach out of their process, while the peer is watching."""
    own = (os.path.realpath(each) for each in (sys.prefix, sys.base_prefix, *allowed))
    places = (*own, *_SYSTEM, os.path.join(where, "__pycache__"))

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if not peer.watching:
            return
        if event in _LOOKS:
            path = args[0]
            if isinstance(path, bytes):
                path = os.fsdecode(path)
            if isinstance(path, str):
                whole = path if path.startswith("/") else os.path.join(where, path)
                known = whole.startswith(places) or path.startswith("<")
                if not known and not _is_ours(event, whole, where, args):
                    peer.cannot(f"the tests use files: {os.path.basename(whole)}")
        elif _REACHES_OUT.match(event) and not (event == "os.chdir" and str(args[0]) == where):
            peer.cannot(f"the tests use {event}")

    sys.addaudithook(hook)


def _is_ours(event: str, path: str, where: str, args: tuple[Any, ...]) -> bool:
    """What pytest and the import system look at on their own."""
    if event != "open":
        return path.rstrip("/") == where.rstrip("/")
    name = os.path.basename(path)
    reads = not isinstance(args[1], str) or args[1] in ("r", "rb")
    return path.startswith(where) and reads and (name.startswith("test_") or name == "__init__.py")


def _forward_patches(peer: Judge) -> None:
    """What tests replace in a module of the standard library is replaced for the program too."""
    from unittest import mock

    from _pytest.monkeypatch import MonkeyPatch

    before: dict[tuple[str, str], Any] = {}

    def note(target: Any, name: str, value: Any) -> None:
        if type(target) is types.ModuleType:
            before.setdefault((target.__name__, name), value)

    def tell(target: Any, name: str) -> None:
        if type(target) is not types.ModuleType or not is_standard(target.__name__):
            return
        key = (target.__name__, name)
        if key in (("builtins", "input"), ("os", "environ")):
            return
        if target is sys:
            if name not in _STREAMS:
                peer.cannot(f"the tests replace sys.{name}")
            return
        now = getattr(target, name, None)
        if key in before and now is before[key]:
            peer.request("unpatch", *key)
        else:
            peer.request("patch", *key, now)

    patch = cast("Any", mock)._patch
    enter, leave = patch.__enter__, patch.__exit__

    def patched_enter(self: Any) -> Any:
        target = self.getter()
        note(target, self.attribute, getattr(target, self.attribute, None))
        result = enter(self)
        tell(self.target, self.attribute)
        return result

    def patched_leave(self: Any, *args: Any) -> Any:
        target, name = self.target, self.attribute
        result = leave(self, *args)
        tell(target, name)
        return result

    patch.__enter__, patch.__exit__ = patched_enter, patched_leave
    monkey = cast("Any", MonkeyPatch)
    set_, undo = monkey.setattr, monkey.undo

    def patched_set(self: Any, *args: Any, **kw: Any) -> None:
        many = len(self._setattr)
        set_(self, *args, **kw)
        if len(self._setattr) > many:
            target, name, value = self._setattr[-1]
            note(target, name, value)
            tell(target, name)

    def patched_undo(self: Any) -> None:
        done = [(target, name) for target, name, _ in self._setattr]
        undo(self)
        for target, name in done:
            tell(target, name)

    monkey.setattr, monkey.undo = patched_set, patched_undo
