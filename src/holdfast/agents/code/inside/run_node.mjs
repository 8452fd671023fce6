// Run a solution's tests under node and write a sealed report. Copied into the sandbox.
//
// Reads {"nonce", "limit", "code", "tests"} from stdin; with the argument `apart`, frames of the
// program's own process follow it, and the tests get stand-ins (`node_judge.mjs`) instead of the
// program: what is said of the program below then is so by itself. The tests are bundled with an assert and
// a test runner of ours, which nobody else can change: what the solution does to node's own
// changes nothing for them, what it does to the language is noticed, and every assertion that
// held is counted. The report is sealed with the nonce, which is in no file, argument or variable
// of the environment. Everything needed at the end is bound before the solution is loaded.

import { createHash, randomBytes } from "node:crypto";
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

import { SOLUTION, STUB, bundler, options, stubbed } from "./node_bundle.mjs";
import { originals } from "./node_tamper.mjs";

const MOST_TEXT = 4000;
const MOST_TESTS = 50;
const MOST_LINES = 5000;
const LATE = 5000; // milliseconds in which what comes after the last test still counts

const apart = process.argv[2] === "apart";
const given = JSON.parse(apart ? (await import("./node_channel.mjs")).firstLine() : fs.readFileSync(0, "utf8"));
const seal = createHash("sha3-256").update(given.nonce);
delete given.nonce;
const where = process.cwd();
const source = fs.readFileSync(path.join(where, given.tests), "utf8");
const hidden = `/tmp/${randomBytes(12).toString("hex")}`;
const cut = (text) => {
  const whole = String(text).trim().replaceAll(`${where}/`, "").replaceAll(`file://`, "");
  return whole.length <= MOST_TEXT ? whole : `… ${whole.slice(-MOST_TEXT)}`;
};

const HOOKS = ["before", "after", "beforeEach", "afterEach"];
const newSuite = (name) => ({ name, before: [], after: [], beforeEach: [], afterEach: [], begun: false });

// A test's arguments, in any order that node takes them in.
const parsed = (args) => ({
  name: typeof args[0] === "string" ? args[0] : (args.find((a) => typeof a === "function")?.name || "<anonymous>"),
  options: args.find((a) => a && typeof a === "object") ?? {},
  body: args.find((a) => typeof a === "function"),
});

const { apply, ownKeys } = Reflect;
const { isArray } = Array;
const Promised = Promise;
const finish = bindFinish();
const report = { passed: false, ran: [], skipped: [], failures: [], missing: [], asserts: 0, claims: false, broken: null };
const watch = { asserts: 0, tests: [], lines: new Set(), current: null, drained: null };
const { AssertionError } = createRequire(import.meta.url)("node:assert");
const placeInTests = new RegExp(`${given.tests.replaceAll(".", "\\.")}:(\\d+):(\\d+)`);
const lineInTests = new RegExp(`${given.tests.replaceAll(".", "\\.")}:(\\d+)`);
const progress = fs.openSync(path.join(where, ".progress"), "w");
const watchedAssert = watched(createRequire(import.meta.url)("node:assert"));
const replaced = originals(source, ...handles(seal));
holdExits();
process.setSourceMapsEnabled(true);
process.on("uncaughtException", (error) => stray(error));
process.on("unhandledRejection", (error) => stray(error));
process.on("beforeExit", nothingLeft);
const bridge = apart ? await connected() : null;

try {
  if (await build()) await run();
} catch (error) {
  report.broken ??= { side: "code", line: lineOf(error), text: words(error) };
}
end();

function end() {
  const name = replaced();
  if (name !== null) {
    const line = `the program replaced ${name}, which its tests rely on: that is not a solution`;
    report.broken = { side: "code", line, text: line };
  } else if (changedTests()) {
    const line = `the program changed ${given.tests}: that is not a solution`;
    report.broken = { side: "code", line, text: line };
  }
  if (bridge?.handsPromises() && report.failures.length) {
    report.cannot_cross = "a test fails whose promises the program waits for: in which order both sides go on may decide";
  }
  report.asserts = watch.asserts;
  report.passed =
    !report.broken && !report.failures.length && !report.missing.length && report.ran.length > 0 && watch.asserts > 0;
  finish(report);
}

// Nothing is left to wait for: either that is what we waited for, or a promise never settles.
function nothingLeft() {
  if (bridge && !bridge.idle()) return;
  if (watch.drained) {
    watch.drained();
    return;
  }
  fail(watch.current ?? "script", new Error("it waits for a promise that nothing will ever settle"));
  end();
}

