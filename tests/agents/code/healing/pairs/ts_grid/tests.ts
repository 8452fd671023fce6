import test from "node:test";
import assert from "node:assert";
import { makeGrid } from "./solution.ts";

test("its size", () => {
  const grid = makeGrid(2, 3, ".");
  assert.strictEqual(grid.length, 2);
  assert.strictEqual(grid[0].length, 3);
});

test("cells are independent", () => {
  const grid = makeGrid(2, 2, 0);
  grid[0][1] = 7;
  assert.strictEqual(grid[1][1], 0);
});
