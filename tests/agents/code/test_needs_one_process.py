"""What in the text of tests says that they need one process with their program."""

from __future__ import annotations

import pytest

from holdfast.agents.code import javascript
from holdfast.agents.code.isolated import needs_one_process


@pytest.mark.parametrize(
    "tests",
    [
        "from solution import f\ndef test_f():\n    assert f(1) == 2\n",
        "from unittest import mock\nimport solution\ndef test_f():\n"
        "    with mock.patch('solution.g'):\n        assert solution.f(1) == 2\n",
        "import time\nfrom solution import f\ndef test_f(monkeypatch):\n"
        "    monkeypatch.setattr(time, 'sleep', print)\n    assert f(1) == 2\n",
        "def test_f(:\n",
        "from solution import f\ndef test_f():\n    for id in (1, 2):\n        assert f(id) == id\n",
        "from solution import f\ndef test_f():\n    given = [1]\n    assert f(given) is not given\n"
        "    assert f(1) is None\n    assert type(f(2)) is int\n",
        "from solution import f, id\ndef test_f():\n    assert id(f(1)) == 2\n",
    ],
)
def test_most_tests_can_be_run_apart(tests: str) -> None:
    assert needs_one_process(tests) is None


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("import inspect", "looks into the program"),
        ("import concurrent.futures", "uses threads"),
        ("from importlib import reload", "loads the program anew"),
        ("from time import perf_counter", "measures time"),
        ("import time; began = time.time()", "measures time"),
        ("import sys; sys.modules.pop('solution')", "changes which modules are loaded"),
        ("def test_f(tmp_path): pass", "uses files"),
        ("def test_f(caplog): pass", "reads the program's log"),
        ("text = open('solution.py').read()", "starts or reads the program's file"),
        ("command = 'python -m solution'", "starts or reads the program's file"),
        ("names = f.__code__.co_names", "looks into the program"),
        ("def test_f(): assert f((), key=id) == 1", "asks which object a value is"),
        ("value = (1, 2); assert f(value) is value", "asks which object a value is"),
        ("value = 'ab' * 9; assert f(value) is not value", "asks which object a value is"),
        ("def test_f(self): self.assertIs(f(1), 1000)", "asks which object a value is"),
        ("assert [id(x) for x in f([()])] == [id(())]", "asks which object a value is"),
    ],
)
def test_some_say_what_they_need_one_process_for(line: str, reason: str) -> None:
    assert needs_one_process(f"from solution import f\n{line}\n") == reason


@pytest.mark.parametrize(
    "line",
    [
        'import { inspect } from "node:util";',
        'const { f: g } = require("./solution");',
        'const s = await import("./solution.ts");',
        "test('a', (t) => { const g = t.mock.fn(f); given.x = 1; list[0] = 2; console.log(g); });",
        "const text = 'process.env and fetch';",
    ],
)
def test_most_tests_for_node_can_be_run_apart(line: str) -> None:
    tests = f'import test from "node:test";\nimport {{ f }} from "./solution.js";\n{line}\n'
    assert javascript.needs_one_process(tests, "javascript") is None


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('import fs from "node:fs";', "imports node:fs"),
        ('import _ from "lodash";', "imports lodash"),
        ('const { exec } = require("child_process");', "imports child_process"),
        ("const s = await import(`./solution.js?${n}`);", "imports what only a run tells"),
        ("process.env.X = '1';", "looks at the process"),
        ("const began = performance.now();", "measures time"),
        ("const began = Date.now();", "measures time"),
        ("t.mock.method(console, 'log');", "replaces what the program may use"),
        ("mock.timers.enable();", "replaces what the program may use"),
        ("console.log = (text) => said.push(text);", "replaces what console holds"),
        ("Stack.prototype.push = () => {};", "changes a prototype"),
        ("Math.random = () => 0.5;", "replaces what Math holds"),
        ("const where = import.meta.url;", "uses files"),
    ],
)
def test_some_for_node_say_what_they_need_one_process_for(line: str, reason: str) -> None:
    tests = f'import {{ f }} from "./solution.js";\n{line}\n'
    assert javascript.needs_one_process(tests, "typescript") == reason
