// How programs and tests of JavaScript and TypeScript are bundled, in whichever process.

import { createRequire } from "node:module";

const TOOLCHAIN = "/home/user/toolchain/";
export const SOLUTION = /(^|\/)solution(\.[cm]?[jt]sx?)?$/;
export const STUB = "/* holdfast: stub */";

export function bundler() {
  return createRequire(TOOLCHAIN)("esbuild");
}

export function options(entry, outfile, ...plugins) {
  return {
    entryPoints: [entry],
    outfile,
    bundle: true,
    platform: "node",
    format: "esm",
    target: "node18",
    packages: "external",
    sourcemap: "inline",
    sourcesContent: true,
    logLevel: "silent",
    metafile: true,
    keepNames: true, // a class that refers to itself would be called _Name otherwise
    plugins,
    banner: {
      js:
        'import { createRequire as __nodeRequire } from "node:module";' +
        "const require = __nodeRequire(import.meta.url);",
    },
  };
}

// Everything callable that a module exports, replaced by what raises. Its text also runs in bundles.
export function stubbed(real) {
  const raise = function () {
    throw new Error("stub");
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
