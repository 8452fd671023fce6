"""How a command's process starts: a Python script by a fork of the agent, a program by a spawn.

A plain `python script.py`, `python -c …` or `python -m …` is taken over when nothing about it
needs a fresh interpreter; anything else (flags, PYTHON… variables, a venv's python) is
executed as usual. The forked child unwinds to the top of the interpreter, runs the script as
`__main__`, and ends as an interpreter does: threads, exit handlers, finalisers, exit codes.
"""

from __future__ import annotations

import atexit
import errno
import fcntl
import gc
import io
import os
import runpy
import signal
import site
import subprocess
import sys
import termios
import threading
import time
import types
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import IO, Any, NoReturn

_OURS = ("/opt/", "/usr/")
_HONOURED = frozenset({"PYTHONPATH", "PYTHONDONTWRITEBYTECODE"})
_AS_STARTED = {name: os.environ.get(name) for name in ("LANG", "LC_ALL", "LC_CTYPE")}
_AT_START = {
    stream: (getattr(sys, stream).encoding, getattr(sys, stream).errors)
    for stream in ("stdin", "stdout", "stderr")
    if getattr(sys, stream, None) is not None
}


_kept: list[object] = []
_MOST_LOOKED_AT = 2000


@dataclass(frozen=True, slots=True)
class Program:
    """A program to become."""

    program: str
    argv: list[str]
    env: dict[str, str]
    kind: str | None
    """What it is for our own interpreter, `file`, `code` or `module`; None: it needs its own."""


class BecomeScript(BaseException):
    """Raised in the forked child: unwind everything, then run the script."""

    def __init__(self, script: Program, agent: object) -> None:
        super().__init__()
        self.script = script
        _kept.extend((agent, self))


def plan(
    program: str, argv: list[str], env: dict[str, str], cwd: str, pythons: frozenset[str]
) -> str | None:
    """The kind of script these words mean, or None where a fresh interpreter is needed."""
    if program not in pythons or len(argv) < 2:
        return None
    if any(name.startswith("PYTHON") and name not in _HONOURED for name in env):
        return None
    if any(env.get(name) != value for name, value in _AS_STARTED.items()):
        return None
    if argv[1] in ("-c", "-m"):
        if len(argv) < 3 or _shadowed(cwd, env, thorough=argv[1] == "-m"):
            return None
        return "code" if argv[1] == "-c" else "module"
    path = argv[1]
    if path.startswith("-") or not path.endswith(".py"):
        return None
    path = os.path.join(cwd, path)
    if not os.path.isfile(path) or _shadowed(os.path.dirname(os.path.realpath(path)), env):
        return None
    return "file"


def _shadowed(folder: str, env: dict[str, str], *, thorough: bool = False) -> bool:
    """Whether the program's own files have a module we have loaded already under the same name.

    It would get ours instead of its own: only a fresh interpreter gets that right. What is
    imported may also lie below (`tests/`, `src/`), so that is looked at too; `thorough` says what
    to make of more files than can be looked at while somebody waits.
    """
    left = _MOST_LOOKED_AT if thorough else _MOST_LOOKED_AT // 10
    waiting = [folder, *(entry for entry in env.get("PYTHONPATH", "").split(":") if entry)]
    while waiting:
        try:
            with os.scandir(waiting.pop(0)) as entries:
                for entry in entries:
                    left -= 1
                    if left < 0:
                        return thorough
                    name, _, kind = entry.name.partition(".")
                    if name.startswith("__"):
                        continue
                    if name in sys.modules and (
                        kind in ("py", "pyc")
                        or kind.endswith("so")
                        or (not kind and os.path.isfile(f"{entry.path}/__init__.py"))
                    ):
                        return True
                    below = not kind and name != "node_modules"
                    if below and entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError:
            continue  # not there, or not ours to read: nothing is imported from it either
    return False


