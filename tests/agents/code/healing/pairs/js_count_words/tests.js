import test from "node:test";
import assert from "node:assert/strict";
import { countWords } from "./solution.js";

test("words are counted", () => {
  const counts = countWords("One fish, two fish!");
  assert.equal(counts.fish, 2);
  assert.equal(counts.one, 1);
});

test("words that every object has", () => {
  assert.equal(countWords("the constructor").constructor, 1);
});

test("no words", () => {
  assert.equal(Object.keys(countWords("1 2 3")).length, 0);
});
