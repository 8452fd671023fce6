"""Honest programs of many styles with their tests; each is `(program, bug, tests)`.

The bug is a text in the program and what it is replaced by.
"""

from __future__ import annotations

PROGRAMS: dict[str, tuple[str, tuple[str, str], str]] = {
    "a stack": (
        "class Stack:\n    def __init__(self, items=()):\n        self._items = list(items)\n"
        "    def push(self, x):\n        self._items.append(x)\n        return self\n"
        "    def pop(self):\n        if not self._items:\n            raise IndexError('pop from an empty stack')\n"
        "        return self._items.pop()\n    def __len__(self):\n        return len(self._items)\n"
        "    def __iter__(self):\n        return reversed(self._items)\n    def __bool__(self):\n        return bool(self._items)\n",
        ("return reversed(self._items)", "return iter(self._items)"),
        "import pytest\nfrom solution import Stack\ndef test_order():\n    s = Stack([1]).push(2).push(3)\n"
        "    assert list(s) == [3, 2, 1] and len(s) == 3\n    assert [s.pop(), s.pop()] == [3, 2]\n"
        "def test_empty():\n    assert not Stack()\n    with pytest.raises(IndexError, match='empty stack'):\n        Stack().pop()\n",
    ),
    "a dataclass": (
        "from dataclasses import dataclass, field\n@dataclass(order=True)\nclass P:\n    x: int\n    y: int = 0\n    tags: list = field(default_factory=list)\n"
        "    def moved(self, dx=0, dy=0):\n        return P(self.x + dx, self.y + dy, [*self.tags])\n",
        ("self.y + dy", "self.y - dy"),
        "import dataclasses\nfrom solution import P\ndef test_p():\n    p = P(1, 2)\n    assert p.moved(1, 1) == P(2, 3)\n    assert p < P(1, 3)\n"
        "    assert dataclasses.asdict(p) == {'x': 1, 'y': 2, 'tags': []}\n    p.tags.append('a')\n    assert p.tags == ['a'] and P(1).tags == []\n"
        "    assert repr(P(1)) == 'P(x=1, y=0, tags=[])'\n    assert dataclasses.replace(p, x=5).x == 5\n",
    ),
    "an enum": (
        "import enum\nclass Colour(enum.Enum):\n    RED = 1\n    BLUE = 2\n    def other(self):\n        return Colour.BLUE if self is Colour.RED else Colour.RED\n"
        "def parse(text):\n    return Colour[text.upper()]\n",
        ("return Colour.BLUE if", "return Colour.RED if"),
        "import pytest\nfrom solution import Colour, parse\ndef test_c():\n    assert parse('red') is Colour.RED\n    assert Colour.RED.other() == Colour.BLUE\n"
        "    assert [c.name for c in Colour] == ['RED', 'BLUE'] and Colour(2) is Colour.BLUE\n    with pytest.raises(KeyError):\n        parse('green')\n",
    ),
    "a named tuple": (
        "from typing import NamedTuple\nclass Pair(NamedTuple):\n    a: int\n    b: int = 2\ndef swap(p):\n    return Pair(p.b, p.a)\n",
        ("Pair(p.b, p.a)", "Pair(p.a, p.b)"),
        "from solution import Pair, swap\ndef test_p():\n    assert swap(Pair(1)) == Pair(2, 1) == (2, 1)\n    a, b = swap(Pair(3, 4))\n    assert (a, b) == (4, 3)\n    assert swap(Pair(1))._asdict() == {'a': 2, 'b': 1}\n",
    ),
    "a vector": (
        "class V:\n    def __init__(self, *c):\n        self.c = c\n    def __add__(self, o):\n        return V(*(a + b for a, b in zip(self.c, o.c)))\n"
        "    def __mul__(self, k):\n        return V(*(a * k for a in self.c))\n    __rmul__ = __mul__\n    def __eq__(self, o):\n        return isinstance(o, V) and self.c == o.c\n"
        "    def __hash__(self):\n        return hash(self.c)\n    def __repr__(self):\n        return f'V{self.c}'\n    def __getitem__(self, i):\n        return self.c[i]\n"
        "    def __abs__(self):\n        return sum(a * a for a in self.c) ** 0.5\n",
        ("a + b for", "a - b for"),
        "from solution import V\ndef test_v():\n    assert V(1, 2) + V(3, 4) == V(4, 6)\n    assert 2 * V(1, 2) == V(2, 4) == V(1, 2) * 2\n    assert abs(V(3, 4)) == 5\n"
        "    assert V(1, 2)[1] == 2 and V(1, 2) != V(2, 1)\n    assert len({V(1), V(1), V(2)}) == 2\n    assert repr(V(1, 2)) == 'V(1, 2)'\n",
    ),
    "errors of its own": (
        "class BankError(Exception):\n    pass\nclass TooLittle(BankError):\n    def __init__(self, need, have):\n        super().__init__(f'need {need}, have {have}')\n        self.need, self.have = need, have\n"
        "class Account:\n    def __init__(self, balance=0):\n        self.balance = balance\n    def withdraw(self, n):\n        if n <= 0:\n            raise ValueError('amount must be positive')\n"
        "        if n > self.balance:\n            raise TooLittle(n, self.balance)\n        self.balance -= n\n        return self.balance\n",
        ("n > self.balance", "n > self.balance + 10"),
        "import pytest\nfrom solution import Account, BankError, TooLittle\ndef test_a():\n    a = Account(5)\n    assert a.withdraw(2) == 3 and a.balance == 3\n"
        "def test_too_little():\n    with pytest.raises(TooLittle) as caught:\n        Account(1).withdraw(2)\n    assert caught.value.need == 2 and caught.value.have == 1\n    assert str(caught.value) == 'need 2, have 1'\n    assert isinstance(caught.value, BankError)\n"
        "def test_negative():\n    with pytest.raises(ValueError, match='positive'):\n        Account(1).withdraw(-1)\n",
    ),
    "a chain of errors": (
        "def load(text):\n    try:\n        return int(text)\n    except ValueError as error:\n        raise RuntimeError(f'bad: {text}') from error\n",
        ("return int(text)", "return float(text) + 1"),
        "import pytest\nfrom solution import load\ndef test_load():\n    assert load('3') == 3\ndef test_bad():\n    with pytest.raises(RuntimeError) as caught:\n        load('x')\n    assert isinstance(caught.value.__cause__, ValueError)\n",
    ),
    "an error that comes through": (
        "def load(text):\n    try:\n        return int(text)\n    except ValueError as error:\n        raise RuntimeError(f'bad: {text}') from error\n",
        ("int(text)", "int(text + 'x')"),
        "from solution import load\ndef test_load():\n    assert load('3') == 3\n",
    ),
    "a generator": (
        "def fib():\n    a, b = 0, 1\n    while True:\n        yield a\n        a, b = b, a + b\ndef chunks(items, n):\n    for i in range(0, len(items), n):\n        yield items[i:i + n]\n",
        ("a, b = b, a + b", "a, b = b, a + b + 1"),
        "import itertools\nfrom solution import chunks, fib\ndef test_fib():\n    assert list(itertools.islice(fib(), 8)) == [0, 1, 1, 2, 3, 5, 8, 13]\ndef test_chunks():\n    assert list(chunks([1, 2, 3], 2)) == [[1, 2], [3]]\n    g = chunks('abc', 1)\n    assert next(g) == 'a'\n    assert [*g] == ['b', 'c']\n",
    ),
    "a context manager": (
        "from contextlib import contextmanager\nlog = []\n@contextmanager\ndef noted(name):\n    log.append(f'+{name}')\n    try:\n        yield name.upper()\n    finally:\n        log.append(f'-{name}')\n",
        ("yield name.upper()", "yield name"),
        "import pytest\nimport solution\nfrom solution import noted\ndef test_noted():\n    solution.log.clear()\n    with noted('a') as n:\n        assert n == 'A'\n    assert solution.log == ['+a', '-a']\n"
        "def test_error():\n    with pytest.raises(KeyError):\n        with noted('b'):\n            raise KeyError('x')\n    assert solution.log[-1] == '-b'\n",
    ),
    "a decorator": (
        "import functools\ndef counted(f):\n    @functools.wraps(f)\n    def inner(*a, **k):\n        inner.calls += 1\n        return f(*a, **k)\n    inner.calls = 0\n    return inner\n",
        ("inner.calls += 1", "inner.calls += 2"),
        "from solution import counted\ndef test_counted():\n    @counted\n    def add(a, b=1):\n        return a + b\n    assert add(1) == 2 and add(1, b=5) == 6\n    assert add.calls == 2\n    assert add.__name__ == 'add'\n",
    ),
    "callbacks": (
        "class Emitter:\n    def __init__(self):\n        self._on = {}\n    def on(self, name, f):\n        self._on.setdefault(name, []).append(f)\n        return lambda: self._on[name].remove(f)\n    def emit(self, name, *a):\n        return [f(*a) for f in self._on.get(name, [])]\n",
        ("return [f(*a) for f in", "return [f(*a) and None for f in"),
        "from unittest.mock import Mock\nfrom solution import Emitter\ndef test_emit():\n    e, seen = Emitter(), []\n    off = e.on('x', seen.append)\n    e.on('x', lambda v: v * 2)\n    assert e.emit('x', 3) == [None, 6] and seen == [3]\n    off()\n    assert e.emit('x', 4) == [8] and seen == [3]\n"
        "def test_mock():\n    m = Mock(return_value=7)\n    e = Emitter()\n    e.on('y', m)\n    assert e.emit('y', 1, 2) == [7]\n    m.assert_called_once_with(1, 2)\n",
    ),
    "changes its argument": (
        "def bubble(items):\n    for i in range(len(items)):\n        for j in range(len(items) - 1 - i):\n            if items[j] > items[j + 1]:\n                items[j], items[j + 1] = items[j + 1], items[j]\ndef group(words, into=None):\n    into = {} if into is None else into\n    for w in words:\n        into.setdefault(len(w), []).append(w)\n    return into\n",
        ("items[j] > items[j + 1]", "items[j] < items[j + 1]"),
        "from solution import bubble, group\ndef test_in_place():\n    xs = [3, 1, 2]\n    assert bubble(xs) is None\n    assert xs == [1, 2, 3]\ndef test_into():\n    d = {1: ['a']}\n    assert group(['b', 'cc'], d) is d\n    assert d == {1: ['a', 'b'], 2: ['cc']}\n",
    ),
    "prints": (
        "def banner(text, width=10):\n    print('=' * width)\n    print(text.center(width))\n    print('=' * width, end='')\n",
        ("text.center", "text.ljust"),
        "from solution import banner\ndef test_banner(capsys):\n    banner('hi', 6)\n    assert capsys.readouterr().out == '======\\n  hi  \\n======'\n",
    ),
    "asks": (
        "def ask():\n    name = input('name? ')\n    return f'Hello {name.strip()}'\n",
        ("name.strip()", "name"),
        "import builtins\nfrom unittest.mock import patch\nfrom solution import ask\ndef test_patch():\n    with patch('builtins.input', return_value=' Ann '):\n        assert ask() == 'Hello Ann'\ndef test_monkey(monkeypatch):\n    monkeypatch.setattr('builtins.input', lambda _='': 'Bob')\n    assert ask() == 'Hello Bob'\n",
    ),
    "sleeps": (
        "import time\ndef retry(f, times=3, wait=1.0):\n    for n in range(times):\n        try:\n            return f()\n        except OSError:\n            if n == times - 1:\n                raise\n            time.sleep(wait * 2 ** n)\n",
        ("2 ** n", "3 ** n"),
        "from unittest import mock\nimport pytest\nimport solution\ndef test_retry():\n    f = mock.Mock(side_effect=[OSError('a'), OSError('b'), 5])\n    with mock.patch('solution.time.sleep') as sleep:\n        assert solution.retry(f) == 5\n    assert [c.args for c in sleep.call_args_list] == [(1.0,), (2.0,)]\n"
        "def test_gives_up(monkeypatch):\n    monkeypatch.setattr(solution.time, 'sleep', lambda _: None)\n    with pytest.raises(OSError, match='always'):\n        solution.retry(mock.Mock(side_effect=OSError('always')), 2)\n",
    ),
    "uses a helper that is patched": (
        "def fetch(url):\n    raise RuntimeError('no network')\ndef title(url):\n    return fetch(url).strip().title()\n",
        (".strip()", ""),
        "from unittest.mock import patch\nimport solution\ndef test_title():\n    with patch('solution.fetch', return_value=' a b ') as f:\n        assert solution.title('u') == 'A B'\n    f.assert_called_once_with('u')\n@patch.object(solution, 'fetch')\ndef test_object(f):\n    f.return_value = 'x'\n    assert solution.title('u') == 'X'\n",
    ),
    "by chance": (
        "import random\ndef roll(n):\n    return [random.randint(1, 6) for _ in range(n)]\ndef pick(items):\n    return random.choice(items)\n",
        ("randint(1, 6)", "randint(1, 60)"),
        "import random\nfrom unittest.mock import patch\nfrom solution import pick, roll\ndef test_seed():\n    random.seed(4)\n    a = roll(5)\n    random.seed(4)\n    assert roll(5) == a and all(1 <= x <= 6 for x in roll(50))\ndef test_pick():\n    with patch('random.choice', side_effect=lambda xs: xs[-1]):\n        assert pick([1, 2, 3]) == 3\n",
    ),
    "the environment": (
        "import os\ndef setting(name, default=None):\n    return os.environ.get(f'APP_{name.upper()}', default)\n",
        ("APP_", "APPS_"),
        "from solution import setting\ndef test_env(monkeypatch):\n    monkeypatch.setenv('APP_PORT', '80')\n    assert setting('port') == '80'\n    monkeypatch.delenv('APP_PORT')\n    assert setting('port', 'x') == 'x'\n",
    ),
    "dates": (
        "from datetime import date, datetime, timedelta, timezone\ndef next_monday(d):\n    return d + timedelta(days=7 - d.weekday())\ndef at(ts):\n    return datetime.fromtimestamp(ts, timezone.utc)\n",
        ("7 - d", "8 - d"),
        "from datetime import date, datetime, timezone\nfrom solution import at, next_monday\ndef test_d():\n    assert next_monday(date(2024, 1, 3)) == date(2024, 1, 8)\n    assert at(0) == datetime(1970, 1, 1, tzinfo=timezone.utc)\n    assert at(0).isoformat() == '1970-01-01T00:00:00+00:00'\n",
    ),
    "decimals and fractions": (
        "from decimal import Decimal, ROUND_HALF_UP\nfrom fractions import Fraction\ndef price(net, rate):\n    return (Decimal(net) * (1 + Decimal(rate))).quantize(Decimal('0.01'), ROUND_HALF_UP)\ndef mean(xs):\n    return Fraction(sum(xs), len(xs))\n",
        ("0.01", "0.1"),
        "from decimal import Decimal\nfrom fractions import Fraction\nfrom solution import mean, price\ndef test_m():\n    assert price('10.005', '0.2') == Decimal('12.01')\n    assert mean([1, 2]) == Fraction(3, 2)\n",
    ),
    "sets and counters": (
        "from collections import Counter, defaultdict, deque\ndef letters(t):\n    return Counter(t)\ndef index(ws):\n    d = defaultdict(set)\n    for w in ws:\n        d[w[0]].add(w)\n    return d\ndef last(xs, n):\n    return deque(xs, maxlen=n)\n",
        ("d[w[0]]", "d[w[-1]]"),
        "from collections import deque\nfrom solution import index, last, letters\ndef test_c():\n    assert letters('aab') == {'a': 2, 'b': 1}\n    assert letters('aab').most_common(1) == [('a', 2)]\n    assert index(['ab', 'ac', 'b']) == {'a': {'ab', 'ac'}, 'b': {'b'}}\n    assert last(range(5), 2) == deque([3, 4])\n    assert frozenset(index(['x'])) == {'x'}\n",
    ),
    "async": (
        "import asyncio\nasync def fetch(n):\n    await asyncio.sleep(0.001)\n    return n * 2\nasync def gather(ns):\n    return await asyncio.gather(*(fetch(n) for n in ns))\nasync def count(n):\n    for i in range(n):\n        yield i\n",
        ("n * 2", "n * 3"),
        "import asyncio\nfrom solution import count, fetch, gather\ndef test_fetch():\n    assert asyncio.run(fetch(2)) == 4\n    assert asyncio.run(gather([1, 2])) == [2, 4]\ndef test_count():\n    async def all_of():\n        return [i async for i in count(3)]\n    assert asyncio.run(all_of()) == [0, 1, 2]\n",
    ),
    "a linked list": (
        "class Node:\n    def __init__(self, value, next=None):\n        self.value, self.next = value, next\ndef build(xs):\n    head = None\n    for x in reversed(xs):\n        head = Node(x, head)\n    return head\ndef reverse(head):\n    prev = None\n    while head:\n        head.next, prev, head = prev, head, head.next\n    return prev\n",
        ("for x in reversed(xs)", "for x in xs"),
        "from solution import Node, build, reverse\ndef values(n):\n    out = []\n    while n is not None:\n        out.append(n.value)\n        n = n.next\n    return out\ndef test_list():\n    assert values(build([1, 2, 3])) == [1, 2, 3]\n    assert values(reverse(build([1, 2, 3]))) == [3, 2, 1]\n    assert reverse(None) is None\n    n = Node(1)\n    n.next = Node(2)\n    assert values(n) == [1, 2] and n.next.next is None\n",
    ),
    "inheritance": (
        "from abc import ABC, abstractmethod\nclass Shape(ABC):\n    @abstractmethod\n    def area(self): ...\n    def __lt__(self, o):\n        return self.area() < o.area()\n    @classmethod\n    def unit(cls):\n        return cls(1)\nclass Square(Shape):\n    def __init__(self, a):\n        self.a = a\n    def area(self):\n        return self.a ** 2\n    @property\n    def side(self):\n        return self.a\n    @staticmethod\n    def name():\n        return 'square'\n",
        ("self.a ** 2", "self.a * 2"),
        "import pytest\nfrom solution import Shape, Square\ndef test_s():\n    assert Square(3).area() == 9 and Square(3).side == 3\n    assert Square.unit().area() == 1 and Square.name() == 'square'\n    assert isinstance(Square(1), Shape) and issubclass(Square, Shape)\n    assert min([Square(3), Square(2)]).a == 2\ndef test_abstract():\n    with pytest.raises(TypeError):\n        Shape()\ndef test_own():\n    class Big(Square):\n        def area(self):\n            return super().area() * 10\n    assert Big(2).area() == 40\n",
    ),
    "a mapping of its own": (
        "class Cache:\n    def __init__(self, size):\n        self.size, self.d = size, {}\n    def __setitem__(self, k, v):\n        self.d.pop(k, None)\n        self.d[k] = v\n        if len(self.d) > self.size:\n            del self.d[next(iter(self.d))]\n    def __getitem__(self, k):\n        self.d[k] = self.d.pop(k)\n        return self.d[k]\n    def __contains__(self, k):\n        return k in self.d\n    def __delitem__(self, k):\n        del self.d[k]\n    def keys(self):\n        return self.d.keys()\n",
        ("len(self.d) > self.size", "len(self.d) >= self.size"),
        "import pytest\nfrom solution import Cache\ndef test_c():\n    c = Cache(2)\n    c['a'], c['b'] = 1, 2\n    assert c['a'] == 1\n    c['c'] = 3\n    assert 'b' not in c and 'a' in c\n    assert list(c.keys()) == ['a', 'c']\n    del c['a']\n    with pytest.raises(KeyError):\n        c['a']\n",
    ),
    "unittest with a fixture": (
        "class Todo:\n    def __init__(self):\n        self.items = []\n    def add(self, text, done=False):\n        if not text:\n            raise ValueError('empty')\n        self.items.append({'text': text, 'done': done})\n        return len(self.items) - 1\n    def finish(self, n):\n        self.items[n]['done'] = True\n    @property\n    def open(self):\n        return [i['text'] for i in self.items if not i['done']]\n",
        ("if not i['done']", "if i['done']"),
        "import unittest\nfrom solution import Todo\nclass TestTodo(unittest.TestCase):\n    def setUp(self):\n        self.t = Todo()\n        self.t.add('a')\n        self.t.add('b')\n    def test_open(self):\n        self.t.finish(0)\n        self.assertEqual(self.t.open, ['b'])\n        self.assertDictEqual(self.t.items[0], {'text': 'a', 'done': True})\n    def test_empty(self):\n        with self.assertRaisesRegex(ValueError, 'empty'):\n            self.t.add('')\n        self.assertRaises(IndexError, self.t.finish, 9)\n        self.assertCountEqual(self.t.open, ['b', 'a'])\n",
    ),
    "keyword arguments": (
        "def join(*parts, sep=', ', last=None, **names):\n    parts = [*map(str, parts), *(f'{k}={v}' for k, v in names.items())]\n    if last and len(parts) > 1:\n        return sep.join(parts[:-1]) + last + parts[-1]\n    return sep.join(parts)\n",
        ("parts[:-1]", "parts"),
        "import pytest\nfrom solution import join\n@pytest.mark.parametrize('given, named, out', [((1, 2), {}, '1, 2'), ((1, 2, 3), {'last': ' and '}, '1, 2 and 3'), ((), {'a': 1, 'sep': ';'}, 'a=1')])\ndef test_join(given, named, out):\n    assert join(*given, **named) == out\ndef test_too_much():\n    with pytest.raises(TypeError):\n        join(sep='x', *[1], **{'sep': 'y'})\n",
    ),
    "wrong arguments": (
        "def area(width, height=1):\n    return width * height\n",
        ("height=1", "height=2"),
        "import pytest\nfrom solution import area\ndef test_area():\n    assert area(3) == 3\n    with pytest.raises(TypeError, match='missing 1 required positional'):\n        area()\n    with pytest.raises(TypeError, match='unexpected keyword'):\n        area(1, depth=2)\n",
    ),
    "memory of calls": (
        "from functools import lru_cache\n@lru_cache(maxsize=None)\ndef fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)\n",
        ("n < 2", "n < 3"),
        "from solution import fib\ndef test_fib():\n    fib.cache_clear()\n    assert fib(30) == 832040\n    assert fib.cache_info().misses == 31\n",
    ),
    "nested data": (
        "def flatten(d, prefix=''):\n    out = {}\n    for k, v in d.items():\n        key = f'{prefix}.{k}' if prefix else k\n        if isinstance(v, dict):\n            out.update(flatten(v, key))\n        elif isinstance(v, (list, tuple)):\n            for i, x in enumerate(v):\n                out[f'{key}[{i}]'] = x\n        else:\n            out[key] = v\n    return out\n",
        ("enumerate(v)", "enumerate(v, 1)"),
        "from solution import flatten\ndef test_f():\n    data = {'a': {'b': [1, None], 'c': {}}, 'd': (2.5, 'x')}\n    assert flatten(data) == {'a.b[0]': 1, 'a.b[1]': None, 'd[0]': 2.5, 'd[1]': 'x'}\n    assert data == {'a': {'b': [1, None], 'c': {}}, 'd': (2.5, 'x')}\n",
    ),
    "bytes": (
        "def rle(data: bytes) -> bytes:\n    out = bytearray()\n    i = 0\n    while i < len(data):\n        j = i\n        while j < len(data) and data[j] == data[i] and j - i < 255:\n            j += 1\n        out += bytes([j - i, data[i]])\n        i = j\n    return bytes(out)\ndef fill(buffer, value):\n    for i in range(len(buffer)):\n        buffer[i] = value\n",
        ("buffer[i] = value", "buffer[i] = value + 1"),
        "from solution import fill, rle\ndef test_rle():\n    assert rle(b'aaab') == b'\\x03a\\x01b' and rle(b'') == b''\ndef test_fill():\n    b = bytearray(3)\n    fill(b, 7)\n    assert b == bytearray([7, 7, 7])\n",
    ),
    "big numbers and odd ones": (
        "import math\ndef fact(n):\n    return math.factorial(n)\ndef div(a, b):\n    try:\n        return a / b\n    except ZeroDivisionError:\n        return math.inf\ndef root(z):\n    return z ** 0.5\n",
        ("math.inf", "0"),
        "import math\nimport pytest\nfrom solution import div, fact, root\ndef test_n():\n    assert fact(30) == 265252859812191058636308480000000\n    assert div(1, 0) == math.inf and math.isnan(div(math.nan, 1))\n    assert root(-1 + 0j) == pytest.approx(1j)\n    assert div(1, 3) == pytest.approx(0.3333, abs=1e-3)\n",
    ),
    "a subclass of a builtin": (
        "class Name(str):\n    def initials(self):\n        return ''.join(w[0] for w in self.split())\nclass Bag(dict):\n    def add(self, k):\n        self[k] = self.get(k, 0) + 1\n        return self\ndef name(text):\n    return Name(text.title())\n",
        ("text.title()", "text.lower()"),
        "from solution import Bag, name\ndef test_n():\n    n = name('ann lee')\n    assert n == 'Ann Lee' and n.initials() == 'AL'\n    assert isinstance(n, str) and n.upper() == 'ANN LEE' and len(n) == 7\n    assert n in ['Ann Lee'] and {'Ann Lee': 1}[n] == 1\ndef test_bag():\n    assert Bag().add('a').add('a') == {'a': 2}\n",
    ),
    "a state machine": (
        "import enum\nclass S(str, enum.Enum):\n    OPEN = 'open'\n    SHUT = 'shut'\nMOVES = {S.OPEN: [S.SHUT], S.SHUT: [S.OPEN]}\nclass Door:\n    state = S.SHUT\n    history: list\n    def __init__(self):\n        self.history = []\n    def go(self, to):\n        if to not in MOVES[self.state]:\n            raise ValueError(f'{self.state.value} -> {to.value}')\n        self.history.append((self.state, to))\n        self.state = to\n        return self\n",
        ("self.state = to", "self.state = S.SHUT"),
        "import pytest\nfrom solution import Door, S\ndef test_d():\n    d = Door().go(S.OPEN)\n    assert d.state is S.OPEN and d.state == 'open'\n    assert d.history == [(S.SHUT, S.OPEN)]\n    with pytest.raises(ValueError, match='open -> open'):\n        d.go(S.OPEN)\n",
    ),
    "warns": (
        "import warnings\ndef old(n):\n    warnings.warn('use new', DeprecationWarning, stacklevel=2)\n    return n + 1\n",
        ("n + 1", "n + 2"),
        "import pytest\nfrom solution import old\ndef test_old():\n    with pytest.warns(DeprecationWarning, match='use new'):\n        assert old(1) == 2\n",
    ),
    "a callable object": (
        "class Scale:\n    def __init__(self, k):\n        self.k = k\n    def __call__(self, x, *, plus=0):\n        return x * self.k + plus\ndef compose(*fs):\n    def run(x):\n        for f in fs:\n            x = f(x)\n        return x\n    return run\n",
        ("+ plus", "- plus"),
        "from solution import Scale, compose\ndef test_s():\n    assert Scale(3)(2, plus=1) == 7\n    assert compose(Scale(2), str, len)(50) == 3\n    assert list(map(Scale(2), [1, 2])) == [2, 4] and callable(Scale(1))\n    assert sorted([3, 1, 2], key=Scale(-1)) == [3, 2, 1]\n",
    ),
    "a module's own state": (
        "registry = {}\ncounter = 0\ndef register(name):\n    def add(f):\n        global counter\n        registry[name] = f\n        counter += 1\n        return f\n    return add\ndef reset():\n    global counter\n    registry.clear()\n    counter = 0\n",
        ("counter += 1", "counter += 2"),
        "import pytest\nimport solution\n@pytest.fixture(autouse=True)\ndef clean():\n    solution.reset()\n    yield\n    solution.reset()\ndef test_r():\n    @solution.register('x')\n    def f(n):\n        return n\n    assert solution.registry['x'] is f and solution.counter == 1\n    assert solution.registry['x'](5) == 5\ndef test_clean():\n    assert solution.registry == {} and solution.counter == 0\n    solution.counter = 9\n    assert solution.counter == 9\n",
    ),
    "a deep error": (
        "def a(n):\n    return b(n - 1) + 1\ndef b(n):\n    if n < 0:\n        raise ValueError(\n            f'negative: {n}'\n        )\n    return [1, 2, 3][n]\n",
        ("[1, 2, 3][n]", "{}[n]"),
        "from solution import a\ndef test_a():\n    assert a(1) == 2\ndef test_b():\n    assert a(3) == 4\n",
    ),
}
