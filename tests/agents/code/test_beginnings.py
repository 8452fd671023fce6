"""However a file of tests begins, a right program passes and a wrong one fails at its line."""

from __future__ import annotations

import pytest

from holdfast.agents.code import toolchain
from holdfast.agents.code.languages import LANGUAGES, Language
from holdfast.agents.code.records import Verdict
from holdfast.agents.code.verdict import Limits, judge
from holdfast.sandbox import Sandbox

LIMITS = Limits(seconds=60)
RIGHT = {
    "python": "def f(n):\n    return n + 1\n",
    "node": "export function f(n) { return n + 1; }\n",
}
WRONG = {
    "python": "def f(n):\n    return n + 2\n",
    "node": "export function f(n) { return n + 2; }\n",
}
PYTHON_TEST = "from solution import f\n\n\ndef test_f():\n    assert f(1) == 2\n"
NODE_TEST = (
    'import test from "node:test";\nimport assert from "node:assert/strict";\n'
    'import { f } from "./solution.js";\n\ntest("f", () => {\n  assert.equal(f(1), 2);\n});\n'
)
PYTHON = {
    "a comment": f"# Tests.\n{PYTHON_TEST}",
    "a blank line": f"\n{PYTHON_TEST}",
    "many blank lines": "\n" * 30 + PYTHON_TEST,
    "blanks and a form feed": f"   \n\f\n{PYTHON_TEST}",
    "a docstring": f'"""Tests."""\n\n{PYTHON_TEST}',
    "a long docstring": f'"""Tests.\n\nMore.\n"""\n{PYTHON_TEST}',
    "a docstring after a comment": f'# Tests\n\n"""Tests."""\n{PYTHON_TEST}',
    "a future": f"from __future__ import annotations\n\n{PYTHON_TEST}",
    "a docstring and a future": f'"""Tests."""\n\nfrom __future__ import annotations\n{PYTHON_TEST}',
    "a comment and a future": f"# x\nfrom __future__ import (\n    annotations,\n)\n{PYTHON_TEST}",
    "an interpreter and an encoding": f"#!/usr/bin/env python3\n# -*- coding: utf-8 -*-\n{PYTHON_TEST}",
    "a byte order mark": f"\ufeff{PYTHON_TEST}",
    "a byte order mark and a comment": f"\ufeff# Täst\n{PYTHON_TEST}",
    "carriage returns": f"# x\n\n{PYTHON_TEST}".replace("\n", "\r\n"),
    "old carriage returns": PYTHON_TEST.replace("\n", "\r"),
    "a decorator": "# x\nimport pytest\n\n@pytest.mark.parametrize(\n    'n', [1]\n)\ndef test_f(n):\n"
    "    from solution import f\n    assert f(n) == 2\n",
    "a decorator on the first line": "@__import__('pytest').mark.parametrize('n', [1])\ndef test_f(n):\n"
    "    from solution import f\n    assert f(n) == 2\n",
    "a statement of many lines": "from solution import (\n    f,\n)\n\n\ndef test_f():\n    assert (\n"
    "        f(1)\n        == 2\n    )\n",
    "two statements on a line": "# x\nimport math; from solution import f\ndef test_f(): assert f(1) == 2\n",
    "a class": "\n\nclass TestF:\n    '''Doc.'''\n\n    def test_f(self):\n        'Doc.'\n"
    "        from solution import f\n        assert f(1) == 2\n",
    "unittest": '"""Tests."""\nimport unittest\n\nfrom solution import f\n\nclass T(unittest.TestCase):\n'
    "    def test_f(self):\n        self.assertEqual(f(1), 2)\n",
    "a script": '# Tests\n\n"""Doc."""\nfrom solution import f\n\nassert f(1) == 2\n',
    "an if": "# x\nif True:\n    from solution import f\n\ndef test_f():\n    assert f(1) == 2\n",
    "no newline at the end": f"# x\n{PYTHON_TEST}".rstrip(),
}
NODE = {
    "a comment": f"// Tests.\n{NODE_TEST}",
    "a long comment": f"/*\n * Tests.\n */\n{NODE_TEST}",
    "blank lines": "\n" * 20 + NODE_TEST,
    "a directive": f'"use strict";\n{NODE_TEST}',
    "an interpreter": f"#!/usr/bin/env node\n{NODE_TEST}",
    "a byte order mark": f"\ufeff{NODE_TEST}",
    "carriage returns": f"// x\n{NODE_TEST}".replace("\n", "\r\n"),
    "a statement of many lines": NODE_TEST.replace("{ f }", "{\n  f,\n}"),
    "no newline at the end": NODE_TEST.rstrip(),
}
ALSO_WRONG = ("a comment", "a docstring and a future", "carriage returns", "a byte order mark",
              "a statement of many lines", "a script")  # fmt: skip
"""Judged with a wrong program too, and not only with a right one."""


async def judged(language: Language, code: str, tests: str) -> Verdict:
    source = await toolchain.ready(language, ())
    async with await Sandbox.create(runtime=language.runtime, source=source) as sandbox:
        return await judge(sandbox, language, code, tests, LIMITS)


@pytest.mark.parametrize("begins_with", PYTHON)
async def test_python_tests_may_begin_with(begins_with: str) -> None:
    tests = PYTHON[begins_with]
    right = await judged(LANGUAGES["python"], RIGHT["python"], tests)
    assert (right.passed, right.error) == (True, None)
    if begins_with not in ALSO_WRONG:
        return
    wrong = await judged(LANGUAGES["python"], WRONG["python"], tests)
    assert not wrong.passed and wrong.side is None and wrong.error is not None
    lines = tests.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    asserted = next(n for n, line in enumerate(lines, 1) if "assert" in line)
    assert f"test_solution.py:{asserted}:" in wrong.error or f"line {asserted}" in wrong.error


@pytest.mark.parametrize(
    ("begins_with", "language"),
    [*((each, "javascript") for each in NODE), ("a comment", "typescript")],
)
async def test_node_tests_may_begin_with(begins_with: str, language: str) -> None:
    tests = NODE[begins_with]
    if language == "typescript":
        tests = tests.replace("./solution.js", "./solution.ts").replace("() =>", "(): void =>")
    spoken = LANGUAGES[language]
    right = await judged(spoken, RIGHT["node"], tests)
    assert (right.passed, right.error) == (True, None)
    if begins_with not in ALSO_WRONG:
        return
    wrong = await judged(spoken, WRONG["node"], tests)
    assert not wrong.passed and wrong.side is None and wrong.error is not None
    asserted = next(n for n, line in enumerate(tests.split("\n"), 1) if "assert.equal" in line)
    assert f"{spoken.test_file}:{asserted}:" in wrong.error
