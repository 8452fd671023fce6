// The judge's end of the bridge: the program as a module of stand-ins, for tests to import.

import { Peer } from "./node_peer.mjs";
import { CannotCross } from "./node_values.mjs";

export { CannotCross };

// `hooks`: cannot(error) and ended() never return; lied(what) and stray(error) are noted;
// loading() is told when the program itself begins to run.
export function connect(hooks) {
  const found = {};
  const live = [];
  let idleAt = -1; // how many frames of ours it had heard when it last had nothing to do
  let loading = false;
  found.loaded = new Promise((resolve) => {
    found.resolve = resolve;
  });
  const peer = new Peer("j", {
    cannot: hooks.cannot,
    lied: hooks.lied,
    ended: () => (loading ? hooks.ended() : hooks.cannot(new CannotCross("the program's process did not start"))),
    synced: () => live.forEach((update) => update()),
    other(frame) {
      switch (frame.t) {
        case "loading":
          loading = true;
          hooks.loading();
          return;
        case "loaded":
          found.resolve({ names: frame.names?.map(String) ?? null, value: peer.values.in(frame.v[0]) });
          return;
        case "unbuilt":
          found.resolve({ unbuilt: { line: String(frame.line), text: String(frame.text) } });
          return;
        case "unloaded":
          found.resolve({ error: peer.values.in(frame.v[0]) });
          return;
        case "stray":
          hooks.stray(peer.values.in(frame.v[0]));
          return;
        case "cannot":
          throw new CannotCross(String(frame.why));
        case "idle":
          idleAt = frame.heard;
          peer.channel.release();
          return;
      }
      throw new Error("a frame of an unknown kind");
    },
  });
  return {
    loaded: found.loaded,
    live,
    // Whether the program waits for promises of the tests: their order is not that of one process.
    handsPromises: () => peer.values.handsPromises,
    // Whether nothing is under way on the other side either; if that is not known, it is asked.
    idle() {
      if (idleAt === peer.sent) return true;
      peer.send({ t: "idle?" });
      peer.channel.hold();
      return false;
    },
  };
}

// The text of a module that exports the stand-ins, which are found at globalThis[key].
export function standInModule(key, names) {
  const all = `globalThis[${JSON.stringify(key)}]`;
  if (names === null) return `module.exports = ${all}.value;\n`;
  const places = names.map((name) => `value[${JSON.stringify(name)}]`);
  return [
    `const { value, live } = ${all};`,
    ...places.map((place, at) => `let e${at} = ${place};`),
    `live.push(() => { ${places.map((place, at) => `e${at} = ${place};`).join(" ")} });`,
    `export { ${names.map((name, at) => `e${at} as ${JSON.stringify(name)}`).join(", ")} };`,
  ].join("\n");
}
