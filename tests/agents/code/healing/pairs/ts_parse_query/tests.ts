import { test } from "node:test";
import assert from "node:assert/strict";
import { parseQuery } from "./solution.ts";

test("names and values", () => {
  assert.deepEqual([...parseQuery("?a=1&b=2&a=3")], [["a", ["1", "3"]], ["b", ["2"]]]);
});

test("a plus stands for a space", () => {
  assert.deepEqual(parseQuery("q=two+words").get("q"), ["two words"]);
});

test("only the first equals sign separates", () => {
  assert.deepEqual(parseQuery("token=a%3D==").get("token"), ["a==="]);
});

test("nothing", () => {
  assert.equal(parseQuery("").size, 0);
});
