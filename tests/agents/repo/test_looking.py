"""What is told from files alone: how tests run, which changes touch tests, what output counts."""

from __future__ import annotations

import pytest

from agents.repo import repos
from holdfast.agents.repo.checkout import branch_name, without_password
from holdfast.agents.repo.patches import changes, sensitive
from holdfast.agents.repo.records import Counts, Patch
from holdfast.agents.repo.test_detection import plan_for
from holdfast.agents.repo.verdict import changed_tests, count

PLACEHOLDER = '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}'
UNITTEST = "import unittest\n\nclass T(unittest.TestCase):\n    def test_x(self): ...\n"


@pytest.mark.parametrize(
    ("files", "command"),
    [
        (repos.SLUGS, "python -m pytest -q"),
        (repos.LEDGER, "python -m unittest discover -s tests -t . -p '*test*.py'"),
        ({"test_a.py": UNITTEST}, "python -m unittest discover -p '*test*.py'"),
        ({"test_a.py": UNITTEST, "setup.cfg": "[tool:pytest]\n"}, "python -m pytest -q"),
        ({"a_test.py": "def test_x(): ..."}, "python -m pytest -q"),
        (repos.PLANETS, "make test"),
        ({"Makefile": "check: all\n\t./check\n"}, "make check"),
        ({"Makefile": "test := x\nall:\n"}, None),
        (repos.CART, "npm test --silent"),
        (repos.DURATIONS, "node --test"),
        ({"package.json": PLACEHOLDER, "test/a.js": ""}, "node --test"),
        ({"package.json": PLACEHOLDER}, None),
        ({"package.json": "broken {", "a.spec.mjs": ""}, "node --test"),
        ({**repos.SLUGS, **repos.CART}, "python -m pytest -q && npm test --silent"),
        ({"README.md": "x"}, None),
    ],
)
def test_how_the_tests_run_is_told_from_the_files(
    files: dict[str, str], command: str | None
) -> None:
    plan = plan_for(list(files), files)
    assert (plan.command if plan else None) == command


@pytest.mark.parametrize(
    ("output", "counts"),
    [
        ("..F\n=== FAILURES ===\n1 failed, 2 passed in 0.10s\n", Counts(2, 1)),
        ("==== 5 passed, 1 skipped, 2 warnings in 3.21s ====", Counts(5, 0, 1)),
        ("1 error in 0.05s", Counts(0, 1)),
        ("no tests ran in 0.01s", None),
        ("Ran 7 tests in 0.001s\n\nFAILED (failures=1, errors=2)\n", Counts(4, 3)),
        ("Ran 3 tests in 0.001s\n\nOK (skipped=1)\n", Counts(3, 0, 1)),
        ("# tests 3\n# pass 2\n# fail 1\n# cancelled 0\n# skipped 0\n# todo 0\n", Counts(2, 1)),
        ("ℹ pass 4\nℹ fail 0\nℹ skipped 1\n", Counts(4, 0, 1)),
        ("all good", None),
    ],
)
def test_tests_are_counted_from_what_is_printed(output: str, counts: Counts | None) -> None:
    assert count(output) == counts


TEST = (
    "def test_a():\n    assert f(1) == 1\n    assert f(2) == 2\n\n\ndef test_b():\n    assert g()\n"
)


@pytest.mark.parametrize(
    ("before", "after", "how", "weaker", "gone"),
    [
        ({"test_x.py": None}, {"test_x.py": TEST}, "added", False, ()),
        ({"test_x.py": TEST}, {"test_x.py": TEST + "\n# more\n"}, "changed", False, ()),
        ({"test_x.py": TEST}, {"test_x.py": TEST.replace("    assert f(2) == 2\n", "")}, "1 assertion fewer", True, ()),
        ({"test_x.py": TEST}, {"test_x.py": None}, "removed", True, ("test_a", "test_b")),
        ({"test_x.py": TEST}, {"test_x.py": "def test_b():\n    assert g()\n"}, "2 assertions fewer", True, ("test_a",)),
        ({"test_x.py": TEST}, {"test_x.py": "@pytest.mark.xfail\n" + TEST}, "1 more skipped", True, ()),
        ({"a.test.js": "test('x', () => { assert(1); });"}, {"a.test.js": "test.skip('x', () => { assert(1); });"}, "1 more skipped", True, ()),
        ({"a.test.js": "test('x', () => {});"}, {"a.test.js": "test('y', () => {});"}, "changed", False, ("x",)),
        ({"package.json": '{"scripts": {"test": "node --test"}}'}, {"package.json": '{"scripts": {"test": "true"}}'}, "settings of the tests changed", True, ()),
        ({"pyproject.toml": '[tool.pytest.ini_options]\nx = 1\n'}, {"pyproject.toml": "[project]\n"}, "settings of the tests changed", True, ()),
        ({"Makefile": "test:\n\tpytest\n"}, {"Makefile": "test:\n\ttrue\n"}, "settings of the tests changed", True, ()),
        ({"conftest.py": ""}, {"conftest.py": "collect_ignore = ['tests']\n"}, "changed", False, ()),
    ],
)  # fmt: skip
def test_changes_of_tests_are_told(before, after, how, weaker, gone) -> None:
    [told], removed = changed_tests(before, after)
    assert (told.how, told.weaker) == (how, weaker)
    assert set(removed) == set(gone)


def test_changes_elsewhere_are_no_changes_of_tests() -> None:
    assert changed_tests({"a.py": "x = 1", "package.json": '{"version": "1"}'}, {"a.py": "x = 2", "package.json": '{"version": "2"}'}) == ((), ())  # fmt: skip


def test_a_test_that_moves_to_another_file_is_not_gone() -> None:
    _, gone = changed_tests(
        {"test_x.py": TEST, "test_y.py": None}, {"test_x.py": None, "test_y.py": TEST}
    )
    assert gone == ()


def test_patches_are_read_as_git_writes_them() -> None:
    text = (
        'diff --git "a/\\303\\244 b.txt" "b/\\303\\244 b.txt"\nnew file mode 100755\nindex 0..1\n'
        '--- /dev/null\n+++ "b/\\303\\244 b.txt"\n@@ -0,0 +1,2 @@\n+--- no header\n+diff --git a/x b/x\n'
        "diff --git a/pic.png b/pic.png\nindex 1..2 100644\nGIT binary patch\nliteral 3\nKcmZ\n\nliteral 0\nHcmV\n\n"
        "diff --git a/.github/workflows/x.yml b/.github/workflows/x.yml\ndeleted file mode 100644\nindex 1..0\n"
        "--- a/.github/workflows/x.yml\n+++ /dev/null\n@@ -1 +0,0 @@\n-on: push\n\\ No newline at end of file\n"
    )
    first, second, third = changes(Patch(text))
    assert (first.path, first.mode, first.added, first.new) == ("ä b.txt", "100755", 2, True)
    assert second.binary and second.path == "pic.png"
    assert third.deleted and third.removed == 1
    assert sensitive(Patch(text)) == (".github/workflows/x.yml",)


def test_a_patch_keeps_every_byte() -> None:
    for raw in (
        b"plain \r\n",
        "ümlaut\n".encode(),
        "latin ü\n".encode("latin-1"),
        bytes(range(256)),
    ):
        assert Patch.of(raw).raw == raw


def test_names_for_people() -> None:
    assert (
        branch_name("Fix the parser: it can't read «dates»!")
        == "holdfast/fix-the-parser-it-can-t-read-dates"
    )
    assert branch_name("…") == "holdfast/repair"
    assert without_password("https://me:hunter2@example.com/x.git") == "https://example.com/x.git"
