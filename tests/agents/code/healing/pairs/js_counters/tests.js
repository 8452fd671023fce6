import { test } from "node:test";
import { strict as assert } from "node:assert";
import { makeCounters } from "./solution.js";

test("each counts from its own number", () => {
  const [zero, one, two] = makeCounters(3);
  assert.equal(`${zero()} ${one()} ${two()}`, "0 1 2");
});

test("each goes on by itself", () => {
  const [zero, one] = makeCounters(2);
  zero();
  zero();
  assert.equal(one(), 1);
  assert.equal(zero(), 2);
});
