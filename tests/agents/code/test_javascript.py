"""JavaScript and TypeScript tests, read by their syntax tree."""

from __future__ import annotations

import subprocess
import sys

import pytest

from holdfast.agents.code import javascript
from holdfast.agents.code.javascript import Dialect


def counts(code: str, dialect: Dialect = "javascript") -> tuple[int, int]:
    """Assertions, and exact ones."""
    found = javascript.strength(code, dialect)
    return found.asserts, found.exact


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("assert.equal(f(1), 2);", (1, 1)),
        ("assert.strict.deepEqual(f(1), [2]);", (1, 1)),
        ("assert(f(1));", (1, 0)),
        ("assert.ok(f(1) === 2);", (1, 1)),
        ("assert.notEqual(f(1), 3);", (1, 0)),
        ("assert.throws(() => f(null), TypeError);", (1, 1)),
        ("t.assert.equal(f(1), 2);", (1, 1)),
        ("expect(f(1)).toBe(2);", (1, 1)),
        ("expect(f(1)).not.toBe(3);", (1, 0)),
        ("await expect(f(1)).resolves.toEqual({ a: 1 });", (1, 1)),
        ("expect(f(1)).to.be.true;", (1, 1)),
        ("f(1).should.equal(2);", (1, 1)),
        ('import check from "node:assert/strict"; check.equal(f(1), 2);', (1, 1)),
        ('import { equal as same } from "node:assert"; same(f(1), 2);', (1, 1)),
        ('const { deepEqual } = require("assert"); deepEqual(f(1), [2]);', (1, 1)),
        ('const verify = require("assert").strict; verify.equal(f(1), 2);', (1, 1)),
        ("try { f(1); assert.fail(); } catch (e) { assert.equal(e.code, 7); }", (1, 1)),
    ],
)
def test_an_assertion_about_the_program_counts(code: str, expected: tuple[int, int]) -> None:
    assert counts(code) == expected


@pytest.mark.parametrize(
    "code",
    [
        "assert.equal(x, x);",
        "assert.equal(f( 1 ), /* the same */ f(1));",
        "assert.deepStrictEqual([a, b], [a,b]);",
        "assert(x === x);",
        "assert.ok(f(1) || true);",
        "assert.ok(true);",
        "assert.equal(1, 1);",
        'assert.equal("a", "b".length);',
        "expect(x).toBe(x);",
        "expect(true).toBeTruthy();",
        "expect(f(1));",
        "expect.assertions(2);",
        "console.assert(f(1) === 2);",
        "// assert.equal(f(1), 2);",
        "/* expect(f(1)).toBe(2); */",
        "const s = 'assert.equal(f(1), 2)';",
        "const s = `assert.equal(f(1), 2)`;",
        "const r = /assert.equal(f(1), 2)/;",
        "function g() { return; assert.equal(f(1), 2); }",
        "if (false) { assert.equal(f(1), 2); }",
        "try { assert.equal(f(1), 2); } catch {}",
        "run(() => assert.equal(f(1), 2)).catch(() => {});",
    ],
)
def test_what_holds_by_itself_or_is_no_code_or_never_fails_does_not_count(code: str) -> None:
    assert counts(code) == (0, 0)


def test_an_assertion_in_a_template_s_place_is_code() -> None:
    assert counts("const s = `${assert.equal(f(1), 2)}`;") == (1, 1)


def test_types_are_passed_over() -> None:
    code = """\
    test("a", (): void => {
      const found: Array<Map<string, number>> = f<string>("x")!;
      assert.equal<number>(found[0]!.get("x") as number, 2);
      assert.equal(found as unknown, found);
    });
    """
    assert counts(code, "typescript") == (1, 1)
    assert javascript.titles(code, "typescript") == {"a"}


@pytest.mark.parametrize(
    ("code", "titles"),
    [
        ("test(\"a\", () => {}); it('b', () => {}); test(`c`, () => {});", {"a", "b", "c"}),
        ('describe("s", () => { describe("t", () => { it("a", () => {}); }); });', {"a"}),
        ('test("a", async (t) => { await t.test("b", () => {}); });', {"a", "b"}),
        ('test.each([[1, 2], [3, 4]])("adds %i", (a, b) => {});', {"adds %i"}),
        ("test.each`a | b\n${1} | ${2}`('adds $a', () => {});", {"adds $a"}),
        ('test.skip("a", () => {}); test.only("b", () => {});', {"a", "b"}),
        (r'test("it\'s \"so\" \u0041", () => {});', {'it\'s "so" A'}),
        ("test(`a ${n}`, () => {});", {"a ${n}"}),
        ('// test("a", () => {});\nconst s = `test("b", () => {})`;', set()),
        ('test("a", () => { assert(/x/.test("b")); assert(re.test("c")); });', {"a"}),
    ],
)
def test_tests_are_known_by_their_titles(code: str, titles: set[str]) -> None:
    assert javascript.titles(code, "javascript") == titles