def run(script: Program) -> NoReturn:
    """Be the script, to its end."""
    # What is there already is neither collected nor taken down: touching it would copy it.
    gc.freeze()
    preloaded = frozenset(sys.modules)
    _take_place(script)
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = sys.modules["builtins"]
    if hasattr(sys.modules["__main__"], "__annotations__"):
        main.__annotations__ = {}
    sys.modules["__main__"] = main
    interrupted = False
    try:
        _execute(script, main)
        code = 0
    except SystemExit as error:
        code = _exit_code(error)
    except BaseException as error:  # noqa: BLE001 - an interpreter's own last resort
        _show(error)
        interrupted = isinstance(error, KeyboardInterrupt)
        code = 1
    code = _finish(preloaded) or code
    if interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code)


def _exit_code(error: SystemExit) -> int:
    """What `sys.exit(…)` means, printing what is no number."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    sys.stdout.flush()
    print(error.code, file=sys.stderr)  # noqa: T201 - as the interpreter does
    return 1


def _finish(preloaded: frozenset[str]) -> int:
    """End as an interpreter does, but only for what the script brought: ours would take longer
    to take down than most scripts run. Returns 120 if output was lost, else 0."""
    shutdown: Any = threading
    shutdown._shutdown()
    exits: Any = atexit
    exits._run_exitfuncs()
    lost = _flush()
    own = [sys.modules.pop("__main__"), *_brought_along(preloaded)]
    for module in own:
        names = [name for name in vars(module) if name != "__builtins__"]
        for name in sorted(names, key=lambda name: not name.startswith("_")):
            vars(module)[name] = None
    gc.collect()
    return _flush() or lost


def _brought_along(preloaded: frozenset[str]) -> list[types.ModuleType]:
    """The modules the script imported from its own files."""
    brought = [m for name, m in sys.modules.items() if name not in preloaded]
    return [
        m for m in brought if not str(getattr(m, "__file__", "/opt/") or "/opt/").startswith(_OURS)
    ]


def _flush() -> int:
    for stream in (sys.stdout, sys.stderr):
        if stream is None or stream.closed:
            continue
        try:
            stream.flush()
        except OSError:
            return 120
    return 0


def _execute(script: Program, main: types.ModuleType) -> None:
    if script.kind == "module":
        sys.argv = ["-m", *script.argv[3:]]
        sys.path.insert(0, os.getcwd())
        runner: Any = runpy
        runner._run_module_as_main(script.argv[2])
        return
    if script.kind == "code":
        sys.argv = ["-c", *script.argv[3:]]
        sys.path.insert(0, "")
        code = _compiled(script, script.argv[2], "<string>")
    else:
        path = script.argv[1]
        sys.argv = script.argv[1:]
        sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
        main.__dict__["__file__"] = os.path.join(os.getcwd(), path)
        main.__loader__ = SourceFileLoader("__main__", path)
        main.__dict__["__cached__"] = None
        with open(path, "rb") as file:
            source = file.read()
        code = _compiled(script, source, main.__dict__["__file__"])
    exec(code, main.__dict__)  # noqa: S102 - running the given program is the purpose


def _compiled(script: Program, source: str | bytes, name: str) -> types.CodeType:
    """The program as code. What can't be compiled is left to a fresh interpreter to complain of,
    since it reads files by other rules than strings."""
    try:
        return compile(source, name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, UnicodeError):
        os.execve(script.program, script.argv, script.env)  # noqa: S606 - the program it asked for


def _take_place(script: Program) -> None:
    """Make this process look like an interpreter that was just started for the script."""
    for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    os.environ.clear()
    os.environ.update(script.env)
    if "TZ" in script.env:
        time.tzset()
    sys.executable = script.program
    sys.orig_argv = list(script.argv)
    sys.dont_write_bytecode = bool(script.env.get("PYTHONDONTWRITEBYTECODE"))
    ours = [n for n in sys.modules if n == "holdfast" or n.startswith("holdfast.")]
    _kept.extend(sys.modules.pop(name) for name in ours)
    sys.path[:0] = [entry for entry in script.env.get("PYTHONPATH", "").split(":") if entry]
    _find_user_packages()
    sys.stdin = sys.__stdin__ = _stream(0, "stdin")  # pyright: ignore[reportAttributeAccessIssue]
    sys.stdout = sys.__stdout__ = _stream(1, "stdout")  # pyright: ignore[reportAttributeAccessIssue]
    sys.stderr = sys.__stderr__ = _stream(2, "stderr")  # pyright: ignore[reportAttributeAccessIssue]


def _find_user_packages() -> None:
    """What `pip install` put into the home folder since the agent started."""
    site.USER_BASE = site.USER_SITE = None
    if site.ENABLE_USER_SITE is not False:
        known: set[str] = set(sys.path)
        site.addusersitepackages(known)


def _stream(fd: int, name: str) -> IO[str]:
    encoding, errors = _AT_START.get(name, ("utf-8", "backslashreplace"))
    raw = open(fd, "rb" if fd == 0 else "wb", buffering=0, closefd=False)  # noqa: SIM115
    raw.name = f"<{name}>"
    buffer: Any = io.BufferedReader(raw) if fd == 0 else io.BufferedWriter(raw)
    text = io.TextIOWrapper(
        buffer,
        encoding=encoding,
        errors=errors,
        newline=None if fd == 0 else "\n",
        line_buffering=fd == 2,
    )
    setattr(text, "mode", "r" if fd == 0 else "w")  # noqa: B010 - undeclared, but there in fact
    return text


def _show(error: BaseException) -> None:
    """Print an uncaught exception as the interpreter would, without the frames of this file."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
        traceback = traceback.tb_next
    error = error.with_traceback(traceback)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, traceback
    sys.excepthook(type(error), error, traceback)


