// Run a file of tests against many programs, each in a process of its own. Copied into a sandbox.
//
// Reads {"code", "tests", "programs", "at_once", "seconds"} from stdin; `code` and `tests` are names
// of files. Each program is bundled with the tests and run by plain node. The first is the one that
// passes: it says how long a run may take. Prints one line of JSON: for each program whether the
// tests refused it, or null for those that the time did not allow.

import { spawn } from "node:child_process";
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

const SLOWER = 5; // a mutant may take so many times what the program takes; then it hangs
const LEAST = 2000;
const MOST = 20000;
const esbuild = createRequire("/home/user/toolchain/")("esbuild");
const given = JSON.parse(fs.readFileSync(0, "utf8"));
const where = process.cwd();
const tests = path.join(where, given.tests);
const ends = Date.now() + 1000 * given.seconds;

const found = given.programs.map(() => null);
const began = Date.now();
found[0] = await refused(0, MOST);
const limit = Math.min(Math.max(SLOWER * (Date.now() - began), LEAST), MOST);
if (found[0] === false) {
  let next = 1;
  const work = async () => {
    while (next < given.programs.length && Date.now() < ends) {
      const number = next++;
      found[number] = await refused(number, limit);
    }
  };
  await Promise.all(Array.from({ length: given.at_once }, work));
}
process.stdout.write(`${JSON.stringify(found)}\n`, () => process.exit(0));

// Whether the tests fail, or do not end, with this program.
async function refused(number, most) {
  const folder = path.join(where, ".mutants", String(number));
  fs.mkdirSync(folder, { recursive: true });
  const bundle = path.join(folder, "tests.mjs");
  try {
    await built(given.programs[number], bundle);
  } catch {
    return true; // what can't be bundled is no program
  }
  const child = spawn(process.execPath, [bundle], { stdio: "ignore", detached: true, cwd: folder });
  return new Promise((resolve) => {
    const timer = setTimeout(() => {
      resolve(true);
      try {
        process.kill(-child.pid, "SIGKILL");
      } catch {
        // it has just ended by itself
      }
    }, most);
    child.on("exit", (code) => {
      clearTimeout(timer);
      resolve(code !== 0);
    });
  });
}

function built(program, outfile) {
  const one = {
    name: "one",
    setup(bundle) {
      bundle.onResolve({ filter: /(^|\/)solution(\.[cm]?[jt]sx?)?$/ }, () => ({
        path: path.join(where, given.code),
        namespace: "program",
      }));
      bundle.onLoad({ filter: /.*/, namespace: "program" }, () => ({
        contents: program,
        resolveDir: where,
        loader: given.code.endsWith(".ts") ? "ts" : "js",
      }));
    },
  };
  return esbuild.build({
    entryPoints: [tests],
    outfile,
    bundle: true,
    platform: "node",
    format: "esm",
    target: "node18",
    packages: "external",
    logLevel: "silent",
    plugins: [one],
    banner: {
      js:
        'import { createRequire as __nodeRequire } from "node:module";' +
        "const require = __nodeRequire(import.meta.url);",
    },
  });
}
