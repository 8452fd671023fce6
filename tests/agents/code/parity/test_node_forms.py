"""Forms that node's tests take: our runner says of each what plain `node --test` says."""

from __future__ import annotations

import re

import pytest

from agents.code.parity import node_values
from holdfast.agents.code import isolated, toolchain, verdict
from holdfast.agents.code.languages import LANGUAGES
from holdfast.sandbox import Sandbox

JAVASCRIPT = LANGUAGES["javascript"]
LIMITS = verdict.Limits(seconds=60)
RIGHT = """\
export function f(n) {
  if (typeof n !== "number") throw new TypeError(`no number: ${n}`);
  return n + 1;
}
export async function later(n) {
  await new Promise((resolve) => setTimeout(resolve, 5));
  return f(n);
}
"""
WRONG = RIGHT.replace("return n + 1", "return n + 2").replace("new TypeError", "new RangeError")
HEAD = """\
import test, { describe, it, before, after, beforeEach, afterEach } from "node:test";
import assert from "node:assert/strict";
import { f, later } from "./solution.js";
"""
FORMS = {
    "an expression": 'test("a", () => {\n  assert(f(1) === 2);\n});\n',
    "an expression of many lines": 'test("a", () => {\n  assert(\n    f(1) === 2 &&\n      f(2) === 3,\n  );\n});\n',
    "assert.ok": 'test("a", () => {\n  assert.ok([1, 2].every((n) => f(n) === n + 1));\n});\n',
    "a message": 'test("a", () => {\n  assert.ok(f(1) === 2, "not two");\n});\n',
    "equal": 'test("a", () => {\n  assert.equal(f(1), 2);\n});\n',
    "deepEqual": 'test("a", () => {\n  assert.deepEqual({ a: [f(1)] }, { a: [2] });\n});\n',
    "throws": 'test("a", () => {\n  assert.throws(() => f("x"), TypeError);\n});\n',
    "rejects": 'test("a", async () => {\n  await assert.rejects(later("x"), { name: "TypeError" });\n});\n',
    "async": 'test("a", async () => {\n  assert.equal(await later(1), 2);\n});\n',
    "a callback": 'test("a", (t, done) => {\n  later(1).then((n) => { assert.equal(n, 2); done(); }).catch(done);\n});\n',
    "after the test ended": 'test("a", () => {\n  assert.ok(true);\n  later(1).then((n) => assert.equal(n, 2));\n});\n',
    "long after the test ended": 'test("a", () => {\n  assert.ok(true);\n  setTimeout(() => assert.equal(f(1), 2), 300);\n});\n',
    "a plan that is met": 'test("a", (t) => {\n  t.plan(2);\n  t.assert.equal(f(1), 2);\n  t.assert.ok(f(0));\n});\n',
    "a plan that is not met": 'test("a", (t) => {\n  t.plan(2);\n  t.assert.ok(f(0) > 0);\n});\n',
    "beforeEach": 'let n = 0;\nbeforeEach(() => { n = f(n); });\ntest("a", () => assert.equal(n, 1));\ntest("b", () => assert.equal(n, 2));\n',
    "hooks in suites": 'const seen = [];\ndescribe("s", () => {\n  before(() => seen.push("before"));\n  beforeEach(() => seen.push("each"));\n'
    '  afterEach(() => seen.push("afterEach"));\n  after(() => assert.equal(seen.length, f(5)));\n  it("a", () => assert.equal(f(1), 2));\n'
    '  it("b", () => assert.equal(seen.length, f(3)));\n});\n',
    "hooks of a test": 'test("a", async (t) => {\n  let n = 0;\n  t.beforeEach(() => { n = f(n); });\n'
    '  await t.test("b", () => assert.equal(n, 1));\n  await t.test("c", () => assert.equal(n, 2));\n});\n',
    "subtests": 'test("a", async (t) => {\n  await t.test("b", () => assert.equal(f(1), 2));\n  await t.test("c", () => assert.ok(true));\n});\n',
    "skipped": 'test.skip("a", () => assert.fail());\ntest("b", { skip: "later" }, () => assert.fail());\n'
    'test("c", (t) => t.skip("later"));\ntest("d", () => assert.equal(f(1), 2));\n',
    "to do": 'test.todo("a");\ntest("b", { todo: true }, () => assert.fail());\ntest("c", () => assert.equal(f(1), 2));\n',
    "a suite skipped": 'describe.skip("s", () => {\n  it("a", () => assert.fail());\n});\ntest("b", () => assert.equal(f(1), 2));\n',
    "nested suites": 'describe("s", () => {\n  describe("t", () => {\n    it("a", () => assert.equal(f(1), 2));\n  });\n});\n',
    "a timeout": 'test("a", { timeout: 20000 }, async () => assert.equal(await later(1), 2));\n',
    "a timeout that passes": 'test("a", { timeout: 30 }, async () => {\n  await new Promise((resolve) => setTimeout(resolve, 3000));\n  assert.ok(f(0));\n});\n',
    "a mock": 'test("a", (t) => {\n  const g = t.mock.fn(f);\n  assert.equal(g(1), 2);\n  assert.equal(g.mock.callCount(), 1);\n});\n',
    "an error": 'test("a", () => {\n  assert.equal(f(1), 2);\n  null.x;\n});\n',
    "a rejection nobody handles": 'test("a", () => {\n  Promise.reject(new Error("lost"));\n  assert.equal(f(1), 2);\n});\n',
    "test.before": 'let n = 0;\ntest.beforeEach(() => { n = f(0); });\ntest.it("a", () => assert.equal(n, 1));\n',
}  # fmt: skip
SAYS_LESS = {"an expression of many lines"}
"""Of which node shows the first line alone."""


