// The program's process: bundles the program, loads it and serves it to the judge.
//
// Copied into a sandbox of its own, which holds no test. The first line it is given says which file
// the program is and how long it may take; frames follow. What it prints goes to its own output.

import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

import { STUB, bundler, options, stubbed } from "./node_bundle.mjs";
import { firstLine, write } from "./node_channel.mjs";
import { Peer } from "./node_peer.mjs";

const given = JSON.parse(firstLine());
const where = process.cwd();
const code = path.join(where, given.code);
const exit = process.reallyExit.bind(process);
const builtIns = Object.getOwnPropertyNames(globalThis)
  .filter((name) => /^[A-Z]/.test(name) && typeof globalThis[name] === "function" && globalThis[name].prototype)
  .flatMap((name) => [[name, globalThis[name]], [`${name}.prototype`, globalThis[name].prototype]])
  .concat([["globalThis", globalThis], ["Math", Math], ["JSON", JSON]]);
const known = builtIns.map(([, holder]) => new Set(Reflect.ownKeys(holder)));
let idleAsked = false;
let failed = false;

const peer = new Peer("p", {
  cannot(error) {
    const why = String(error?.message ?? error);
    if (!failed) write(JSON.stringify({ t: "cannot", why, v: [], o: [] }));
    failed = true;
    return error;
  },
  ended: () => exit(0),
  other(frame) {
    if (frame.t !== "idle?") throw new Error(`a frame of the unknown kind ${frame.t}`);
    idleAsked = true;
  },
});
process.setSourceMapsEnabled(true);
process.on("uncaughtException", (error) => tell({ t: "stray" }, error));
process.on("unhandledRejection", (error) => tell({ t: "stray" }, error));
process.on("beforeExit", () => {
  // Nothing is under way here any more: what happens next is for the judge to say.
  if (idleAsked) tell({ t: "idle", heard: peer.heard });
  idleAsked = false;
  peer.got(peer.channel.next());
  setImmediate(() => {});
});
for (const name of ["exit", "reallyExit", "abort"]) {
  process[name] = (status) => {
    throw new Error(`process.${name}(${status ?? ""}) was called: a program may not end the tests' process`);
  };
}
await load();

function tell(frame, ...values) {
  try {
    peer.send(frame, ...values);
  } catch (error) {
    peer.hooks.cannot(error);
  }
}

async function load() {
  const outfile = path.join(where, ".build", "program.mjs");
  let format;
  try {
    const built = await bundler().build(options(code, outfile));
    format = built.metafile.inputs[given.code]?.format;
  } catch (error) {
    const errors = error.errors ?? [];
    const words = errors.length ? await bundler().formatMessages(errors, { kind: "error", color: false }) : [String(error)];
    tell({ t: "unbuilt", line: errors[0]?.text ?? String(error), text: words.join("\n") });
    return;
  }
  tell({ t: "loading" });
  let exported;
  try {
    const loaded = await import(pathToFileURL(outfile).href);
    exported = format === "esm" ? loaded : (loaded.default ?? {});
  } catch (error) {
    tell({ t: "unloaded" }, error);
    return;
  }
  const added = addedBuiltIn();
  if (added !== null) {
    peer.hooks.cannot(new Error(`the program gives the language ${added}`));
    return;
  }
  if (fs.readFileSync(code, "utf8").trimEnd().endsWith(STUB)) exported = stubbed(exported);
  const names = format === "esm" ? Object.keys(exported) : null;
  tell({ t: "loaded", names }, exported);
}

function addedBuiltIn() {
  for (const [at, [name, holder]] of builtIns.entries()) {
    for (const key of Reflect.ownKeys(holder)) {
      if (!known[at].has(key)) return `${name}.${String(key)}`;
    }
  }
  return null;
}
