import assert from "node:assert";
import { camelCase } from "./solution.js";

assert.strictEqual(camelCase("hello big world"), "helloBigWorld");
assert.strictEqual(camelCase("SOME_constant"), "someConstant");
assert.strictEqual(camelCase("--margin-left "), "marginLeft");
assert.strictEqual(camelCase(""), "");
