import test from "node:test";
import assert from "node:assert/strict";
import { chunk } from "./solution.ts";

test("whole chunks", () => {
  assert.deepEqual(chunk([1, 2, 3, 4], 2), [[1, 2], [3, 4]]);
});

test("the last one may be shorter", () => {
  assert.equal(chunk([1, 2, 3], 2).length, 2);
  assert.deepEqual(chunk([1, 2, 3], 2)[1], [3]);
});

test("a size of nothing is refused", () => {
  assert.throws(() => chunk([1], 0), RangeError);
});
