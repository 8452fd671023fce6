// Run a solution's tests under node and write a sealed report. Copied into the sandbox.
//
// Reads {"nonce", "limit", "code", "tests"} from stdin. The tests are bundled with an assert and
// a test runner of ours, which nobody else can reach: what the solution does to node's own
// changes nothing for them, and every assertion that held is counted. The report is sealed with
// the nonce, which is in no file, argument or variable of the environment. Everything needed at
// the end is bound before the solution is loaded.

import { createHmac, randomBytes } from "node:crypto";
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const MOST_TEXT = 4000;
const MOST_TESTS = 50;
const HOLLOW = "/* holdfast: hollow */";
const TOOLCHAIN = "/home/user/toolchain/";

const given = JSON.parse(fs.readFileSync(0, "utf8"));
const seal = createHmac("sha256", given.nonce);
delete given.nonce;
const where = process.cwd();
const hidden = `/tmp/${randomBytes(12).toString("hex")}`;
const cut = (text) => {
  const whole = String(text).trim().replaceAll(`${where}/`, "").replaceAll(`file://`, "");
  return whole.length <= MOST_TEXT ? whole : `… ${whole.slice(-MOST_TEXT)}`;
};

const finish = bindFinish();
const report = { passed: false, ran: [], failures: [], missing: [], asserts: 0, broken: null };
const watch = { asserts: 0, tests: [], current: null };
holdExits();
process.setSourceMapsEnabled(true);
process.on("uncaughtException", (error) => stray(error));
process.on("unhandledRejection", (error) => stray(error));

if (await build()) {
  await run();
}
report.asserts = watch.asserts;
report.passed =
  !report.broken && !report.failures.length && !report.missing.length && watch.asserts > 0;
finish(report);

// --- building ---

async function build() {
  await makeShims();
  const esbuild = createRequire(TOOLCHAIN)("esbuild");
  const tests = path.join(where, given.tests);
  const code = path.join(where, given.code);
  const hollow = fs.readFileSync(code, "utf8").trimEnd().endsWith(HOLLOW);
  const shims = {
    name: "shims",
    setup(bundle) {
      bundle.onResolve({ filter: /^(node:)?(assert(\/strict)?|test)$/ }, (asked) => {
        if (asked.importer !== tests) return { path: asked.path, external: true };
        const name = asked.path.replace("node:", "").replace("/", "-");
        const kind = asked.kind === "require-call" ? "cjs" : "mjs";
        return { path: `${hidden}/${name}.${kind}`, external: true };
      });
      bundle.onResolve({ filter: /(^|\/)solution(\.[cm]?[jt]sx?)?$/ }, (asked) => {
        if (asked.importer === tests && hollow) return { path: code, namespace: "hollow" };
        return { path: code };
      });
      bundle.onLoad({ filter: /.*/, namespace: "hollow" }, () => ({
        contents: `module.exports = (${hollowed})(require(${JSON.stringify(code)}))`,
        resolveDir: where,
      }));
    },
  };
  try {
    await esbuild.build({
      entryPoints: [tests],
      outfile: path.join(where, ".build", "tests.mjs"),
      bundle: true,
      platform: "node",
      format: "esm",
      target: "node18",
      packages: "external",
      sourcemap: "inline",
      sourcesContent: true,
      logLevel: "silent",
      plugins: [shims],
      banner: {
        js:
          'import { createRequire as __nodeRequire } from "node:module";' +
          "const require = __nodeRequire(import.meta.url);",
      },
    });
    return true;
  } catch (error) {
    const errors = error.errors ?? [];
    const inTests = errors.length > 0 && errors[0].location?.file === given.tests;
    const words = errors.length
      ? await esbuild.formatMessages(errors, { kind: "error", color: false })
      : [String(error)];
    const side = inTests ? "tests" : "code";
    report.broken = { side, line: cut(errors[0]?.text ?? error), text: cut(words.join("\n")) };
    return false;
  }
}