def test_a_test_is_the_text_of_its_call_also_behind_letters_of_several_bytes() -> None:
    code = '// Größe ✓\ntest("ä", () => { assert.equal(f("}"), "ü"); });\ntest("b", () => {});\n'
    found = javascript.tests(code, "javascript")
    assert found is not None
    assert found["ä"].text == 'test("ä", () => { assert.equal(f("}"), "ü"); })'
    changed = javascript.replaced(code, "javascript", found, {"ä": 'test("ä")'}, "")
    assert changed == '// Größe ✓\ntest("ä");\ntest("b", () => {});\n'


def test_a_test_within_one_that_is_replaced_is_replaced_with_it() -> None:
    code = 'test("a", async (t) => { await t.test("b", () => { assert.equal(f(1), 3); }); });\n'
    found = javascript.tests(code, "javascript")
    assert found is not None
    right = javascript.tests(code.replace("3", "22"), "javascript")
    assert right is not None
    texts = {title: test.text for title, test in right.items()}
    assert javascript.replaced(code, "javascript", found, texts, "") == code.replace("3", "22")


def test_imports_that_the_new_tests_need_are_added() -> None:
    code = 'import test from "node:test";\ntest("a", () => {});\n'
    new = 'import test from "node:test"\nimport {\n  f,\n} from "./solution.js";\n'
    found = javascript.tests(code, "javascript")
    assert found is not None
    changed = javascript.replaced(code, "javascript", found, {}, new)
    assert changed == f'import {{\n  f,\n}} from "./solution.js";\n{code}'


def test_the_rows_of_a_table_are_cases() -> None:
    table = 'test.each([[1, 2], [3, 4], [5, 6]])("a", (x, y) => { assert.equal(f(x), y); });'
    assert javascript.strength(table, "javascript").cases == 3
    template = "test.each`x | y\n${1} | ${2}\n${3} | ${4}`('a', () => {});"
    assert javascript.strength(template, "javascript").cases == 2


@pytest.mark.parametrize(
    "code",
    [
        'test.skip("a", () => {});',
        'it.todo("a");',
        'xit("a", () => {});',
        'test("a", { skip: true }, () => {});',
        'test("a", { todo: "later" }, () => {});',
        'describe.skip("s", () => { it("a", () => {}); });',
        'test("a", (t) => { t.skip("why"); });',
    ],
)
def test_a_skipped_test_is_silenced(code: str) -> None:
    assert javascript.strength(code, "javascript").silenced
    assert javascript.skipped(code, "javascript") == 1


@pytest.mark.parametrize(
    "code",
    [
        'test("a", () => { assert.deepEqual(f(), { todo: "x", skip: 1 }); });',
        'test("a", { skip: false }, () => {});',
        'test("a", () => { assert.equal(list.skip(1), 2); });',
        'test("skip: (todo)", () => {}); // test.skip("b")',
    ],
)
def test_data_and_words_that_look_like_it_silence_nothing(code: str) -> None:
    assert not javascript.strength(code, "javascript").silenced
    assert javascript.skipped(code, "javascript") == 0


def test_names_are_those_at_the_top_of_a_file() -> None:
    code = """\
    export interface Point { x: number }
    type Pair = [number, number];
    enum Colour { Red }
    declare const given: number;
    export abstract class Shape {}
    export async function* walk(): AsyncGenerator<number> { const inner = 1; yield inner; }
    const { a, b: [c] } = make(), d = () => 1;
    // function not_here() {}
    """
    names = javascript.defined_names(code, "typescript")
    wanted = "Point Pair Colour given Shape walk a c d".split()
    assert names == frozenset(wanted)


@pytest.mark.parametrize(
    ("code", "whole"),
    [
        ("const a = `x\n\\`\\`\\`\ny`;", True),
        ("const a = `x", False),
        ("function f() {", False),
        ("/* open", False),
        ("", False),
        ("export const re = /[)`/]+/g;", True),
    ],
)
def test_whole_code_leaves_nothing_open(code: str, whole: bool) -> None:
    assert javascript.is_whole(code, "javascript") is whole


def test_deeply_nested_code_is_read_without_recursion() -> None:
    deep = 5000
    code = f"assert.equal({'(' * deep}f(1){')' * deep}, 2);"
    assert counts(code) == (1, 1)


def test_tree_sitter_is_loaded_by_the_first_javascript_and_not_before() -> None:
    program = (
        "import sys, holdfast.agents.code.workflow, holdfast.agents.code.steps\n"
        "assert 'tree_sitter' not in sys.modules\n"
        "from holdfast.agents.code import javascript\n"
        "javascript.titles('', 'javascript')\n"
        "assert 'tree_sitter' in sys.modules and 'tree_sitter_typescript' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
