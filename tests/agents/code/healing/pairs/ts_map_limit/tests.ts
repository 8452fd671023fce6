import test from "node:test";
import assert from "node:assert/strict";
import { mapLimit } from "./solution.ts";

const turns = async (count: number) => {
  for (let turn = 0; turn < count; turn++) await Promise.resolve();
};

test("results are in the order of the items", async () => {
  const results = await mapLimit([30, 1, 2], 2, async (n) => {
    await turns(n);
    return n * 2;
  });
  assert.equal(results.join(), "60,2,4");
});

test("no more than the limit at once", async () => {
  let running = 0;
  let most = 0;
  await mapLimit([1, 2, 3, 4, 5], 2, async () => {
    running += 1;
    most = Math.max(most, running);
    await turns(5);
    running -= 1;
  });
  assert.equal(most, 2);
});