// Waits until nothing is under way any more; not for longer than `most`, as timers may go on.
async function drain(most) {
  await new Promised((resolve) => {
    watch.drained = resolve;
    setTimeout(resolve, most).unref();
  });
  watch.drained = null;
}

function changedTests() {
  try {
    return fs.readFileSync(path.join(where, given.tests), "utf8") !== source;
  } catch {
    return true;
  }
}

// --- the program, elsewhere ---

async function connected() {
  const { CannotCross, connect } = await import("./node_judge.mjs");
  return connect({
    loading: () => note("(loading it)"),
    stray,
    lied(what) {
      (report.lies ??= []).push(what);
    },
    ended() {
      report.ended = true;
      end();
    },
    cannot(error) {
      report.cannot_cross = error instanceof CannotCross ? cut(error.message) : `a frame can't be read: ${cut(error?.message)}`;
      finish(report);
    },
  });
}

// The stand-ins' module for the tests' bundle; null if there is no program to stand in for.
async function standIns() {
  const { standInModule } = await import("./node_judge.mjs");
  const loaded = await bridge.loaded;
  if (loaded.unbuilt) {
    report.broken = { side: "code", line: cut(loaded.unbuilt.line), text: cut(loaded.unbuilt.text) };
    return null;
  }
  if ("error" in loaded) {
    notLoaded(loaded.error);
    return null;
  }
  const key = randomBytes(12).toString("hex");
  Object.defineProperty(globalThis, key, { value: { value: loaded.value, live: bridge.live } });
  return standInModule(key, loaded.names);
}

// --- building ---

async function build() {
  await makeShims();
  const esbuild = bundler();
  const tests = path.join(where, given.tests);
  const code = path.join(where, given.code);
  if (apart) esbuild.transform("").catch(() => {}); // comes up while the program is being loaded
  const standing = apart ? await standIns() : null;
  if (apart && standing === null) return false;
  const stub = !apart && fs.readFileSync(code, "utf8").trimEnd().endsWith(STUB);
  const shims = {
    name: "shims",
    setup(bundle) {
      bundle.onResolve({ filter: /^(node:)?(assert(\/strict)?|test)$/ }, (asked) => {
        if (asked.importer !== tests) return { path: asked.path, external: true };
        const name = asked.path.replace("node:", "").replace("/", "-");
        const kind = asked.kind === "require-call" ? "cjs" : "mjs";
        return { path: `${hidden}/${name}.${kind}`, external: true };
      });
      bundle.onResolve({ filter: SOLUTION }, (asked) => {
        if (apart) return { path: given.code, namespace: "program" };
        if (asked.importer === tests && stub) return { path: code, namespace: "stub" };
        return { path: code };
      });
      bundle.onLoad({ filter: /.*/, namespace: "program" }, () => ({ contents: standing }));
      bundle.onLoad({ filter: /.*/, namespace: "stub" }, () => ({
        contents: `module.exports = (${stubbed})(require(${JSON.stringify(code)}))`,
        resolveDir: where,
      }));
    },
  };
  try {
    await esbuild.build(options(tests, path.join(where, ".build", "tests.mjs"), shims));
    return true;
  } catch (error) {
    const errors = error.errors ?? [];
    const inTests = errors.length > 0 && errors[0].location?.file === given.tests;
    const words = errors.length
      ? await esbuild.formatMessages(errors, { kind: "error", color: false })
      : [String(error)];
    const side = inTests ? "tests" : "code";
    const told = (text) => cut(String(text).replaceAll(`program:${given.code}`, given.code));
    report.broken = { side, line: told(errors[0]?.text ?? error), text: told(words.join("\n")) };
    return false;
  }
}

// --- what the tests import ---

// Modules of their own in a place nobody knows, loaded before anything else is.
async function makeShims() {
  fs.mkdirSync(hidden);
  const key = randomBytes(12).toString("hex");
  const made = testing();
  globalThis[key] = { assert: watchedAssert, test: made };
  const take = `const kept = globalThis[${JSON.stringify(key)}];\n`;
  const assertNames = Object.keys(createRequire(import.meta.url)("node:assert"));
  const modules = {
    assert: ["kept.assert", assertNames],
    "assert-strict": ["kept.assert.strict", assertNames],
    test: ["kept.test", Object.keys(made)],
  };
  for (const [file, [value, names]] of Object.entries(modules)) {
    const lines = names.map((name) => `export const ${name} = all.${name};`).join("\n");
    const whole = file === "test" ? "all.test" : "all";
    const head = `${take}const all = ${value};\n`;
    fs.writeFileSync(`${hidden}/${file}.mjs`, `${head}export default ${whole};\n${lines}\n`);
    fs.writeFileSync(`${hidden}/${file}.cjs`, `${head}module.exports = ${whole};\n`);
    await import(`${hidden}/${file}.mjs`);
    createRequire(import.meta.url)(`${hidden}/${file}.cjs`);
  }
  delete globalThis[key];
}

