import { describe, it, beforeEach } from "node:test";
import assert from "node:assert/strict";
import { Emitter } from "./solution.ts";

describe("Emitter", () => {
  let emitter: Emitter;
  let heard: string[];

  beforeEach(() => {
    emitter = new Emitter();
    heard = [];
  });

  it("calls listeners in order", () => {
    emitter.on("x", (value) => heard.push(`a${value}`));
    emitter.on("x", (value) => heard.push(`b${value}`));
    emitter.emit("x", 1);
    assert.deepEqual(heard, ["a1", "b1"]);
  });

  it("calls everybody although one leaves meanwhile", () => {
    const leave = emitter.on("x", () => {
      heard.push("first");
      leave();
    });
    emitter.on("x", () => heard.push("second"));
    emitter.emit("x");
    assert.equal(heard.join(), "first,second");
  });

  it("leaving twice removes nobody else", () => {
    const leave = emitter.on("x", () => heard.push("gone"));
    emitter.on("x", () => heard.push("stays"));
    leave();
    leave();
    emitter.emit("x");
    assert.equal(heard.join(), "stays");
  });
});
