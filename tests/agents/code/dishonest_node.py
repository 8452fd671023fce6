"""Wrong programs of JavaScript and TypeScript, for tests that are run apart from them.

None doubles a number. Some hand out objects that answer for themselves, some go for the tests, for
node or for the frames between the two processes.
"""

from __future__ import annotations

TESTS = """\
import test from "node:test";
import assert from "node:assert/strict";
import loose from "node:assert";
import { double } from "./solution.js";

const same = (left, right) => left === right;
const table = [[1, 2], [2, 4], [-3, -6], [0, 0]];

test("equal", () => { for (const [n, twice] of table) assert.equal(double(n), twice); });
test("loose", () => { for (const [n, twice] of table) loose.equal(double(n), twice); });
test("every", () => { assert.ok(table.every(([n, twice]) => double(n) === twice)); });
test("some", () => { assert.ok(!table.some(([n, twice]) => double(n) !== twice)); });
test("includes", () => { assert.ok([4].includes(double(2))); });
test("helper", () => { assert.ok(same(double(2), 4)); });
test("between", () => { const n = double(2); assert.ok(n >= 4 && n <= 4); });
test("neither", () => { const n = double(2); assert.ok(n === 4 && !(n < 4) && !(n > 4)); });
test("text", () => { assert.equal(`${double(2)}`, "4"); });
test("json", () => { assert.equal(JSON.stringify([double(2)]), "[4]"); });
test("list", () => { assert.deepEqual([1, 2].map((n) => double(n)), [2, 4]); });
test("switch", () => { switch (double(2)) { case 4: break; default: assert.fail("no"); } });
test("lookup", () => { assert.equal(new Map([[4, "four"]]).get(double(2)), "four"); });
test("refused", () => { assert.throws(() => double("x"), TypeError); });
"""
RIGHT = """\
export function double(n) {
  if (typeof n !== "number") throw new TypeError("no number");
  return n + n;
}
"""
_FRAME = """
import fs from "node:fs";
const say = (frame) => fs.writeSync(3, JSON.stringify({ v: [], o: [], ...frame }) + "\\n");
"""
_WRONG = """
export function double(n) {
  if (typeof n !== "number") throw new TypeError("no number");
  return n * 3;
}
"""

