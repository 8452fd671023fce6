"""Everything that can pass between a program for node and its tests, in one file of each.

`PROGRAM` is right; `WRONG` has a mistake in every part, so that no test of `TESTS` passes on it.
"""

from __future__ import annotations

PROGRAM = r"""export class Point {
  #secret = 7;
  static origin = "here";
  static make(x, y) { return new Point(x, y); }
  constructor(x, y) { this.x = x; this.y = y; }
  get norm() { return Math.hypot(this.x, this.y); }
  set both(n) { this.x = n; this.y = n; }
  reveal() { return this.#secret; }
  move(dx) { this.x += dx; return this; }
  equals(other) { return other instanceof Point && other.x === this.x && other.#secret === this.#secret; }
  *[Symbol.iterator]() { yield this.x; yield this.y; }
  toJSON() { return [this.x, this.y]; }
  toString() { return `(${this.x}, ${this.y})`; }
}
export class Point3 extends Point {
  constructor(x, y, z) { super(x, y); this.z = z; }
  get norm() { return super.norm + this.z; }
}
export class OddError extends RangeError {
  constructor(n) { super(`odd: ${n}`); this.name = "OddError"; this.n = n; this.code = "E_ODD"; }
}
export function half(n) { if (n % 2) throw new OddError(n); return n / 2; }
export function sortInPlace(list) { list.sort((a, b) => a - b); return list; }
export function copied(list) { return [...list]; }
export function mapped(list, f) { return list.map((each, at) => f(each, at)); }
export function group(list, key) { const m = new Map(); for (const x of list) { const k = key(x); m.set(k, [...(m.get(k) ?? []), x]); } return m; }
export const unique = (list) => new Set(list);
export function* count(n) { for (let i = 0; i < n; i++) yield i; }
export async function* slowly(n) { for (let i = 0; i < n; i++) { await null; yield i; } }
export function counter() { let n = 0; return { inc() { n += 1; return n; }, get value() { return n; }, step: 1 }; }
export let calls = 0;
export function touch() { calls += 1; }
export const nothing = () => undefined;
export const weird = () => [NaN, -0, 10n ** 20n, undefined, null, Infinity, Symbol.for("x"), "\ud800"];
export const deep = () => { let n = null; for (let i = 0; i < 3000; i++) n = { next: n, i }; return n; };
export const cyclic = () => { const a = { name: "a" }; a.self = a; return a; };
export const bytes = (n) => new Uint8Array(n).map((_, i) => i * 2);
export const when = () => new Date(Date.UTC(2020, 1, 29));
export const pattern = () => /a(b+)/gi;
export const frozen = () => Object.freeze({ a: Object.freeze([1]) });
export const later = (v) => new Promise((r) => setTimeout(r, 2, v));
export const failing = async (m) => { await null; throw new TypeError(m); };
export function memo(f) { const kept = new Map(); const g = (n) => { if (!kept.has(n)) kept.set(n, f(n)); return kept.get(n); }; g.clear = () => kept.clear(); return g; }
export function Old(n) { if (!(this instanceof Old)) return new Old(n); this.n = n; }
Old.prototype.twice = function () { return this.n * 2; };
export class Bag extends Map { total() { let n = 0; for (const v of this.values()) n += v; return n; } }
export async function retry(f, n) { for (;;) { try { return await f(); } catch (e) { if (--n <= 0) throw e; } } }
export default function main(...args) { return args.length; }
"""

