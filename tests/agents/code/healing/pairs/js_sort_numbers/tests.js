import test from "node:test";
import assert from "node:assert/strict";
import { sortNumbers } from "./solution.js";

test("small numbers", () => {
  assert.equal(sortNumbers([3, 1, 2]).join(), "1,2,3");
});

test("numbers of several digits", () => {
  assert.equal(sortNumbers([10, 9, 100, 1]).join(), "1,9,10,100");
});

test("the argument stays as it was", () => {
  const numbers = [2, 1];
  sortNumbers(numbers);
  assert.deepEqual(numbers, [2, 1]);
});
