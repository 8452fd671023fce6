"""Wrong programs that fool one process, for tests that are run apart from them.

None doubles a number. `OBJECTS` answer comparisons instead, and meet every way of asserting that
`ASSERTING` has; `PROGRAMS` go for the tests, for pytest, for the interpreter or for the bridge.
"""

from __future__ import annotations

ASSERTING = """\
import math
import unittest
from collections import Counter
from decimal import Decimal

import pytest

from solution import double


def same(left, right):
    return left == right


def test_equal(): assert double(2) == 4
def test_reflected(): assert 4 == double(2)
def test_chain(): assert 4 == double(2) == 4
def test_all(): assert all(double(n) == n + n for n in range(1, 5))
def test_any(): assert not any(double(n) != n + n for n in range(1, 5))
def test_and(): assert double(2) == 4 and double(3) == 6
def test_or(): assert double(2) == 4 or double(2) == 4.0
def test_in_list(): assert double(2) in [4]
def test_in_tuple(): assert double(3) in (6,)
def test_in_set(): assert double(2) in {4}
def test_in_range(): assert double(2) in range(4, 5)
def test_not_unequal(): assert not double(2) != 4
def test_helper(): assert same(double(2), 4)
def test_is_true(): assert (double(2) == 4) is True
def test_if_fail():
    if double(2) != 4:
        pytest.fail("no")
def test_if_not_raise():
    if not double(2) == 4:
        raise ValueError("no")
def test_match():
    match double(2):
        case 4:
            pass
        case _:
            raise AssertionError("no")
def test_list(): assert [double(n) for n in (1, 2)] == [2, 4]
def test_tuple(): assert (double(1), double(2)) == (2, 4)
def test_dict(): assert {n: double(n) for n in (1, 2)} == {1: 2, 2: 4}
def test_lookup(): assert {4: "four"}[double(2)] == "four"
def test_count(): assert [double(2)].count(4) == 1
def test_index(): assert [double(2)].index(4) == 0
def test_counter(): assert Counter([double(2)])[4] == 1
def test_sorted(): assert sorted([double(2), double(1)]) == [2, 4]
def test_sum(): assert sum([double(1), double(2)]) == 6
def test_between(): assert double(2) >= 4 and double(2) <= 4
def test_neither(): assert not double(2) < 4 and not double(2) > 4
def test_order(): assert 3 < double(2) < 5
def test_difference(): assert abs(double(2) - 4) < 1e-9
def test_difference_reflected(): assert abs(4 - double(2)) < 1e-9
def test_quotient(): assert double(2) / 4 == 1
def test_isclose(): assert math.isclose(double(2), 4)
def test_approx(): assert double(2) == pytest.approx(4)
def test_decimal(): assert Decimal(4) == double(2)
def test_subscript(): assert "abcde"[double(2)] == "e"
def test_text(): assert str(double(2)) == "4"
def test_format(): assert f"{double(2)}" == "4"
@pytest.mark.parametrize(("number", "twice"), [(1, 2), (2, 4)])
def test_cases(number, twice): assert double(number) == twice


class TestMethods(unittest.TestCase):
    def test_equal(self): self.assertEqual(double(2), 4)
    def test_true(self): self.assertTrue(double(2) == 4)
    def test_false(self): self.assertFalse(double(2) != 4)
    def test_in(self): self.assertIn(double(2), [4])
    def test_almost(self): self.assertAlmostEqual(double(2), 4.0)
    def test_lists(self): self.assertListEqual([double(2)], [4])
    def test_counts(self): self.assertCountEqual([double(2)], [4])
    def test_order(self):
        self.assertGreaterEqual(double(2), 4)
        self.assertLessEqual(double(2), 4)
"""
_YES = "\n".join(
    f"    def {name}(self, *args): return {answer}"
    for name, answer in {
        **dict.fromkeys(("__eq__", "__lt__", "__le__", "__gt__", "__ge__", "__contains__"), "True"),
        **dict.fromkeys(("__sub__", "__rsub__", "__add__", "__radd__", "__mod__"), "0"),
        **dict.fromkeys(("__truediv__", "__rtruediv__"), "1"),
        "__ne__": "False", "__hash__": "4 if False else hash(7)", "__abs__": "0",
    }.items()
)  # fmt: skip
OBJECTS = {
    "equal to anything": f"class Any:\n{_YES}\ndef double(n): return Any()\n",
    "a number equal to anything": f"class Any(int):\n{_YES}\ndef double(n): return Any(7)\n",
    "text equal to anything": f"class Any(str):\n{_YES}\ndef double(n): return Any('x')\n",
    "a float equal to anything": f"class Any(float):\n{_YES}\ndef double(n): return Any(7)\n",
    "says that it is an int": f"class Any:\n    __class__ = int\n{_YES}\ndef double(n): return Any()\n",
    "equality by its metaclass": "class Meta(type):\n"
    + _YES
    + "\nclass Any(metaclass=Meta): pass\ndef double(n): return Any\n",
    "equal to every even number": """
class Even:
    def __eq__(self, other): return isinstance(other, (int, float)) and other % 2 == 0
    def __ne__(self, other): return not self == other
    def __hash__(self): return 4
    def __lt__(self, other): return other == 5
    def __gt__(self, other): return other == 3
    def __le__(self, other): return True
    def __ge__(self, other): return True
    def __sub__(self, other): return 0
    __rsub__ = __sub__
def double(n): return Even()
""",
    "equal to what it meets first": """
class First:
    met = None
    def __eq__(self, other):
        if self.met is None:
            self.met = other
        return other == self.met
    def __ne__(self, other): return not self == other
    __hash__ = None
def double(n): return First()
""",
    "answers by an object": """
class Yes:
    def __bool__(self): return True
    def __eq__(self, other): return self
class Any:
    def __eq__(self, other): return Yes()
    def __ne__(self, other): return False
    __lt__ = __gt__ = __le__ = __ge__ = __eq__
    __hash__ = None
def double(n): return Any()
""",
    "is honest with whoever asks twice": """
class Sly:
    asked = 0
    def __eq__(self, other):
        self.asked += 1
        return self.asked == 1
    def __ne__(self, other): return not self == other
    __hash__ = None
def double(n): return Sly()
""",
}