// Runs inside the bundle: everything callable that a module exports, replaced by what raises.
function hollowed(real) {
  const raise = function () {
    throw new Error("hollow");
  };
  const exported = {};
  for (const name of Object.keys(real)) {
    exported[name] = typeof real[name] === "function" ? raise : real[name];
  }
  if (typeof real === "function") return Object.assign(raise, exported);
  if ("__esModule" in real || "default" in exported) {
    Object.defineProperty(exported, "__esModule", { value: true });
  }
  return exported;
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
    assert: ["kept.assert(false)", assertNames],
    "assert-strict": ["kept.assert(true)", assertNames],
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

function watchedAssert(strict) {
  const real = createRequire(import.meta.url)("node:assert");
  return watched(strict ? real.strict : real);
}

function watched(real) {
  const counted = (original) =>
    function (...given) {
      const result = original(...given);
      if (result instanceof Promise) {
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
  return made;
}

function testing() {
  const suites = [{ name: "", before: [], after: [], beforeEach: [], afterEach: [] }];
  const parsed = (args) => ({
    name: typeof args[0] === "string" ? args[0] : (args.find((a) => typeof a === "function")?.name || "test"),
    options: args.find((a) => a && typeof a === "object") ?? {},
    body: args.find((a) => typeof a === "function"),
  });
  const add = (skipped) => (...args) => {
    const { name, options, body } = parsed(args);
    const full = [...suites.map((suite) => suite.name), name].filter(Boolean).join(" > ");
    const skip = skipped || options.skip || options.todo || !body;
    watch.tests.push({ name: full, body, skip, suites: [...suites] });
    return Promise.resolve();
  };
  const test = Object.assign(add(false), { skip: add(true), todo: add(true), only: add(false) });
  const describe = Object.assign(
    (...args) => {
      const { name, body } = parsed(args);
      suites.push({ name, before: [], after: [], beforeEach: [], afterEach: [] });
      try {
        body?.();
      } finally {
        suites.pop();
      }
    },
    { skip: (...args) => add(true)(parsed(args).name), todo: (...args) => add(true)(parsed(args).name) },
  );
  const hook = (kind) => (body) => suites.at(-1)[kind].push(body);
  Object.assign(test, { test, it: test, describe, suite: describe });
  const { mock } = createRequire(import.meta.url)("node:test");
  const hooks = ["before", "after", "beforeEach", "afterEach"].map((kind) => [kind, hook(kind)]);
  return { test, it: test, describe, suite: describe, mock, ...Object.fromEntries(hooks) };
}

// --- running ---

async function run() {
  const url = pathToFileURL(path.join(where, ".build", "tests.mjs"));
  try {
    await import(url.href);
  } catch (error) {
    if (isAssertion(error)) fail("script", error);
    else report.broken = { side: sideOf(error), line: lineOf(error), text: words(error) };
    return;
  }
  if (!watch.tests.length) {
    report.ran.push("script");
    return;
  }
  const begun = new Set();
  for (const test of watch.tests) {
    if (test.skip) {
      if (report.missing.length < MOST_TESTS) report.missing.push(test.name);
      continue;
    }
    watch.current = test.name;
    try {
      for (const suite of test.suites) {
        if (!begun.has(suite)) for (const hook of suite.before) await hook();
        begun.add(suite);
        for (const hook of suite.beforeEach) await hook();
      }
      await call(test.body, test.name);
      for (const suite of test.suites) for (const hook of suite.afterEach) await hook();
      if (!report.failures.some((failure) => failure.name === test.name)) report.ran.push(test.name);
    } catch (error) {
      fail(test.name, error);
    }
  }
  for (const suite of begun) {
    for (const hook of suite.after) {
      try {
        await hook();
      } catch (error) {
        fail("after", error);
      }
    }
  }
}

async function call(body, name) {
  const context = {
    name,
    diagnostic() {},
    skip() {
      report.missing.push(name);
    },
    todo() {
      report.missing.push(name);
    },
    test: async (inner, ...rest) => call(rest.find((a) => typeof a === "function"), `${name} > ${inner}`),
    mock: createRequire(import.meta.url)("node:test").mock,
  };
  if (body.length >= 2) {
    return new Promise((resolve, reject) => body(context, (error) => (error ? reject(error) : resolve())));
  }
  return body(context);
}

function stray(error) {
  fail(watch.current ?? "script", error);
}

function fail(name, error) {
  if (report.failures.length >= MOST_TESTS) return;
  report.failures.push({ name, line: lineOf(error), text: words(error) });
}

function lineOf(error) {
  return cut(error instanceof Error ? `${error.name}: ${error.message}` : `thrown: ${String(error)}`);
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
  const { apply } = Reflect;
  const { writeFileSync } = fs;
  const leave = process.reallyExit.bind(process);
  const target = path.join(where, ".report");
  return (result) => {
    const body = stringify(result);
    apply(update, seal, [body]);
    writeFileSync(target, `${apply(digest, seal, ["hex"])}\n${body}`);
    leave(result.passed ? 0 : 1);
  };
}