TESTS = r"""import test from "node:test";
import assert from "node:assert/strict";
import main, * as s from "./solution.js";
import { Point, Point3, OddError, half, calls, touch } from "./solution.js";
test("instances", () => {
  const p = new Point(3, 4);
  assert.ok(p instanceof Point);
  assert.equal(p.norm, 5);
  assert.equal(p.reveal(), 7);
  assert.deepEqual([...p], [3, 4]);
  assert.equal(JSON.stringify({ p }), '{"p":[3,4]}');
  assert.equal(`${p}`, "(3, 4)");
  assert.equal(p.move(2), p);
  assert.equal(p.x, 5);
  p.x = 1;
  assert.equal(p.norm, Math.hypot(1, 4));
  p.both = 2;
  assert.deepEqual(p, new Point(2, 2));
  assert.notDeepEqual(p, new Point(2, 3));
  assert.ok(p.equals(new Point(2, 9)));
  assert.equal(Point.origin, "here");
  assert.ok(Point.make(1, 2) instanceof Point);
  assert.equal(p.constructor, Point);
  assert.equal(Point.name, "Point");
  assert.throws(() => Point(1, 2), TypeError);
});
test("subclasses", () => {
  const p = new Point3(3, 4, 1);
  assert.ok(p instanceof Point);
  assert.equal(p.norm, 6);
  assert.equal(p.z, 1);
  assert.deepEqual(Object.keys(p), ["x", "y", "z"]);
});
test("errors", () => {
  assert.equal(half(4), 2);
  assert.throws(() => half(3), OddError);
  assert.throws(() => half(3), { name: "OddError", message: "odd: 3", n: 3, code: "E_ODD" });
  assert.throws(() => half(3), RangeError);
  assert.throws(() => half(3), /odd: 3/);
  assert.throws(() => half(3), (e) => e instanceof OddError && e.n === 3);
});
test("containers", () => {
  const list = [3, 1, 2];
  assert.equal(s.sortInPlace(list), list);
  assert.deepEqual(list, [1, 2, 3]);
  assert.notEqual(s.copied(list), list);
  assert.deepEqual(s.group([1, 2, 3], (n) => n % 2), new Map([[1, [1, 3]], [0, [2]]]));
  assert.deepEqual(s.unique([1, 1, 2]), new Set([1, 2]));
  assert.deepEqual(s.weird(), [NaN, -0, 10n ** 20n, undefined, null, Infinity, Symbol.for("x"), "\ud800"]);
  assert.equal(s.deep().next.next.i, 2997);
  const c = s.cyclic();
  assert.equal(c.self, c);
  assert.deepEqual(s.bytes(3), new Uint8Array([0, 2, 4]));
  assert.equal(s.when().toISOString(), "2020-02-29T00:00:00.000Z");
  assert.ok(s.pattern().test("xABB"));
  assert.ok(Object.isFrozen(s.frozen()) && Object.isFrozen(s.frozen().a));
  assert.equal(s.nothing(), undefined);
});
test("functions", () => {
  const seen = [];
  assert.deepEqual(s.mapped([1, 2], (n, at) => { seen.push(at); return n * 2; }), [2, 4]);
  assert.deepEqual(seen, [0, 1]);
  assert.deepEqual(s.mapped(["1"], Number), [1]);
  let many = 0;
  const f = s.memo((n) => { many += 1; return n + 1; });
  assert.equal(f(1) + f(1), 4);
  assert.equal(many, 1);
  f.clear();
  f(1);
  assert.equal(many, 2);
  const c = s.counter();
  c.inc();
  assert.equal(c.inc(), 2);
  assert.equal(c.value, 2);
  assert.equal(main(1, 2), 2);
  assert.equal(s.default(1), 1);
  const boom = new Error("mine");
  assert.throws(() => s.mapped([1], () => { throw boom; }), (e) => e === boom);
});
test("iterators", async () => {
  assert.deepEqual([...s.count(3)], [0, 1, 2]);
  const it = s.count(5);
  assert.deepEqual(it.next(), { value: 0, done: false });
  const [a, b] = it;
  assert.deepEqual([a, b], [1, 2]);
  const got = [];
  for await (const n of s.slowly(3)) got.push(n);
  assert.deepEqual(got, [0, 1, 2]);
});
test("live bindings", () => {
  const before = calls;
  touch();
  assert.equal(calls, before + 1);
});
test("promises", async () => {
  assert.equal(await s.later(5), 5);
  await assert.rejects(s.failing("no"), { name: "TypeError", message: "no" });
  assert.deepEqual(await Promise.all([s.later(1), s.later(2)]), [1, 2]);
  let n = 0;
  assert.equal(await s.retry(async () => { n += 1; if (n < 3) throw new Error("again"); return n; }, 5), 3);
});
test("old style", () => {
  assert.equal(new s.Old(3).twice(), 6);
  assert.equal(s.Old(4).n, 4);
  assert.ok(s.Old(4) instanceof s.Old);
});
test("subclass of a map", () => {
  const bag = new s.Bag([["a", 1], ["b", 2]]);
  assert.equal(bag.total(), 3);
  bag.set("c", 4);
  assert.equal(bag.total(), 7);
  assert.equal(bag.get("c"), 4);
  assert.ok(bag instanceof Map);
});
test("own objects handed over", () => {
  class Item { constructor(n) { this.n = n; } rank() { return this.n; } }
  const items = [new Item(2), new Item(1)];
  const out = s.mapped(items, (x) => x.rank());
  assert.deepEqual(out, [2, 1]);
  assert.equal(s.copied(items)[0], items[0]);
  assert.deepEqual(s.copied((function* () { yield 1; yield 2; })()), [1, 2]);
});
"""

_MISTAKES = {
    "this.x += dx": "this.x += dx + 1",
    "super.norm + this.z": "super.norm - this.z",
    "`odd: ${n}`": "`even: ${n}`",
    "(a, b) => a - b": "(a, b) => b - a",
    "kept.clear()": "kept.keys()",
    "yield i; }": "yield i + 1; }",
    "calls += 1": "calls += 2",
    "setTimeout(r, 2, v)": "setTimeout(r, 2, v + 1)",
    "this.n * 2": "this.n * 3",
    "n += v": "n -= v",
    "f(each, at)": "f(each, at + 1)",
    "[...list]": "structuredClone([...list])",
}


def wrong() -> str:
    code = PROGRAM
    for right, mistake in _MISTAKES.items():
        assert right in code, right
        code = code.replace(right, mistake)
    return code