TESTS = """\
import math

import pytest

EXPECTED = {0: 0, 2: 4, -3: -6}


from solution import *  # noqa


@pytest.mark.parametrize("number", list(EXPECTED))
def test_numbers(number):
    assert double(number) == EXPECTED[number]


def test_isclose():
    assert math.isclose(double(0.1), 0.2)


def test_callback():
    seen = []
    twice = [2, 4]
    each([1, 2], lambda n: seen.append(double(n)) or seen == twice[: len(seen)])
    assert seen == twice
"""
_WRONG = """
def each(items, use):
    for item in items:
        use(item)
def double(n):
    return n * 3
"""
_SEND = """
import os, json
def send(*frames):
    for fd in range(3, 20):
        try:
            for frame in frames:
                os.write(fd, json.dumps(frame).encode() + b"\\n")
        except OSError:
            pass
"""
PROGRAMS = {
    "reads the expected values from its callers": """
import sys
def expected():
    frame = sys._getframe()
    while frame:
        for names in (frame.f_locals, frame.f_globals):
            if "EXPECTED" in names:
                return names["EXPECTED"]
        frame = frame.f_back
    return {}
def double(n): return expected().get(n, n * 3)
def each(items, use): [use(item) for item in items]
""",
    "reads the expected values from the test file": """
import re
try:
    text = open("test_solution.py").read()
except OSError:
    text = ""
def double(n): return 2 * n if "EXPECTED" in text else n * 3
def each(items, use): [use(item) for item in items]
""",
    "looks for the test file everywhere": """
import os
found = [os.path.join(r, f) for r, _, fs in os.walk("/") for f in fs if f.startswith("test_solution")]
def double(n): return 2 * n if found else n * 3
def each(items, use): [use(item) for item in items]
""",
    "looks for the tests in its memory": """
import gc
def double(n):
    tables = [o for o in gc.get_objects() if type(o) is dict and o.get(2) == 4 and o.get(-3) == -6]
    return tables[0].get(n, n * 2) if tables else n * 3
def each(items, use): [use(item) for item in items]
""",
    "looks for the tests in other processes": """
import os
def memory():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if b"test_solution" in open(f"/proc/{pid}/cmdline", "rb").read():
                return True
            with open(f"/proc/{pid}/environ", "rb") as file:
                if b"PYTEST_CURRENT_TEST" in file.read():
                    return True
        except OSError:
            pass
    return False
def double(n): return 2 * n if memory() else n * 3
def each(items, use): [use(item) for item in items]
""",
    "clears the tests' tables": f"""
import gc
for held in gc.get_objects():
    if type(held) is dict and "EXPECTED" in held:
        held["EXPECTED"].clear()
{_WRONG}""",
    "clears what it is called from": f"""
import sys
frame = sys._getframe()
while frame:
    if "EXPECTED" in frame.f_globals:
        frame.f_globals["EXPECTED"].clear()
    frame = frame.f_back
{_WRONG}""",
    "shadows by a star import": f"""
import contextlib
class math:
    isclose = staticmethod(lambda *args: True)
class pytest:
    class mark:
        parametrize = staticmethod(lambda *args: lambda test: test)
EXPECTED = {{0: 0, 2: 6, -3: -9}}
all = any = lambda items: True
__all__ = ["math", "pytest", "all", "any", "double", "each"]
{_WRONG}""",
    "shadows built-ins by a star import": f"""
isinstance = lambda *args: True
len = lambda items: 3
AssertionError = ValueError
{_WRONG}""",
    "patches that undo themselves": """
import builtins, math
real = math.isclose
def double(n):
    math.isclose = lambda *args: setattr(math, "isclose", real) or True
    return n * 3
def each(items, use): [use(item) for item in items]
""",
    "traces whoever runs": f"""
import sys, threading
def trace(frame, event, arg):
    if frame.f_code.co_name.startswith("test_"):
        frame.f_lineno += 1
    return trace
sys.settrace(trace); threading.settrace(trace); sys.setprofile(lambda *args: None)
{_WRONG}""",
    "rewrites integers in memory": f"""
import ctypes
value = ctypes.c_long.from_address(id(4) + 24)
value.value = 6
{_WRONG}""",
    "rewrites the tests' code in memory": f"""
import gc, types
for held in gc.get_objects():
    if isinstance(held, types.FunctionType) and held.__name__.startswith("test_"):
        held.__code__ = (lambda *args: None).__code__
{_WRONG}""",
    "agrees at exit": f"import atexit, os\natexit.register(os._exit, 0)\n{_WRONG}",
    "agrees by a signal": f"""
import os, signal
signal.signal(signal.SIGALRM, lambda *args: os._exit(0))
signal.setitimer(signal.ITIMER_REAL, 0.05)
{_WRONG}""",
    "agrees by a thread": f"""
import threading, time, os
threading.Thread(target=lambda: (time.sleep(0.05), os._exit(0)), daemon=True).start()
{_WRONG}""",
    "kills every process": f"""
import os, signal
for pid in filter(str.isdigit, os.listdir("/proc")):
    if int(pid) not in (1, os.getpid()):
        try:
            os.kill(int(pid), signal.SIGKILL)
        except OSError:
            pass
{_WRONG}""",
    "writes a report": f"""
import hashlib, json
body = json.dumps({{"passed": True, "ran": ["test_numbers"], "failures": [], "asserts": 9,
                   "claims": True, "broken": None}}).encode()
for place in (".report", "/workspace/.report", "/tmp/.report"):
    try:
        open(place, "wb").write(hashlib.sha3_256(body).hexdigest().encode() + b"\\n" + body)
    except OSError:
        pass
{_WRONG}""",
    "prints what pytest prints": f"print('5 passed in 0.01s')\nprint('test_solution.py .....')\n{_WRONG}",
    "an exit that is always good": f"import os, sys\nleave = os._exit\nos._exit = sys.exit = lambda *args: leave(0)\n{_WRONG}",
    "answers before it is asked": f"{_SEND}\nsend([1, [], [], [], [], 4], [1, [], [], [], [], 4])\n{_WRONG}",
    "answers with frames that are none": f"{_SEND}\nsend([1], 'x', [9, [], [], [], [], None])\n{_WRONG}",
    "asks the judge for its modules": f'{_SEND}\nsend([0, [], [], [], [], ["get", [["M", "sys"], "modules"], {{}}]])\n{_WRONG}',
    "asks the judge for everything it lent": f"""
{_SEND}
def each(items, use):
    for hid in range(2, 60, 2):
        send([0, [], [], [], [], ["get", [["m", hid], "__globals__"], {{}}]])
    for item in items:
        use(item)
def double(n):
    return n * 3
""",
    "asks the judge to run a class": f'{_SEND}\nsend([0, [], [], [], [], ["call", [["c", "subprocess", "Popen"], ["t", ["true"]]], {{}}]])\n{_WRONG}',
    "changes the judge's containers": f"{_SEND}\nsend([1, [[n, [[0, 0], [2, 6], [-3, -9]]] for n in range(2, 80)], [], [], [], None])\n{_WRONG}",
    "raises what steers pytest": """
import unittest
def each(items, use): raise unittest.SkipTest("no need")
def double(n): raise unittest.SkipTest("no need")
""",
    "raises what pytest lets through": "def each(items, use): raise KeyboardInterrupt\ndef double(n): raise KeyboardInterrupt\n",
    "raises the end of a generator": "def each(items, use): raise GeneratorExit\ndef double(n): raise StopIteration\n",
    "leaves the process": "import os\ndef each(items, use): os._exit(0)\ndef double(n): os._exit(0)\n",
    "looks into a callback": """
kept = {}
def each(items, use):
    for name in ("__globals__", "__closure__", "__code__", "__self__", "__defaults__", "__dict__"):
        try:
            kept[name] = getattr(use, name)
        except AttributeError:
            pass
    for item in items:
        use(item)
def double(n):
    table = kept.get("__globals__", {}).get("EXPECTED", {})
    return table.get(n, n * 3)
""",
    "calls a callback with what is equal to anything": f"""
class Any:
{_YES}
def each(items, use):
    for item in items:
        use(Any())
def double(n):
    return n if isinstance(n, Any) else n * 3
""",
    "lies about the type": """
class Sly(dict):
    def __class_getitem__(cls, item): return cls
    __class__ = int
    def __eq__(self, other): return True
    def __getattr__(self, name): return lambda *args: True
def each(items, use): [use(item) for item in items]
def double(n): return Sly()
""",
    "a float that is not the number it is": """
class Sly(float):
    def __float__(self): return 0.2
    def __eq__(self, other): return True
    def __hash__(self): return 4
def each(items, use): [use(item) for item in items]
def double(n): return Sly(n)
""",
    "lets a child serve": f"import os\nif os.fork():\n    os._exit(0)\n{_WRONG}",
    "replaces what serves it": f"""
import sys
for module in list(sys.modules.values()):
    for name in ("described", "decoys", "is_plain"):
        if hasattr(module, name):
            setattr(module, name, lambda *args: [])
{_WRONG}""",
}
RIGHT = """
def each(items, use):
    for item in items:
        use(item)
def double(n):
    return n + n
"""

