"""Whether tests can be judged with the program in another process, as far as their text tells.

Most can. Those that look at the program's source, frames or memory, change what belongs to a whole
process (clocks, signals, contexts, loggers) or measure time need one interpreter. What the text
does not show is noticed while the tests run: see `inside/bridge_judge.py`.
"""

from __future__ import annotations

import ast
import re
import symtable
from collections.abc import Iterator

_MODULES = {
    "inspect": "looks into the program",
    "gc": "looks into the program's memory",
    "tracemalloc": "looks into the program's memory",
    "weakref": "looks into the program's memory",
    "ctypes": "looks into the program's memory",
    "pickle": "pickles the program's objects",
    "copyreg": "pickles the program's objects",
    "shelve": "pickles the program's objects",
    "marshal": "pickles the program's objects",
    "subprocess": "starts processes",
    "multiprocessing": "starts processes",
    "runpy": "runs the program as a script",
    "threading": "uses threads",
    "_thread": "uses threads",
    "concurrent": "uses threads",
    "queue": "uses threads",
    "signal": "uses signals",
    "atexit": "waits for the end of the process",
    "logging": "reads the program's log",
    "doctest": "reads the program's source",
    "tokenize": "reads the program's source",
    "linecache": "reads the program's source",
    "traceback": "reads the program's frames",
    "timeit": "measures time",
    "freezegun": "changes the clock",
    "time_machine": "changes the clock",
    "tempfile": "uses files",
    "shutil": "uses files",
    "sqlite3": "uses files",
    "socket": "uses sockets",
    "numpy": "shares a package's objects with the program",
    "pandas": "shares a package's objects with the program",
}
_NAMES = {
    "reload": "loads the program anew",
    "spec_from_file_location": "loads the program by its file",
    "getsource": "reads the program's source",
    "perf_counter": "measures time",
    "perf_counter_ns": "measures time",
    "monotonic": "measures time",
    "process_time": "measures time",
    "settrace": "traces the program",
    "setprofile": "traces the program",
    "getsizeof": "looks into the program's memory",
    "getrefcount": "looks into the program's memory",
    "setrecursionlimit": "changes the interpreter",
    "getcontext": "changes the context of decimals",
    "setcontext": "changes the context of decimals",
    "localcontext": "changes the context of decimals",
    "setlocale": "changes the locale",
    "tzset": "changes the clock",
    "assertLogs": "reads the program's log",
    "assertNoLogs": "reads the program's log",
    "get_type_hints": "looks into the program",
    "__annotations__": "looks into the program",
    "__code__": "looks into the program",
    "__globals__": "looks into the program",
    "__closure__": "looks into the program",
    "__defaults__": "looks into the program",
    "__wrapped__": "looks into the program",
    "__traceback__": "reads the program's frames",
    "currentframe": "reads the program's frames",
    "_getframe": "reads the program's frames",
    "caplog": "reads the program's log",
    "capfd": "reads the process's output",
    "capfdbinary": "reads the process's output",
    "capsysbinary": "reads the process's output",
    "tmp_path": "uses files",
    "tmpdir": "uses files",
    "tmp_path_factory": "uses files",
    "benchmark": "measures time",
}
_TEXT = re.compile(r"(^|[\s/'\"])solution\.py\b|(^|\s)-m\s+solution\b")


def needs_one_process(tests: str) -> str | None:
    """What the tests do that needs one interpreter; None if nothing in their text does."""
    try:
        tree = ast.parse(tests)
        names = symtable.symtable(tests, "tests", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # judged as what they are, at either level
    if _uses_built_in("id", names) or _compares_copies(tree):
        return "asks which object a value is"  # one that never changes crosses as a copy
    for node in ast.walk(tree):
        for reason in _reasons(node):
            return reason
    return None


def _uses_built_in(name: str, module: symtable.SymbolTable) -> bool:
    """Whether a scope means the built-in by this name, and nothing of the tests' own."""
    if name in module.get_identifiers():
        own = module.lookup(name)
        if own.is_assigned() or own.is_imported():
            return False
    scopes = [module]
    for scope in scopes:
        scopes.extend(scope.get_children())
    return any(
        name in scope.get_identifiers()
        and scope.lookup(name).is_referenced()
        and scope.lookup(name).is_global()
        for scope in scopes
    )


def _compares_copies(tree: ast.Module) -> bool:
    """Whether `is` is asked of what the tests themselves show to be a value that never changes."""
    values: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _is_value(node.value):
            values.update(each.id for each in node.targets if isinstance(each, ast.Name))
    return any(
        _is_value(side) or (isinstance(side, ast.Name) and side.id in values)
        for sides in _identities(tree)
        for side in sides
    )


def _identities(tree: ast.Module) -> Iterator[list[ast.expr]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            for place, operator in enumerate(node.ops):
                if isinstance(operator, ast.Is | ast.IsNot):
                    yield sides[place : place + 2]
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("assertIs", "assertIsNot")
        ):
            yield node.args[:2]


def _is_value(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_value(node.left) and _is_value(node.right)
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str | bytes | int | float | complex) and not isinstance(
            node.value, bool
        )
    return isinstance(node, ast.Tuple | ast.JoinedStr)


def _reasons(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from _known(_MODULES, *(alias.name.partition(".")[0] for alias in node.names))
    elif isinstance(node, ast.ImportFrom):
        yield from _known(_MODULES, (node.module or "").partition(".")[0])
        yield from _known(_NAMES, *(alias.name for alias in node.names))
    elif isinstance(node, ast.Attribute):
        yield from _known(_NAMES, node.attr)
        if isinstance(node.value, ast.Name) and (node.value.id, node.attr) == ("time", "time"):
            yield "measures time"
        if isinstance(node.value, ast.Name) and (node.value.id, node.attr) == ("sys", "modules"):
            yield "changes which modules are loaded"
    elif isinstance(node, ast.Name):
        yield from _known(_NAMES, node.id)
    elif isinstance(node, ast.arg):
        yield from _known(_NAMES, node.arg)
    elif isinstance(node, ast.Constant) and _names_file(node.value):
        yield "starts or reads the program's file"


def _names_file(value: object) -> bool:
    return isinstance(value, str) and len(value) < 200 and _TEXT.search(value) is not None


def _known(table: dict[str, str], *names: str) -> Iterator[str]:
    yield from (table[name] for name in names if name in table)