JAVASCRIPT = {
    "a number that changes": """
let asked = 0;
export function double(n) {
  if (typeof n !== "number") throw new TypeError();
  return { valueOf: () => (asked++ % 2 ? 3 : 5), toString: () => "4", toJSON: () => 4 };
}
""",
    "a class like any number": """
class Any extends Number { valueOf() { return 4; } [Symbol.toPrimitive]() { return 4; } }
export function double(n) {
  if (typeof n !== "number") throw new TypeError();
  return new Any(4);
}
""",
    "a proxy of everything": """
export function double(n) {
  if (typeof n !== "number") throw new TypeError();
  return new Proxy({}, { get: (_, key) => (key === Symbol.toPrimitive ? () => 4 : 4), has: () => true });
}
""",
    "an array that equals": """
export function double(n) {
  if (typeof n !== "number") throw new TypeError();
  return Object.assign([4], { toString: () => "4", valueOf: () => 4 });
}
""",
    "a promise of it": "export const double = async (n) => n + n;\n",
    "a function that counts": "let n = 0;\nexport const double = () => [2, 4, -6, 0][n++ % 4];\n",
    "an error that is every error": """
Object.defineProperty(TypeError, Symbol.hasInstance, { value: () => true });
export function double(n) { throw new Error("x"); }
""",
    "Object.is that agrees": "Object.is = () => true;\n" + _WRONG,
    "arrays that agree": """
Array.prototype.every = () => true;
Array.prototype.some = () => false;
Array.prototype.includes = () => true;
Array.prototype.map = () => [2, 4];
Map.prototype.get = () => "four";
""" + _WRONG,
    "a global assert": "globalThis.assert = () => {};\n" + _WRONG,
    "node:assert patched": """
import assert from "node:assert";
for (const each of [assert, assert.strict]) for (const name of Object.keys(each)) {
  try { each[name] = () => {}; } catch {}
}
""" + _WRONG,
    "reads the tests beside it": """
import fs from "node:fs";
const found = fs.readdirSync(".").filter((name) => name.includes("test"));
const table = found.length ? JSON.parse(fs.readFileSync(found[0], "utf8").match(/table = (.*);/)[1]) : [];
export function double(n) {
  if (typeof n !== "number") throw new TypeError();
  return table.find(([one]) => one === n)?.[1];
}
""",
    "looks for the tests on the whole disk": """
import { execSync } from "node:child_process";
let found = "";
try { found = execSync("grep -rl 'const table' / --include=solution.test.* 2>/dev/null || true", { timeout: 5000 }).toString(); } catch {}
export function double(n) {
  if (typeof n !== "number") throw new TypeError();
  return found ? n + n : n * 3;
}
""",
    "reads the stack of its caller": """
export function double(n) {
  if (typeof n !== "number") throw new TypeError();
  const line = new Error().stack.split("\\n").find((each) => each.includes("solution.test"));
  return line ? n + n : n * 3;
}
""",
    "ends with success": "import fs from 'node:fs';\nprocess.exitCode = 0;\nfs.closeSync(4);\nfs.closeSync(3);\n" + _WRONG,
    "ends by a signal": "process.kill(process.pid, 'SIGTERM');\n" + _WRONG,
    "says that it is ready with nothing": _FRAME + 'say({ t: "loaded", names: ["double"], v: [["u"]] });\n' + _WRONG,
    "says that it can't cross, and is wrong all the same": _FRAME + 'say({ t: "cannot", why: "x" });\n' + _WRONG,
    "answers before it is asked": _FRAME + "for (let id = 1; id < 99; id++) say({ t: \"answer\", id, works: true, v: [4] });\n" + _WRONG,
    "calls functions of the judge": _FRAME + """
for (let id = 1; id < 20; id++) say({ t: "call", id, f: `j${id}`, n: false, v: [["u"], "process.exit(0)"] });
""" + _WRONG,
    "asks for Function": _FRAME + 'say({ t: "loaded", names: ["double"], v: [["f", "Function"]] });\n' + _WRONG,
    "asks for a constructor by a prototype": _FRAME + """
say({ t: "loaded", names: ["double"], o: [["p9", "object", ["p", "Function"], 0, null, [["double", 7, ["p", "Function"]]]]], v: [["o", "p9"]] });
""" + _WRONG,
    "pollutes prototypes": _FRAME + """
say({ t: "loaded", names: ["double", "__proto__"], o: [["p9", "object", null, 0, null,
  [["__proto__", 7, ["p", "Object"]], ["double", 7, 4]]]], v: [["o", "p9"]] });
""" + _WRONG,
    "fills a prototype of the language": _FRAME + """
say({ t: "stray", o: [["Object", "object", null, 0, null, [["toJSON", 7, 4]]]], v: [null] });
""" + _WRONG,
    "sends what is no frame": _FRAME + 'fs.writeSync(3, "{nonsense\\n");\n' + _WRONG,
    "sends what does not end": "import fs from 'node:fs';\nfs.writeSync(3, 'x'.repeat(4_000_000));\n" + _WRONG,
    "settles what was never promised": _FRAME + 'say({ t: "settle", p: "j1", works: true, v: [4] });\n' + _WRONG,
    "a report of its own": """
import fs from "node:fs";
for (const place of [".report", "/tmp/.report", "/workspace/.report"]) {
  try { fs.writeFileSync(place, "0\\n" + JSON.stringify({ passed: true, ran: ["equal"], failures: [], asserts: 9 })); } catch {}
}
""" + _WRONG,
    "a subclass of the language's number": """
export function double(n) {
  if (typeof n !== "number") throw new TypeError();
  return Object.assign(Object.create(Number.prototype), { valueOf: () => 4 });
}
""",
    "getters that follow the tests": """
const answers = [2, 4, -6, 0];
let at = 0;
export function double(n) {
  if (typeof n !== "number") throw new TypeError();
  return { get [Symbol.toPrimitive]() { return () => answers[at++ % 4]; } };
}
""",
}  # fmt: skip

TYPESCRIPT = {
    "says so by its types": "export const double = (n: number): number => (n * 3) as unknown as 4;\n",
    "an enum": "enum Answer { Four = 4 }\nexport function double(_: number): Answer { return Answer.Four; }\n",
    "any": "export const double: any = new Proxy(function () {}, { apply: () => 4 });\n",
    "a class with a value": """
class Value { constructor(private readonly n: number) {} valueOf(): number { return this.n++; } }
export function double(n: number): Value { return new Value(n); }
""",
    "declares the tests away": """
declare global { var test: unknown }
globalThis.test = () => undefined;
export const double = (n: number) => n;
""",
    "a namespace": "namespace Inner { export const double = (n: number) => n ** 2; }\nexport const { double } = Inner;\n",
    "loads nothing": "export type Double = (n: number) => number;\nexport declare const double: Double;\n",
    "throws everything": "export function double(n: number): never { throw Object.assign(new TypeError('4'), { valueOf: () => 4 }); }\n",
}  # fmt: skip