# --- an order to start a process; programs by a spawn (scripts: `template`) ---

Streams = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Order(Program):
    """A program to start, and as what."""

    cwd: str
    user: int | None
    """Who it becomes, where that is not who we are already."""
    terminal: bool = False
    """Whether its streams are a terminal, which it is to be controlled by."""

    @classmethod
    def of(cls, header: dict[str, Any], pythons: frozenset[str], user: int | None) -> Order:
        """What a request asks for. Raises OSError where there is no such program or folder."""
        argv = [str(word) for word in header["argv"]]
        env = {str(k): str(v) for k, v in header["env"].items()}
        cwd = str(header["cwd"])
        _look_into(cwd)
        program = _find(argv[0], cwd, env.get("PATH", ""))
        terminal = bool(header.get("terminal"))
        # An interpreter sets itself up differently on a terminal: that takes a fresh one.
        kind = None if terminal else plan(program, argv, env, cwd, pythons)
        return cls(program, argv, env, kind, cwd, user, terminal)


def become(order: Order, streams: Streams) -> None:
    """In the child: be the command's process, but for its program. Raises OSError, which must
    not lead the child back to what the agent does."""
    if order.user is not None:
        os.setresuid(order.user, order.user, order.user)
    os.setsid()
    for target, fd in enumerate(streams):
        os.dup2(fd, target)
    if order.terminal:
        _be_controlled()
    os.chdir(order.cwd)


def _be_controlled() -> None:
    """Have standard input as the session's terminal: Ctrl-C and a hang-up become signals."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def start(order: Order, streams: Streams) -> int:
    """Start a program; gives its pid. It borrows our memory until it executes: no copy is made."""
    started = subprocess.Popen(
        order.argv,
        executable=order.program,
        stdin=streams[0],
        stdout=streams[1],
        stderr=streams[2],
        cwd=order.cwd,
        env=order.env,
        start_new_session=True,
        user=order.user,
        preexec_fn=_be_controlled if order.terminal else None,  # noqa: PLW1509 - we have one
    )
    started.returncode = 0  # reaped with all other children, by the agent
    return started.pid


def _look_into(folder: str) -> None:
    """Raise OSError where a process can't have this as its working directory."""
    try:
        os.stat(f"{folder}/.")
    except OSError as error:
        raise OSError(error.errno, error.strerror, folder) from None


def _find(name: str, cwd: str, path: str) -> str:
    """The program's file, as a shell would find it."""
    if "/" in name:
        return name if name.startswith("/") else str(Path(cwd, name))
    for folder in path.split(":"):
        candidate = f"{folder or '.'}/{name}"
        if os.access(candidate, os.X_OK) and not Path(candidate).is_dir():
            return candidate
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