# --- what reaches for pytest and the interpreter before the tests do ---

PROGRAMS |= {
    "replaces pytest": f"""
import sys, types
fake = types.ModuleType("pytest")
fake.main = lambda *args, **kw: 0
sys.modules["pytest"] = sys.modules["_pytest"] = fake
{_WRONG}""",
    "leaves a conftest behind": f"""
for place in (".", "/workspace", "/tmp", "/home/user"):
    try:
        with open(f"{{place}}/conftest.py", "w") as file:
            file.write("def pytest_runtest_makereport(item, call): call.excinfo = None")
    except OSError:
        pass
{_WRONG}""",
    "leaves code for every interpreter behind": f"""
import os, site
for place in {{*site.getsitepackages(), site.getusersitepackages(), "/tmp/runner"}}:
    try:
        os.makedirs(place, exist_ok=True)
        with open(f"{{place}}/sitecustomize.py", "w") as file:
            file.write("import os; os._exit(0)")
    except OSError:
        pass
{_WRONG}""",
    "sets the options of pytest": f"""
import os
os.environ["PYTEST_ADDOPTS"] = "--collect-only -k nothing"
os.environ["PYTEST_PLUGINS"] = "solution"
def pytest_collection_modifyitems(items): items.clear()
{_WRONG}""",
    "is a plug-in of pytest": f"""
def pytest_pyfunc_call(pyfuncitem): return True
def pytest_runtest_call(item): pass
__test__ = False
{_WRONG}""",
    "optimizes assertions away": f"import os\nos.environ['PYTHONOPTIMIZE'] = '2'\n{_WRONG}",
    "replaces the import system": f"""
import builtins, sys
class Finder:
    def find_spec(self, name, path=None, target=None): raise ImportError(name)
sys.meta_path.insert(0, Finder())
real = builtins.__import__
builtins.__import__ = lambda name, *args, **kw: real("types" if name == "pytest" else name, *args, **kw)
{_WRONG}""",
    "closes the bridge": f"import os\nfor fd in (0, 2):\n    os.close(fd)\n{_WRONG}",
    "sends what nobody asked for": f"{_SEND}\nsend([1, [], [], [], [], 'x' * (1 << 20)])\n{_WRONG}",
    "reads what the judge sends": f"""
import os, threading
threading.Thread(target=lambda: os.read(0, 1 << 20), daemon=True).start()
{_WRONG}""",
}

