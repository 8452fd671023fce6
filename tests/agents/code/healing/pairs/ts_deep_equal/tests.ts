import assert from "node:assert/strict";
import { deepEqual } from "./solution.ts";

assert.equal(deepEqual({ a: [1, { b: 2 }] }, { a: [1, { b: 2 }] }), true);
assert.equal(deepEqual({ a: 1, b: 2 }, { b: 2, a: 1 }), true);
assert.equal(deepEqual({ a: 1 }, { a: 1, b: 2 }), false);
assert.equal(deepEqual([], {}), false);
assert.equal(deepEqual(NaN, NaN), true);