function watched(real) {
  const counted = (original) =>
    function wrapper(...given) {
      reach(wrapper);
      let result;
      try {
        result = apply(original, real, given);
      } catch (error) {
        throw saidBySource(error, given, wrapper);
      }
      if (result instanceof Promised) {
        return result.then((value) => {
          watch.asserts += 1;
          return value;
        });
      }
      watch.asserts += 1;
      return result;
    };
  const made = counted(real);
  for (const name of Object.keys(real)) {
    const value = real[name];
    const isClass = name === "AssertionError" || name === "CallTracker" || name === "Assert";
    made[name] = typeof value === "function" && !isClass && name !== "strict" ? counted(value) : value;
  }
  made.strict = real.strict === real ? made : watched(real.strict);
  return Object.freeze(made);
}

// What `assert(expression)` says: node reads the expression where it was called, which is here.
function saidBySource(error, given, wrapper) {
  if (!isAssertion(error) || !error.generatedMessage || given.length !== 1 || error.operator !== "==") {
    return error;
  }
  const here = {};
  Error.captureStackTrace(here, wrapper);
  const expression = callAt(String(here.stack));
  if (expression === null) return error;
  const message = `The expression evaluated to a falsy value:\n\n  ${expression}\n`;
  return new AssertionError({ message, actual: given[0], expected: true, operator: "==", stackStartFn: wrapper });
}

// The text of the call in the tests that a stack begins with, if its end can be found.
function callAt(stack) {
  const at = stack.match(placeInTests);
  if (!at) return null;
  const lines = source.split("\n");
  const from = lines.slice(0, at[1] - 1).join("\n").length + (at[1] > 1 ? 1 : 0);
  const line = lines[at[1] - 1] ?? "";
  const begin = line.slice(0, at[2]).search(/\bassert\b[\w.]*$|\bassert[\w.]*\.?\w*$/);
  const start = from + (begin >= 0 ? begin : Number(at[2]) - 1);
  const opened = source.indexOf("(", start);
  if (opened < 0) return null;
  let depth = 0;
  for (let place = opened; place < source.length && place < opened + 2000; place++) {
    const character = source[place];
    if (character === "'" || character === '"' || character === "`") {
      place++;
      while (place < source.length && source[place] !== character) place += source[place] === "\\" ? 2 : 1;
    } else if (character === "(") depth++;
    else if (character === ")" && --depth === 0) return source.slice(start, place + 1);
  }
  return null;
}

// Assertions of a script, by line: one that waits for ever ends without a word.
function reach(wrapper) {
  if (watch.tests.length || watch.lines.size >= MOST_LINES) return;
  const here = {};
  Error.captureStackTrace(here, wrapper);
  const line = String(here.stack).match(lineInTests)?.[1];
  if (line) watch.lines.add(Number(line));
}