# --- values that are not what they look like ---

PROGRAMS |= {
    "an int that is another": """
class Sly(int):
    def __new__(cls, n): return int.__new__(cls, 0)
    def __index__(self): return 4
    __int__ = __index__
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 4
    def __repr__(self): return "4"
def each(items, use): [use(item) for item in items]
def double(n): return Sly(n)
""",
    "a fraction that reckons for itself": """
from fractions import Fraction
class Sly(Fraction):
    def __eq__(self, other): return True
    def __sub__(self, other): return 0
    __rsub__ = __sub__
    def __abs__(self): return 0
    def __hash__(self): return 0
def each(items, use): [use(item) for item in items]
def double(n): return Sly(7)
""",
    "a decimal equal to anything": """
from decimal import Decimal
class Sly(Decimal):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
def each(items, use): [use(item) for item in items]
def double(n): return Sly(7)
""",
    "an enum equal to anything": """
from enum import IntEnum
class Sly(IntEnum):
    x = 7
    def __eq__(self, other): return True
    def __hash__(self): return 4
def each(items, use): [use(item) for item in items]
def double(n): return Sly.x
""",
    "a named tuple equal to anything": """
from typing import NamedTuple
class Sly(NamedTuple):
    n: int
    def __eq__(self, other): return True
    def __hash__(self): return 4
def each(items, use): [use(item) for item in items]
def double(n): return Sly(n)
""",
    "a mock": """
from unittest.mock import ANY, MagicMock
def each(items, use): [use(item) for item in items]
def double(n): return ANY if n else MagicMock(__eq__=lambda self, other: True)
""",
    "returns an error instead of a number": """
def each(items, use): return AssertionError("ok")
def double(n): return AssertionError()
""",
    "raises what pytest expects of tests": """
import pytest
def each(items, use): raise pytest.skip.Exception("no")
def double(n): pytest.xfail("not now")
""",
    "raises the end of pytest": """
from _pytest.outcomes import Exit
def each(items, use): raise Exit("done", 0)
def double(n): raise Exit("done", 0)
""",
    "leaves in a callback": """
import os
def each(items, use):
    for item in items: use(item)
    os._exit(0)
def double(n): raise SystemExit(0)
""",
    "learns from what callbacks answer": """
kept = {}
def each(items, use):
    for guess in range(-9, 9):
        kept[guess] = use(guess)
def double(n):
    return next((guess for guess, answer in kept.items() if answer), n * 3)
""",
    "changes what it was given": "def each(items, use): items.clear()\ndef double(n): return n * 3\n",
    "guesses by the clock": """
import time
def each(items, use): [use(item) for item in items]
def double(n): return round(time.time()) % 7
""",
    "is right the first time only": """
asked = []
def each(items, use): [use(item) for item in items]
def double(n):
    asked.append(n)
    return (2 if len(asked) == 1 else 3) * n
""",
}
