import test from "node:test";
import assert from "node:assert/strict";
import { retry } from "./solution.ts";

test("the first success counts", async () => {
  let calls = 0;
  const action = async () => {
    calls += 1;
    if (calls < 3) throw new Error(`failure ${calls}`);
    return calls;
  };
  assert.equal(await retry(action, 5), 3);
});

test("the last error is thrown", async () => {
  let calls = 0;
  const action = async () => {
    calls += 1;
    throw new Error(`failure ${calls}`);
  };
  await assert.rejects(retry(action, 2), (error: Error) => {
    assert.equal(error.message, "failure 2");
    return true;
  });
});