// The line of the last assertion, if it was not reached.
function unreached() {
  const last = source.split("\n").findLastIndex((line) => /^(?!\s*(\/\/|\*)).*\bassert(\.(?!fail\b)\w+)*\(/.test(line));
  return last >= 0 && watch.lines.size < MOST_LINES && !watch.lines.has(last + 1) ? last + 1 : null;
}

function testing() {
  const suites = [newSuite("")];
  const add = (kind) => (...args) => {
    const { name, options, body } = parsed(args);
    const full = [...suites.map((suite) => suite.name), name].filter(Boolean).join(" > ");
    const skip = kind === "skip" || Boolean(options.skip) || !body || suites.some((suite) => suite.skip);
    const todo = kind === "todo" || Boolean(options.todo) || suites.some((suite) => suite.todo);
    watch.tests.push({ name: full, body, options, skip, todo, suites: [...suites] });
    return Promise.resolve();
  };
  const group = (kind) => (...args) => {
    const { name, options, body } = parsed(args);
    const made = newSuite(name);
    made.skip = kind === "skip" || Boolean(options.skip);
    made.todo = kind === "todo" || Boolean(options.todo);
    suites.push(made);
    try {
      if (made.skip || !body) add("skip")(name);
      else body({ name });
    } finally {
      suites.pop();
    }
    return Promise.resolve();
  };
  const variants = (make) => Object.assign(make(""), { skip: make("skip"), todo: make("todo"), only: make("") });
  const test = variants(add);
  const describe = variants(group);
  const hook = (kind) => (body) => {
    if (typeof body === "function") suites.at(-1)[kind].push(body);
  };
  const hooks = Object.fromEntries(HOOKS.map((kind) => [kind, hook(kind)]));
  const { mock } = createRequire(import.meta.url)("node:test");
  const all = { test, it: test, describe, suite: describe, mock, ...hooks };
  Object.freeze(Object.assign(test, all));
  Object.freeze(describe);
  return Object.freeze({ ...all, skip: test.skip, todo: test.todo, only: test.only });
}

// --- running ---

async function run() {
  const url = pathToFileURL(path.join(where, ".build", "tests.mjs"));
  note("(loading it)");
  try {
    await import(url.href);
    if (!watch.tests.length) await drain(1000 * given.limit);
  } catch (error) {
    notLoaded(error);
    return;
  }
  if (!watch.tests.length) {
    const line = unreached();
    if (line) fail("script", new Error(`the tests ended and did not reach line ${line}: what they wait for never comes`));
    if (!report.failures.length) report.ran.push("script");
    return;
  }
  let open = [];
  for (const test of watch.tests) {
    await leave(open.filter((suite) => !test.suites.includes(suite)));
    open = test.suites;
    if (test.skip) {
      skipped(test.name);
      continue;
    }
    watch.current = test.name;
    note(test.name);
    await one(test);
  }
  await leave(open);
  watch.current = null;
  await drain(Math.min(1000 * given.limit, LATE));
  report.ran = report.ran.filter((name) => !report.failures.some((failure) => failure.name === name));
}

// What is thrown while the tests, or the program with them, are loaded.
function notLoaded(error) {
  if (isAssertion(error)) fail("script", error);
  else report.broken = { side: sideOf(error), line: lineOf(error), text: words(error) };
}

function skipped(name) {
  if (report.skipped.length < MOST_TESTS) report.skipped.push(name);
}

// What comes after the last test of a suite, the innermost first.
async function leave(suites) {
  for (const suite of [...suites].reverse()) {
    if (!suite.begun) continue;
    for (const hook of suite.after) {
      try {
        await called(hook, {});
      } catch (error) {
        fail(`${suite.name || "the file"}, after`, error);
      }
    }
  }
}

async function one(test) {
  const state = { name: test.name, skip: false, todo: test.todo, failed: false };
  let problem = null;
  try {
    for (const suite of test.suites) {
      if (!suite.begun) {
        suite.begun = true;
        for (const hook of suite.before) await called(hook, {});
      }
      for (const hook of suite.beforeEach) await called(hook, context(state, []));
    }
    await call(test, state);
  } catch (error) {
    problem = { error };
  }
  for (const suite of [...test.suites].reverse()) {
    for (const hook of suite.afterEach) {
      try {
        await called(hook, context(state, []));
      } catch (error) {
        problem ??= { error };
      }
    }
  }
  if (state.todo) skipped(test.name);
  else if (problem) fail(test.name, problem.error);
  else if (state.skip) skipped(test.name);
  else if (!state.failed) report.ran.push(test.name);
}

// Where a program hangs is to be seen from outside: see `verdict.py`.
function note(name) {
  fs.ftruncateSync(progress);
  fs.writeSync(progress, name, 0);
}

// Calls a function as node calls tests and hooks: with a callback if it takes one.
function called(body, context, options = {}) {
  const under = new Promised((resolve, reject) => {
    if (body.length >= 2) apply(body, context, [context, (error) => (error ? reject(error) : resolve())]);
    else resolve(apply(body, context, [context]));
  });
  const { timeout } = options;
  if (typeof timeout !== "number" || !(timeout < 2 ** 31)) return under;
  let timer;
  const late = new Promised((_, reject) => {
    timer = setTimeout(() => reject(new Error(`test timed out after ${timeout}ms`)), timeout);
  });
  return Promised.race([under, late]).finally(() => clearTimeout(timer));
}

// What a test is handed: `t`.
function context(state, later) {
  const own = newSuite("");
  const plan = { wanted: null, seen: 0 };
  const counting = {};
  for (const name of ownKeys(watchedAssert)) {
    const value = watchedAssert[name];
    if (typeof name !== "string" || typeof value !== "function") continue;
    counting[name] = (...args) => {
      plan.seen += 1;
      return value(...args);
    };
  }
  const inner = (...args) => {
    plan.seen += 1;
    const { name, options, body } = parsed(args);
    const full = `${state.name} > ${name}`;
    if (options.skip || !body) {
      skipped(full);
      return Promised.resolve();
    }
    const within = { name: full, body, options, todo: Boolean(options.todo), suites: [{ ...own, begun: true, before: [] }] };
    const running = one(within).then(() => {
      if (report.failures.some((failure) => failure.name === full)) state.failed = true;
    });
    later.push(() => running);
    return running;
  };
  const made = {
    name: state.name,
    fullName: state.name,
    assert: counting,
    signal: new AbortController().signal,
    diagnostic() {},
    runOnly() {},
    plan: (wanted) => { plan.wanted = wanted; },
    skip: () => { state.skip = true; },
    todo: () => { state.todo = true; },
    test: Object.assign(inner, { skip: (name) => skipped(`${state.name} > ${name}`), todo: () => {}, only: inner }),
    mock: createRequire(import.meta.url)("node:test").mock,
    planned: plan,
  };
  for (const kind of HOOKS) made[kind] = (hook) => (kind === "after" ? later.push(hook) : own[kind].push(hook));
  made.before = (hook) => later.push(() => {}) && called(hook, made);
  return made;
}

async function call(test, state) {
  const later = [];
  const made = context(state, later);
  const { planned } = made;
  try {
    await called(test.body, made, test.options);
  } finally {
    for (const hook of later) await hook(made);
  }
  if (planned.wanted !== null && planned.seen !== planned.wanted) {
    throw new Error(`plan expected ${planned.wanted} assertions but received ${planned.seen}`);
  }
  if (state.failed) throw new Error("a subtest failed");
}

// An error that nobody caught: of the test under way, or of one that had ended.
function stray(error) {
  fail(watch.current ?? (watch.tests.length ? "after the tests" : "script"), error);
}

function fail(name, error) {
  if (report.failures.length >= MOST_TESTS) return;
  report.failures.push({ name, line: lineOf(error), text: words(error) });
}

function lineOf(error) {
  try {
    return cut(error instanceof Error ? `${error.name}: ${error.message}` : `thrown: ${String(error)}`);
  } catch {
    return "something was thrown that can't be shown";
  }
}

function isAssertion(error) {
  return error?.code === "ERR_ASSERTION";
}

// An error with the frames of the two files; the rest is of no use to anybody.
function words(error) {
  if (!(error instanceof Error)) return lineOf(error);
  const stack = String(error.stack ?? "");
  const frames = stack
    .split("\n")
    .filter((line) => /^\s+at /.test(line))
    .filter((line) => line.includes(`${where}/${given.code}`) || line.includes(`${where}/${given.tests}`));
  return cut([lineOf(error), ...frames.slice(0, 10)].join("\n"));
}

function sideOf(error) {
  const frames = String(error?.stack ?? "").split("\n").filter((line) => /^\s+at /.test(line));
  const first = frames.find((line) => line.includes(where)) ?? "";
  if (first.includes(given.tests)) return "tests";
  return "code";
}

// --- the end ---

function holdExits() {
  const refuse = (name) =>
    function (code) {
      throw new Error(`${name}(${code ?? ""}) was called: a program may not end the tests' process`);
    };
  process.exit = refuse("process.exit");
  process.reallyExit = refuse("process.reallyExit");
  process.abort = refuse("process.abort");
}

function bindFinish() {
  const { stringify } = JSON;
  const { update, digest } = Object.getPrototypeOf(seal);
  const { writeFileSync } = fs;
  const leave = process.reallyExit.bind(process);
  const target = path.join(where, ".report");
  // By hand, as `toJSON` may be anybody's: only for strings, which have none, is JSON asked.
  const text = (value) => {
    if (typeof value === "string") return apply(stringify, null, [value]);
    if (value === null || typeof value !== "object") return `${value}`;
    let body = "";
    if (isArray(value)) {
      for (let at = 0; at < value.length; at++) body += (at ? "," : "") + text(value[at]);
      return `[${body}]`;
    }
    const names = ownKeys(value);
    for (let at = 0; at < names.length; at++) {
      body += `${at ? "," : ""}${apply(stringify, null, [names[at]])}:${text(value[names[at]])}`;
    }
    return `{${body}}`;
  };
  return (result) => {
    const body = text(result);
    apply(update, seal, [body]);
    writeFileSync(target, `${apply(digest, seal, ["hex"])}\n${body}`);
    leave(result.passed ? 0 : 1);
  };
}

// The objects behind node's hash, whose methods could be replaced as well.
function handles(hash) {
  return Object.getOwnPropertySymbols(hash)
    .map((symbol) => hash[symbol])
    .filter((value) => typeof value?.update === "function")
    .map((value) => Object.getPrototypeOf(value));
}