@pytest.mark.timeout(1200)
async def test_our_runner_says_of_each_form_what_node_says() -> None:
    wrong: list[str] = []
    source = await toolchain.ready(JAVASCRIPT, ())
    async with await Sandbox.create(runtime="node", source=source, timeout=1200) as sandbox:
        await sandbox.write_files({"package.json": '{"type": "module"}'})
        for form, tests in FORMS.items():
            for kind, code in (("right", RIGHT), ("wrong", WRONG)):
                files = {"solution.js": code, "solution.test.js": HEAD + tests}
                await sandbox.write_files(files)
                plain = await sandbox.run(
                    "node", "--test", "--test-reporter=tap", "solution.test.js", timeout=60
                )
                _, report = await verdict._run(
                    sandbox, JAVASCRIPT, "run_tests", code, HEAD + tests, LIMITS
                )
                assert report is not None
                if report.passed != (plain.exit_code == 0):
                    wrong.append(
                        f"{form}, {kind}: node {plain.exit_code}, ours {report}\n{plain.stdout[-1500:]}"
                    )
                elif not report.passed and report.failures and form not in SAYS_LESS:
                    wrong += missing_words(
                        f"{form}, {kind}", report.failures[0]["text"], plain.stdout
                    )
    assert not wrong, "\n\n".join(wrong)


APART = (
    "rejects",
    "a callback",
    "after the test ended",
    "hooks in suites",
    "a rejection nobody handles",
)
"""Forms that are run apart as well, beside a file in which everything crosses that can."""


@pytest.mark.timeout(1200)
async def test_it_says_the_same_with_the_program_in_another_process() -> None:
    values, wrong_values = node_values.PROGRAM, node_values.wrong()
    cases = [(node_values.TESTS, code) for code in (values, wrong_values)]
    cases += [(HEAD + FORMS[form], code) for form in APART for code in (RIGHT, WRONG)]
    source = await toolchain.ready(JAVASCRIPT, ())

    async def made() -> Sandbox:
        return await Sandbox.create(runtime="node", source=source, timeout=1200)

    async with await made() as one, await made() as judges, await made() as programs:
        both = isolated.Both(judges, programs)
        for tests, code in cases:
            apart = await isolated._carried(both, "run_tests", JAVASCRIPT, code, tests, LIMITS)
            assert apart.report is not None and not apart.report.get("cannot_cross"), apart.report
            ours = verdict.report_of(apart.report)
            _, shared = await verdict._run(one, JAVASCRIPT, "run_tests", code, tests, LIMITS)
            assert shared is not None
            assert (ours.passed, ours.ran, ours.asserts) == (
                shared.passed,
                shared.ran,
                shared.asserts,
            )
            assert [without_place(each) for each in ours.failures] == [
                without_place(each) for each in shared.failures
            ]
            if code == values:
                assert shared.passed and len(shared.ran) == 11
            elif code == wrong_values:
                assert len(shared.failures) == 11


def without_place(failure: dict[str, str]) -> tuple[str, list[str]]:
    """A failure without the frames of awaiting functions, which end where a process does."""
    lines = failure["text"].splitlines()
    return failure["name"], [line for line in lines if not line.strip().startswith("at async ")]


def missing_words(name: str, told: str, plain: str) -> list[str]:
    """What we say of a failure, and node does not: the error's words and the line in the tests."""
    words = [re.sub(r"^\w*(Error|Exception): ", "", line).strip() for line in told.splitlines()]
    said = [line for line in words if line and not line.startswith("at ")]
    found = [line for line in said if line not in plain]
    return [f"{name}: node does not say {found}\n{plain[-1500:]}"] if found else []
