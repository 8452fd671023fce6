// What a program replaced of the language itself: `JSON.stringify`, `Array.prototype.every` …
//
// Tests rely on these, and so does the runner. The functions of each built-in object are
// remembered before the program is loaded. New ones are fine (somebody may well be asked to give
// arrays a method), but for those that change how values are compared, awaited or written down.
// Nothing here calls a method or walks an iterator once the program may have replaced it.

const { apply, getOwnPropertyDescriptor: descriptor, getPrototypeOf: above, ownKeys } = Reflect;
const { test } = RegExp.prototype;

const GLOBALS = [
  "Object", "Function", "Array", "Number", "Boolean", "String", "Symbol", "BigInt", "Math", "JSON",
  "Reflect", "Promise", "Proxy", "Map", "Set", "WeakMap", "WeakSet", "Date", "RegExp", "Error",
  "TypeError", "RangeError", "SyntaxError", "ReferenceError", "AggregateError", "ArrayBuffer",
  "Uint8Array", "Float64Array", "Int32Array", "DataView", "Intl", "Atomics", "parseInt",
  "parseFloat", "isNaN", "isFinite", "structuredClone", "queueMicrotask",
];
const WATCHED = ["Object", "Array", "String", "Number", "Boolean", "Function", "Promise"];
const FORBIDDEN = /^(toJSON|then|\d+)$/;

// The properties that tests set by themselves, as far as their text tells.
function setByTests(source) {
  const found = new Set();
  for (const match of source.matchAll(/[.\]](\w+)\s*=(?![=>])/g)) found.add(match[1]);
  for (const match of source.matchAll(/mock\s*\.\s*\w+\([^,()]*,\s*["'`](\w+)["'`]/g)) found.add(match[1]);
  if (/mock\s*\.\s*timers|useFakeTimers/.test(source)) found.add("Date").add("queueMicrotask");
  return found;
}

// Remembers everything; returns a function that tells the name of something that has changed.
export function originals(source, ...more) {
  const kept = [];
  const exempt = setByTests(source);
  const keep = (place, holder, key) => {
    const { value, get, set } = descriptor(holder, key);
    if (typeof value !== "function" && !get && !set && place !== "") return;
    if (typeof key === "string" && exempt.has(key)) return;
    const name = typeof key === "symbol" ? `[${String(key)}]` : `.${key}`;
    kept.push({ name: `${place}${name}`.replace(/^\./, ""), holder, key, value, get, set });
  };
  const keepAll = (place, holder) => {
    for (const key of ownKeys(holder)) keep(place, holder, key);
  };
  for (const name of GLOBALS) {
    const value = globalThis[name];
    if (value === undefined) continue;
    keep("", globalThis, name);
    keepAll(name, value);
    if (typeof value === "function" && value.prototype) keepAll(`${name}.prototype`, value.prototype);
  }
  const iterators = [[][Symbol.iterator](), ""[Symbol.iterator](), new Map().keys(), new Set().keys()];
  iterators.push("".matchAll(/x/g));
  for (const each of iterators) keepAll("an iterator", above(each));
  keepAll("every iterator", above(above(iterators[0])));
  keepAll("every generator", above(function* () {}).prototype);
  keepAll("every typed array", above(Uint8Array.prototype));
  for (const each of more) keepAll("a handle of node's", each);
  const watched = WATCHED.map((name) => [`${name}.prototype`, globalThis[name].prototype]);
  const known = watched.map(([, holder]) => ownKeys(holder).length);
  return () => changed(kept) ?? added(watched, known);
}

function changed(kept) {
  for (let at = 0; at < kept.length; at++) {
    const { name, holder, key, value, get, set } = kept[at];
    const now = descriptor(holder, key);
    if (now === undefined || now.value !== value || now.get !== get || now.set !== set) return name;
  }
  return null;
}

function added(watched, known) {
  for (let at = 0; at < watched.length; at++) {
    const place = watched[at][0];
    const keys = ownKeys(watched[at][1]);
    if (keys.length === known[at]) continue;
    for (let key = 0; key < keys.length; key++) {
      if (typeof keys[key] === "string" && apply(test, FORBIDDEN, [keys[key]])) return `${place}.${keys[key]}`;
    }
  }
  return null;
}
