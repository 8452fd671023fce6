const test = require("node:test");
const assert = require("node:assert");
const { formatMoney } = require("./solution.js");

test("dollars and cents", () => {
  assert.strictEqual(formatMoney(123450), "$1,234.50");
  assert.strictEqual(formatMoney(7), "$0.07");
});

test("millions", () => {
  assert.strictEqual(formatMoney(123456789), "$1,234,567.89");
});

test("what is owed", () => {
  assert.strictEqual(formatMoney(-5), "-$0.05");
  assert.strictEqual(formatMoney(-123450), "-$1,234.50");
});
