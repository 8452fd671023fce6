"""Forms that tests take: our runner says of each what plain pytest says, and for the same reason."""

from __future__ import annotations

import pytest

from agents.code.parity.comparing import compared

RIGHT = '''\
import warnings


def f(n):
    """One more."""
    if not isinstance(n, int):
        raise TypeError(f"no number: {n!r}")
    return n + 1


def old(n):
    warnings.warn("old", DeprecationWarning, stacklevel=2)
    return f(n)


def each(items, use):
    for item in items:
        use(item)


async def later(n):
    return f(n)


class Thing:
    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return isinstance(other, Thing) and other.n == self.n

    def __repr__(self):
        return f"Thing({self.n})"
'''
WRONG = RIGHT.replace("return n + 1", "return n + 2 if n else 0").replace(
    "raise TypeError(", "raise ValueError("
)
FORMS = {
    "a value by its name": "from solution import f\ndef test_f():\n    r = f(4) - 5\n    assert not r\n",
    "a bare name": "from solution import f\ndef test_f():\n    r = f(0)\n    assert r\n",
    "a chain": "from solution import f\ndef test_f():\n    assert 4 < f(4) < 6\n    assert 1 == f(0) == 1\n",
    "a walrus": "from solution import f\ndef test_f():\n    assert (r := f(4)) == 5\n    assert r == 5\n",
    "a bare walrus": "from solution import f\ndef test_f():\n    assert (r := f(0))\n    assert r\n",
    "and, or, not": "from solution import f\ndef test_f():\n    assert f(0) and f(1) == 2\n"
    "    assert f(0) == 3 or f(0) == 1\n    assert not f(0) == 2\n",
    "a call": "from solution import f\ndef test_f():\n    assert isinstance(f(0), int)\n"
    "    assert all(f(n) == n + 1 for n in range(3))\n    assert any([f(0)])\n",
    "is and in": "from solution import f\ndef test_f():\n    assert f(0) is not None\n    assert f(3) in (4,)\n"
    "    assert f(3) not in [5]\n",
    "a message": "from solution import f\ndef test_f():\n    assert f(4) == 5, f'got {f(4)}'\n",
    "an attribute, an index, a starred call": "from solution import Thing, f\ndef test_f():\n"
    "    assert Thing(f(0)).n == 1\n    assert [f(4)][0] == 5\n    assert max(*[f(0), f(1)]) == 2\n",
    "an ordinary class": "from solution import Thing, f\ndef test_f():\n    assert Thing(f(0)) == Thing(1)\n"
    "    assert [Thing(f(0))] == [Thing(1)]\n",
    "mock.ANY": "from unittest.mock import ANY\nfrom solution import f\ndef test_f():\n"
    "    assert {'a': f(0), 'b': f(1)} == {'a': ANY, 'b': 2}\n",
    "what is equal to anything, of the tests' own": "from solution import f\nclass Some:\n"
    "    def __eq__(self, other): return True\ndef test_f():\n    assert f(0) == Some()\n    assert f(1) == 2\n",
    "long values": "from solution import f\ndef test_f():\n    assert [f(n) for n in range(40)] == list(range(1, 41))\n"
    "def test_text():\n    assert 'a\\n' * f(1) == 'a\\na\\n'\n"
    "def test_dict():\n    assert {'a': f(0), 'b': f(1)} == {'a': 1, 'b': 2}\n"
    "def test_set():\n    assert {f(0), f(1)} == {1, 2}\n",
    "raises only": "import pytest\nfrom solution import f\ndef test_f():\n"
    "    with pytest.raises(TypeError, match='no number'):\n        f('x')\n",
    "raises by its name": "from pytest import raises\nfrom solution import f\ndef test_f():\n"
    "    with raises(TypeError) as caught:\n        f('x')\n    assert 'x' in str(caught.value)\n",
    "raises as a function": "import pytest\nfrom solution import f\ndef test_f():\n    pytest.raises(TypeError, f, 'x')\n",
    "warns only": "import pytest\nfrom solution import old\ndef test_f():\n    with pytest.warns(DeprecationWarning):\n"
    "        old(1)\n    with pytest.deprecated_call():\n        old(2)\n",
    "warnings recorded": "import warnings\nfrom solution import old\ndef test_f():\n"
    "    with warnings.catch_warnings(record=True) as seen:\n        assert old(1) == 2\n    assert len(seen) == 1\n",
    "fail only": "import pytest\nfrom solution import f\ndef test_f():\n    if f(1) != 2:\n        pytest.fail('not two')\n",
    "raise only": "from solution import f\ndef test_f():\n    if f(1) != 2:\n        raise AssertionError('not two')\n",
    "an else that fails": "from solution import f\ndef test_f():\n    try:\n        f('x')\n    except TypeError:\n"
    "        pass\n    else:\n        assert False, 'no error'\n",
    "an error that is caught": "from solution import f\ndef test_f():\n    try:\n        assert f(0) == 7\n"
    "    except AssertionError:\n        pass\n    assert f(1) == 2\n",
    "approx": "import pytest\nfrom solution import f\ndef test_f():\n    assert f(0.0 and 1 or 1) == pytest.approx(2)\n",
    "nested classes": "from solution import f\nclass TestOuter:\n    class TestInner:\n        def test_f(self):\n"
    "            assert f(1) == 2\n        class TestMore:\n            def test_f(self):\n                assert f(2) == 3\n",
    "under if": "import sys\nfrom solution import f\nif sys.version_info >= (3, 8):\n    def test_f():\n"
    "        assert f(1) == 2\nelse:\n    def test_never():\n        assert False\n",
    "under try, with, for": "from solution import f\ntry:\n    import nothing_like_it\nexcept ImportError:\n"
    "    def test_f():\n        assert f(1) == 2\nfor n in (1,):\n    def test_g(n=n):\n        assert f(n) == 2\n",
    "made in a loop": "from solution import f\ndef make(n):\n    def test():\n        assert f(n) == n + 1\n    return test\n"
    "for n in (1, 2):\n    globals()[f'test_{n}'] = make(n)\n",
    "grandchildren of TestCase": "import unittest\nfrom solution import f\nclass Base(unittest.TestCase):\n"
    "    def check(self, n):\n        self.assertEqual(f(n), n + 1)\nclass Middle(Base):\n    pass\n"
    "class Ours(Middle):\n    def test_f(self):\n        self.check(1)\n",
    "inherited tests": "from solution import f\nclass Shared:\n    n = 0\n    def test_f(self):\n"
    "        assert f(self.n) == self.n + 1\nclass TestOne(Shared):\n    n = 1\nclass TestTwo(Shared):\n    n = 2\n",
    "a class that is not collected": "from solution import f\nclass TestHelper:\n    def __init__(self, n):\n"
    "        self.n = n\n    def test_n(self):\n        assert False\ndef test_f():\n    assert f(TestHelper(1).n) == 2\n",
    "__test__": "from solution import f\nclass TestNot:\n    __test__ = False\n    def test_f(self):\n        assert False\n"
    "def test_f():\n    assert f(1) == 2\n",
    "the same name twice": "from solution import f\ndef test_f():\n    assert False\ndef test_f():\n    assert f(1) == 2\n",
    "skipped": "import pytest\nfrom solution import f\n@pytest.mark.skip(reason='later')\ndef test_g():\n    assert False\n"
    "def test_f():\n    assert f(1) == 2\n",
    "skipped if": "import sys\nimport pytest\nfrom solution import f\n@pytest.mark.skipif(sys.platform != 'win32', reason='x')\n"
    "def test_g():\n    assert False\ndef test_h():\n    pytest.skip('later')\ndef test_f():\n    assert f(1) == 2\n",
    "skipped by unittest": "import unittest\nfrom solution import f\nclass Ours(unittest.TestCase):\n"
    "    @unittest.skip('later')\n    def test_g(self):\n        self.fail()\n    def test_h(self):\n"
    "        self.skipTest('later')\n    def test_f(self):\n        self.assertEqual(f(1), 2)\n",
    "a class skipped": "import unittest\nfrom solution import f\n@unittest.skip('x')\nclass A(unittest.TestCase):\n"
    "    def test_a(self):\n        self.fail()\nclass B(unittest.TestCase):\n    def test_b(self):\n        self.assertEqual(f(1), 2)\n",
    "expected to fail": "import pytest\nfrom solution import f\n@pytest.mark.xfail\ndef test_g():\n    assert f(1) == 7\n"
    "@pytest.mark.xfail\ndef test_h():\n    assert f(1) == 2\ndef test_f():\n    assert f(1) == 2\n",
    "strictly expected to fail": "import pytest\nfrom solution import f\n@pytest.mark.xfail(strict=True)\n"
    "def test_g():\n    assert f(0) == 0\ndef test_f():\n    assert f(5) in (6, 7)\n",
    "expectedFailure": "import unittest\nfrom solution import f\nclass A(unittest.TestCase):\n    @unittest.expectedFailure\n"
    "    def test_a(self):\n        self.assertEqual(f(1), 7)\n    def test_b(self):\n        self.assertEqual(f(1), 2)\n",
    "fixtures": "import pytest\nfrom solution import f\n@pytest.fixture\ndef one():\n    yield f(0)\n"
    "@pytest.fixture(params=[1, 2])\ndef test_number(request):\n    return request.param\n"
    "def test_f(one, test_number):\n    assert one == 1\n    assert f(test_number) == test_number + 1\n",
    "a fixture that fails": "import pytest\nfrom solution import f\n@pytest.fixture\ndef one():\n    assert f(0) == 1\n    return 1\n"
    "def test_f(one):\n    assert one\n",
    "a fixture that fails at its end": "import pytest\nfrom solution import f\n@pytest.fixture\ndef one():\n    yield 1\n"
    "    assert f(0) == 1\ndef test_f(one):\n    assert one\n",
    "setup and teardown": "import unittest\nfrom solution import f\nclass A(unittest.TestCase):\n    def setUp(self):\n"
    "        self.n = f(0)\n    def tearDown(self):\n        self.assertTrue(self.n)\n    def test_a(self):\n        self.assertEqual(self.n, 1)\n",
    "sub-tests": "import unittest\nfrom solution import f\nclass A(unittest.TestCase):\n    def test_a(self):\n"
    "        for n in range(3):\n            with self.subTest(n=n):\n                self.assertEqual(f(n), n + 1)\n",
    "unittest's own": "import unittest\nfrom solution import f\nclass A(unittest.TestCase):\n    def test_a(self):\n"
    "        self.assertIs(type(f(1)), int)\n        self.assertAlmostEqual(f(1), 2)\n        self.assertIn(f(1), [2])\n"
    "        self.assertRaises(TypeError, f, 'x')\n        with self.assertRaisesRegex(TypeError, 'no'):\n            f('x')\n"
    "        self.assertListEqual([f(1)], [2])\n",
    "async with unittest": "import unittest\nfrom solution import later\nclass A(unittest.IsolatedAsyncioTestCase):\n"
    "    async def test_a(self):\n        self.assertEqual(await later(1), 2)\n",
    "async with asyncio.run": "import asyncio\nfrom solution import later\ndef test_a():\n    async def main():\n"
    "        assert await later(1) == 2\n    asyncio.run(main())\n",
    "monkeypatch and mock": "from unittest import mock\nimport solution\ndef test_a(monkeypatch):\n"
    "    monkeypatch.setattr(solution, 'f', lambda n: 9)\n    assert solution.each([1], lambda n: None) is None\n"
    "def test_b():\n    use = mock.Mock()\n    solution.each([solution.f(1)], use)\n    use.assert_called_once_with(2)\n"
    "@mock.patch('builtins.print')\ndef test_c(printed):\n    print('x')\n    printed.assert_called_once_with('x')\n"
    "    assert solution.f(0) == 1\n",
    "output": "from solution import f\ndef test_a(capsys):\n    print(f(1))\n    assert capsys.readouterr().out == '2\\n'\n",
    "a temporary folder": "from solution import f\ndef test_a(tmp_path):\n    (tmp_path / 'x').write_text(str(f(1)))\n"
    "    assert (tmp_path / 'x').read_text() == '2'\n",
    "a callback": "from solution import each, f\ndef test_a():\n    def use(n):\n        assert f(n) == n + 1\n    each([1, 2], use)\n",
    "a docstring that is read": "from solution import f\ndef test_a():\n    '''Says so.'''\n    assert test_a.__doc__ == 'Says so.'\n"
    "    assert f(1) == 2\n",
    "returns in the middle": "from solution import f\ndef test_a():\n    for n in range(3):\n        if n == 2:\n            return\n"
    "        assert f(n) == n + 1\n",
    "parametrized": "import pytest\nfrom solution import f\n@pytest.mark.parametrize(('n', 'm'), [(1, 2), (2, 3), ('x', 3)][:2])\n"
    "class TestAll:\n    @pytest.mark.parametrize('more', [0, 1])\n    def test_f(self, n, m, more):\n        assert f(n + more) == m + more\n",
    "an error and not a failure": "from solution import f\ndef test_a():\n    assert f(1) == 2\n    assert {2: 'x'}[f(1)] == 'x'\n",
    "input is asked for": "import pytest\nfrom solution import f\ndef test_a():\n    assert f(1) == 2\n    raise EOFError\n",
    "a main at the end": "import unittest\nfrom solution import f\nclass A(unittest.TestCase):\n    def test_a(self):\n"
    "        self.assertEqual(f(1), 2)\nif __name__ == '__main__':\n    unittest.main()\n",
    "the whole module skipped": "import pytest\npytest.importorskip('nothing_like_it')\nfrom solution import f\ndef test_a():\n    assert f(1) == 2\n",
    "a module that fails": "from solution import f\nassert f(1) == 2\ndef test_a():\n    assert f(2) == 3\n",
    "a module loaded anew": "import importlib\nimport textwrap\nfrom solution import f\ndef test_a():\n    importlib.reload(textwrap)\n    assert f(1) == 2\n",
    "a call of many lines": "import unittest\nfrom solution import f\nclass A(unittest.TestCase):\n    def test_a(self):\n        self.assertRaises(\n            TypeError,\n            f, 'x')\n        self.assertEqual(f(1),\n            2)\n",
    "a missing name": "from solution import g\ndef test_a():\n    assert g(2) == 3\n",
    "a missing fixture": "from solution import f\ndef test_a(nothing_like_it):\n    assert f(1) == 2\n",
    "an async test with no plug-in": "from solution import later\nasync def test_a():\n    assert await later(1) == 2\n",
    "what can be called, and what can't": "import pytest\nfrom solution import Thing, f\ndef test_a():\n    assert callable(f) and callable(Thing)\n"
    "    assert not callable(Thing(f(1)))\n    with pytest.raises(TypeError):\n        Thing(1) | 1\n    assert Thing(f(1)) == Thing(2)\n",
    "all that an object, a class and a module hold": "import solution\ndef test_a():\n    assert vars(solution.Thing(solution.f(1))) == {'n': 2}\n"
    "def test_b():\n    assert 'n' not in vars(solution.Thing)\ndef test_c():\n    assert [n for n, v in vars(solution).items() if n == 'f'] == ['f']\n",
    "which object a value is": "from solution import Thing\ndef test_a():\n    value = (1, 2)\n    assert id(Thing(value).n) == id(value)\n",
    "a test that yields": "from solution import f\ndef test_a():\n    yield f(1)\n    assert f(1) == 2\n",
}  # fmt: skip


@pytest.mark.timeout(1200)  # some 250 runs of pytest
async def test_our_runner_says_of_each_form_what_pytest_says() -> None:
    programs = {"right": RIGHT, "wrong": WRONG}
    cases = {
        f"{form}, {kind}": {"solution.py": code, "test_solution.py": tests}
        for form, tests in FORMS.items()
        for kind, code in programs.items()
    }
    found = await compared(cases)
    assert set(found) == set(cases)
    wrong = [f"{name}: {each}" for name, pair in found.items() for each in pair.differences()]
    assert not wrong, "\n\n".join(wrong)
    assert sum(pair.ours.passes for pair in found.values()) > len(FORMS) / 2
    assert sum(bool(pair.ours.failed) for pair in found.values()) > len(FORMS) / 2
