// One of two processes that call each other: sends calls, serves those of the other side, waits.
//
// A call waits for its answer and serves whatever is asked meanwhile, so that callbacks may call
// back. Promises are settled by frames of their own. What goes wrong in the crossing itself is no
// error of a program: it is handed to `cannot`, once, and everything that comes after is refused.

import { open, write } from "./node_channel.mjs";
import { CannotCross, Values } from "./node_values.mjs";

export class Peer {
  // `hooks`: cannot(why), ended(), other(frame) for frames that are no calls, lied(what) for the judge.
  constructor(side, hooks) {
    this.hooks = hooks;
    this.values = new Values(side, {
      trusted: side === "p",
      remote: (...call) => this.call(...call),
      refused: (why) => {
        throw this.hooks.cannot(new CannotCross(why));
      },
      promised: (id, promise) => this.watch(id, promise),
    });
    this.answers = new Map();
    this.asked = 0;
    this.sent = 0;
    this.heard = 0;
    this.said = new Map(); // what conversions of an object answered since anything else was asked
    this.channel = open((line) => this.got(line));
  }

  send(frame, ...values) {
    const told = values.map((value) => this.values.out(value));
    const objects = this.values.changes();
    this.sent += 1;
    write(JSON.stringify({ ...frame, v: told, o: objects }));
  }

  // Serves until there is an answer to this call.
  waited(id) {
    while (!this.answers.has(id)) this.got(this.channel.next());
    const answer = this.answers.get(id);
    this.answers.delete(id);
    return answer;
  }

  call(target, self, given, isNew, standIn) {
    let answer;
    let asked;
    try {
      const id = ++this.asked;
      this.send({ t: "call", id, f: target, n: isNew }, self, ...given);
      asked = this.values.conversions.has(target) ? JSON.stringify([target, self, given].map((each) => this.values.out(each))) : null;
      answer = this.waited(id);
    } catch (error) {
      throw this.hooks.cannot(error);
    }
    if (asked === null) this.said.clear();
    else this.compare(asked, answer);
    if (answer.works) return answer.value;
    throw withFramesOf(answer.value, standIn);
  }

  // An object that is a number one moment and another the next is none: see `lied`.
  compare(asked, { works, value }) {
    if (!works || (value !== null && typeof value === "object")) return;
    if (this.said.has(asked) && !Object.is(this.said.get(asked), value)) {
      this.hooks.lied?.("an object of the program says something else each time it is asked for its value");
    }
    this.said.set(asked, value);
  }

  watch(id, promise) {
    const tell = (works) => (value) => {
      try {
        this.send({ t: "settle", p: id, works }, value);
      } catch (error) {
        this.hooks.cannot(error);
      }
    };
    Promise.prototype.then.call(promise, tell(true), tell(false));
  }

  got(line) {
    if (line === null) {
      this.hooks.ended();
      return;
    }
    try {
      this.take(JSON.parse(line));
    } catch (error) {
      this.hooks.cannot(error);
    }
  }

  take(frame) {
    this.heard += 1;
    this.values.take(frame.o);
    this.hooks.synced?.();
    switch (frame.t) {
      case "answer":
        this.answers.set(frame.id, { works: frame.works, value: this.values.in(frame.v[0]) });
        return;
      case "call":
        this.serve(frame);
        return;
      case "settle":
        this.values.settle(frame.p, frame.works, frame.v[0]);
        return;
      default:
        this.hooks.other(frame);
    }
  }

  serve({ id, f, n, v }) {
    const [self, ...given] = v.map((each) => this.values.in(each));
    const target = this.values.objects.get(f);
    if (typeof target !== "function" || !f.startsWith(this.values.side)) throw new Error("a call of what is no function here");
    let works = true;
    let value;
    try {
      value = n ? Reflect.construct(target, given) : Reflect.apply(target, self, given);
    } catch (error) {
      works = false;
      value = error;
    }
    this.send({ t: "answer", id, works }, value);
  }
}

// An error with the frames of where it was thrown and of where the other side was called from.
function withFramesOf(error, standIn) {
  if (!(error instanceof Error) || typeof error.stack !== "string" || seen.has(error)) return error;
  seen.add(error);
  const here = {};
  Error.captureStackTrace(here, standIn);
  const frames = String(here.stack).split("\n").slice(1);
  const descriptor = Object.getOwnPropertyDescriptor(error, "stack");
  if (descriptor?.writable) error.stack = [error.stack, ...frames].join("\n");
  return error;
}

const seen = new WeakSet();
