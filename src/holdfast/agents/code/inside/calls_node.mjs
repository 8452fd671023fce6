// The calls that tests make of a program, or what a program answers to calls. Copied into a sandbox.
//
// Reads {"code", "tests", "calls"} from stdin; `code` and `tests` are names of files. Without calls:
// runs the tests, and prints the calls that they make of its functions with plain arguments. With
// calls: makes them, and prints what came of each. Values are JSON. The last line printed is JSON.

import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const MOST_CALLS = 300;
const given = JSON.parse(fs.readFileSync(0, "utf8"));
const esbuild = createRequire("/home/user/toolchain/")("esbuild");
const where = process.cwd();
const code = path.join(where, given.code);
const calls = [];
const print = (found) => fs.writeSync(1, `\n${JSON.stringify(found)}\n`);
process.on("uncaughtException", () => {});
process.on("unhandledRejection", () => {});

if (given.calls) {
  const program = await loaded(code);
  const found = [];
  for (const [name, told] of given.calls) found.push(await answer(program, name, told));
  print(found);
  process.exit(0);
} else {
  globalThis.__recorded = recorded;
  process.on("exit", () => print(calls));
  await loaded(path.join(where, given.tests));
}

async function loaded(entry) {
  const outfile = path.join(where, ".calls", `${path.basename(entry)}.mjs`);
  const recording = {
    name: "recording",
    setup(bundle) {
      bundle.onResolve({ filter: /(^|\/)solution(\.[cm]?[jt]sx?)?$/ }, (asked) =>
        asked.kind === "entry-point" ? null : { path: code, namespace: asked.namespace === "wrapped" ? "file" : "wrapped" },
      );
      bundle.onLoad({ filter: /.*/, namespace: "wrapped" }, () => ({
        contents: `module.exports = globalThis.__recorded(require(${JSON.stringify(code)}))`,
        resolveDir: where,
      }));
    },
  };
  await esbuild.build({
    entryPoints: [entry], outfile, bundle: true, platform: "node", format: "esm", target: "node18",
    packages: "external", logLevel: "silent", plugins: [recording],
    banner: {
      js:
        'import { createRequire as __nodeRequire } from "node:module";' +
        "const require = __nodeRequire(import.meta.url);",
    },
  });
  return import(pathToFileURL(outfile).href);
}

function recorded(program) {
  const made = Object.defineProperty({}, "__esModule", { value: true });
  for (const name of Object.keys(program)) {
    const real = program[name];
    const isClass = typeof real === "function" && /^class\b/.test(Function.prototype.toString.call(real));
    made[name] = typeof real !== "function" || isClass ? real : function (...args) {
      const told = literal(args);
      if (told !== null && calls.length < MOST_CALLS && !calls.some(([n, t]) => n === name && t === told)) {
        calls.push([name, told]);
      }
      return Reflect.apply(real, this, args);
    };
  }
  return made;
}

// A value as JSON; null if that would not mean the same.
function literal(value) {
  const plain = (x) => {
    if (x === null || typeof x === "string" || typeof x === "boolean") return true;
    if (typeof x === "number") return Number.isFinite(x) && !Object.is(x, -0);
    if (Array.isArray(x)) return x.every(plain);
    if (typeof x !== "object" || Object.getPrototypeOf(x) !== Object.prototype) return false;
    return Object.values(x).every(plain);
  };
  try {
    const text = plain(value) ? JSON.stringify(value) : null;
    return text !== null && text.length < 4000 ? text : null;
  } catch {
    return null;
  }
}

async function answer(program, name, told) {
  const called = program[name] ?? program.default?.[name];
  if (typeof called !== "function") return ["missing", name];
  try {
    let value = await called(...JSON.parse(told));
    if (value !== null && typeof value === "object" && typeof value.next === "function") value = [...value].slice(0, 1000);
    if (value === undefined) return ["returns", "undefined"];
    if (typeof value === "number" && Number.isFinite(value)) value = Number(value.toPrecision(9)) + 0;
    const text = literal(value);
    return text === null ? null : ["returns", text];
  } catch (error) {
    return ["raises", String(error?.name ?? typeof error)];
  }
}
