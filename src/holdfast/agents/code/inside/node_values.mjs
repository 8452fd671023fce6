// Values as they cross between two processes, in both directions.
//
// Plain data crosses by value. What has an identity is known on both sides by one id: containers,
// instances, errors and dates are twins, each a true object of its kind, and every frame brings
// along those that have changed. Functions stay where they are; the other side has a stand-in that
// calls. Classes are stand-ins with the same names, methods and parents. No property is ever asked
// for by name from the other side, so nothing can be reached that was not handed over.

import { AssertionError } from "node:assert";
import { types } from "node:util";

const MOST_OBJECTS = 20000;
const WELL_KNOWN = new Map(
  Reflect.ownKeys(Symbol).filter((key) => typeof Symbol[key] === "symbol").map((key) => [Symbol[key], key]),
);
const ITERATOR = Object.getPrototypeOf(Object.getPrototypeOf([][Symbol.iterator]()));
const ASYNC_ITERATOR = Object.getPrototypeOf(Object.getPrototypeOf(async function* () {}.prototype));
const ITERATOR_TAGS = /^(Array|String|RegExp String|Map|Set|Segmenter String|Iterator Helper|Wrap For Valid) Iterator$|^Iterator Helper$/;
const TYPED = ["Int8Array", "Uint8Array", "Uint8ClampedArray", "Int16Array", "Uint16Array", "Int32Array",
  "Uint32Array", "Float32Array", "Float64Array", "BigInt64Array", "BigUint64Array"];
// Functions of the language that mean the same on either side, and can run no text as code.
const SAME = ["Object", "Array", "Number", "String", "Boolean", "Symbol", "BigInt", "Date", "RegExp", "Map", "Set",
  "Error", "TypeError", "RangeError", "SyntaxError", "ReferenceError", "EvalError", "URIError", "AggregateError",
  "Promise", "parseInt", "parseFloat", "isNaN", "isFinite", "ArrayBuffer", "encodeURIComponent",
  "decodeURIComponent", ...TYPED];
const CONVERSIONS = new Set(["valueOf", "toString", "toJSON", "toLocaleString", Symbol.toPrimitive]);
const DATA = new Set(["object", "array", "map", "set", "date", "regexp", "error", "bytes"]);
const FUNCTIONS = new Set(["function", "class"]);

const builtins = new Map(); // prototypes of the language, by name
const names = new Map();
for (const name of Object.getOwnPropertyNames(globalThis)) {
  if (name === "GLOBAL" || name === "root" || /^[a-z]/.test(name)) continue;
  const { value } = Object.getOwnPropertyDescriptor(globalThis, name);
  if (typeof value === "function" && value.prototype && !names.has(value.prototype)) keep(name, value.prototype);
}
keep("AssertionError", AssertionError.prototype);
keep("Buffer", Buffer.prototype);
keep("AsyncFunction", Object.getPrototypeOf(async () => {}));
keep("GeneratorFunction", Object.getPrototypeOf(function* () {}));
keep("AsyncGeneratorFunction", Object.getPrototypeOf(async function* () {}));
const sameFunctions = new Map(SAME.map((name) => [globalThis[name], name]));
for (const key of Object.getOwnPropertyNames(Math)) {
  if (typeof Math[key] === "function") sameFunctions.set(Math[key], `Math.${key}`);
}
for (const key of ["parse", "stringify"]) sameFunctions.set(JSON[key], `JSON.${key}`);
const functionsByName = new Map([...sameFunctions].map(([value, name]) => [name, value]));

function keep(name, prototype) {
  names.set(prototype, name);
  builtins.set(name, prototype);
}

export class CannotCross extends Error {}

// One side's table. `side` is the prefix of its ids; `remote` makes calls; `promised` tells that a
// promise of ours has been handed over; `refused` ends what can't cross; `trusted` says that natives may be called by the other side.
export class Values {
  constructor(side, { remote, promised, refused, trusted }) {
    Object.assign(this, { side, remote, promised, refused, trusted });
    this.ids = new Map();
    this.objects = new Map();
    this.kept = new Map(); // what the other side knows of each object
    this.conversions = new Set();
    this.resolvers = new Map();
    this.count = 0;
    this.handsPromises = false; // whether the other side waits for promises of ours
    this.fresh = [];
  }

  // --- sending ---

  // A value as it crosses; objects that the other side does not know yet are queued.
  out(value) {
    switch (typeof value) {
      case "string":
      case "boolean":
        return value;
      case "undefined":
        return ["u"];
      case "number":
        return Number.isFinite(value) && !Object.is(value, -0) ? value : ["n", Object.is(value, -0) ? "-0" : `${value}`];
      case "bigint":
        return ["b", `${value}`];
      case "symbol":
        return this.outSymbol(value);
      default:
        return value === null ? null : this.outObject(value);
    }
  }

  outSymbol(value) {
    if (WELL_KNOWN.has(value)) return ["w", WELL_KNOWN.get(value)];
    if (Symbol.keyFor(value) !== undefined) return ["k", Symbol.keyFor(value)];
    return ["s", this.ids.get(value) ?? this.add(value), value.description ?? null];
  }

  outObject(value) {
    const known = this.ids.get(value);
    if (known !== undefined) return ["o", known];
    if (sameFunctions.has(value)) return ["f", sameFunctions.get(value)];
    if (names.has(value)) return ["p", names.get(value)];
    const id = this.add(value);
    this.fresh.push(id);
    return ["o", id];
  }

  add(value, id = `${this.side}${++this.count}`) {
    if (this.objects.size > MOST_OBJECTS) throw new CannotCross("more objects pass between tests and program than can be kept equal");
    this.ids.set(value, id);
    this.objects.set(id, value);
    return id;
  }

  // What the other side has to be told before it reads a frame: new objects, and changed ones.
  changes() {
    const told = [];
    for (const [id, before] of this.kept) {
      if (isUnchanged(this.objects.get(id), before)) continue;
      if (FUNCTIONS.has(before.kind) && !id.startsWith(this.side)) {
        throw new CannotCross(`the tests change ${this.objects.get(id).name || "a function"}, which is the program's`);
      }
      this.kept.set(id, snapshot(this.objects.get(id), before.kind));
      told.push([id, ...this.described(this.objects.get(id), before.kind)]);
    }
    while (this.fresh.length) {
      const id = this.fresh.shift();
      const value = this.objects.get(id);
      const kind = this.kindOf(value);
      told.push([id, ...this.described(value, kind)]);
      if (DATA.has(kind) || kind === "module" || (this.trusted && FUNCTIONS.has(kind))) {
        this.kept.set(id, snapshot(value, kind));
      }
    }
    return told;
  }

  kindOf(value) {
    if (types.isModuleNamespaceObject(value)) return "module";
    if (typeof value === "function") return this.kindOfFunction(value);
    if (types.isProxy(value)) throw new CannotCross("a Proxy passes between tests and program");
    if (Array.isArray(value)) return "array";
    if (types.isMap(value)) return "map";
    if (types.isSet(value)) return "set";
    if (types.isDate(value)) return "date";
    if (types.isRegExp(value)) return "regexp";
    if (types.isNativeError(value)) return "error";
    if (types.isPromise(value)) return "promise";
    if (types.isTypedArray(value)) {
      if (types.isSharedArrayBuffer(value.buffer)) throw new CannotCross("shared memory passes between tests and program");
      return "bytes";
    }
    if (types.isGeneratorObject(value) || isBuiltInIterator(value)) return "iterator";
    if (types.isWeakMap(value) || types.isWeakSet(value) || types.isAnyArrayBuffer(value) || types.isDataView(value) ||
        types.isBoxedPrimitive(value) || types.isArgumentsObject(value) || types.isExternal(value) || isOpaque(value)) {
      throw new CannotCross(`${nameOf(value)} passes between tests and program`);
    }
    return "object";
  }

  kindOfFunction(value) {
    const proxied = types.isProxy(value);
    const text = proxied ? "" : Function.prototype.toString.call(value);
    if (!this.trusted && /\[native code\]\s*\}$/.test(text) && !value.name.startsWith("bound ")) {
      throw new CannotCross(`the tests hand ${value.name || "a function"} of the language to the program`);
    }
    if (!/^class\b/.test(text)) return "function";
    if (Object.hasOwn(value, Symbol.hasInstance)) throw new CannotCross(`${value.name} decides by itself what its instances are`);
    return "class";
  }

  described(value, kind) {
    switch (kind) {
      case "module":
        return ["module", Reflect.ownKeys(value).filter((key) => typeof key === "string").map((key) => [key, this.out(value[key])])];
      case "array":
        return ["array", this.proto(value), extensible(value),
          Array.from({ length: value.length }, (_, at) => (Object.hasOwn(value, at) ? this.out(value[at]) : ["h"])),
          this.props(value, (key) => key === "length" || isIndex(key))];
      case "map":
        return ["map", this.proto(value), extensible(value), [...Map.prototype.entries.call(value)].map(([k, v]) => [this.out(k), this.out(v)]), this.props(value)];
      case "set":
        return ["set", this.proto(value), extensible(value), [...Set.prototype.values.call(value)].map((each) => this.out(each)), this.props(value)];
      case "date":
        return ["date", this.proto(value), extensible(value), this.out(Date.prototype.getTime.call(value)), this.props(value)];
      case "regexp":
        return ["regexp", this.proto(value), extensible(value), [value.source, value.flags, value.lastIndex], this.props(value, (key) => key === "lastIndex")];
      case "error":
        return ["error", this.proto(value), extensible(value), textOf(value.stack), this.props(value, (key) => key === "stack")];
      case "bytes":
        return ["bytes", this.proto(value), extensible(value), [value[Symbol.toStringTag], Buffer.isBuffer(value), bytesOf(value).toString("base64")], []];
      case "object":
        return ["object", this.proto(value), extensible(value), null, this.props(value)];
      case "function":
      case "class":
        return this.describedFunction(value, kind);
      case "promise":
        this.handsPromises = true;
        this.promised(this.ids.get(value), value);
        return ["promise"];
      case "iterator": {
        const method = (name) => (typeof value[name] === "function" ? this.out(own((...given) => value[name](...given))) : null);
        return ["iterator", value[Symbol.toStringTag] ?? "", Symbol.asyncIterator in value, method("next"), method("return"), method("throw")];
      }
    }
  }

  describedFunction(value, kind) {
    const skip = (key) => key === "length" || key === "name" || key === "prototype" || key === "arguments" || key === "caller";
    const above = Object.getPrototypeOf(value);
    const about = {
      name: textOf(value.name),
      length: Number(value.length) || 0,
      above: above === Function.prototype ? null : this.out(above),
      props: this.trusted || kind === "class" ? this.props(value, skip) : [],
    };
    const { prototype } = value;
    if (types.isProxy(value) || prototype === null || typeof prototype !== "object" || Object.hasOwn(value, "prototype") === false) {
      return [kind, about];
    }
    if (types.isGeneratorFunction(value)) return [kind, about];
    about.proto = this.proto(prototype);
    about.members = this.props(prototype, (key) => key === "constructor");
    return [kind, about];
  }

  // The prototype of an object: of the language, of a class or function, or an object like others.
  proto(value) {
    const prototype = Object.getPrototypeOf(value);
    if (prototype === null) return null;
    if (names.has(prototype)) return ["p", names.get(prototype)];
    const made = Object.getOwnPropertyDescriptor(prototype, "constructor")?.value;
    if (typeof made === "function" && made.prototype === prototype && !this.ids.has(prototype)) return ["c", this.out(made)];
    return this.out(prototype);
  }

  props(value, skip = () => false) {
    const told = [];
    for (const key of Reflect.ownKeys(value)) {
      if (skip(key)) continue;
      const { get, set, value: held, enumerable, writable, configurable } = Object.getOwnPropertyDescriptor(value, key);
      const flags = (enumerable ? 1 : 0) | (writable ? 2 : 0) | (configurable ? 4 : 0);
      told.push(get || set ? [this.out(key), flags | 8, this.out(get), this.out(set)] : [this.out(key), flags, this.out(held)]);
    }
    return told;
  }

  // --- receiving ---

  in(told) {
    if (told === null || typeof told !== "object") return told;
    const [tag, body, more] = told;
    switch (tag) {
      case "u":
        return undefined;
      case "n":
        return Number(body);
      case "b":
        return BigInt(body);
      case "w":
        return Symbol[body];
      case "k":
        return Symbol.for(body);
      case "s":
        if (!this.objects.has(body)) this.add(Symbol(more ?? undefined), body);
        return this.objects.get(body);
      case "f":
        return known(functionsByName, body);
      case "p":
        return known(builtins, body);
      case "o":
        return known(this.objects, body);
    }
    throw new Error(`a value of the unknown kind ${String(tag)}`);
  }

  // Makes the new objects of a frame, then fills them: they may refer to one another.
  take(told) {
    const filled = new Map(told.map((each) => [each[0], each]));
    const ready = new Set();
    // A class comes after its parent, an instance after its class.
    const make = (id) => {
      if (this.objects.has(id) || !filled.has(id) || ready.has(id)) return;
      ready.add(id);
      for (const need of needed(filled.get(id))) make(need);
      this.add(this.made(filled.get(id)), id);
    };
    for (const [id] of told) {
      if (!this.objects.has(id)) make(id);
      else this.refuseConflict(id, filled.get(id));
    }
    for (const each of told) this.fill(each);
    for (const [id, kind] of told) {
      const isTheirs = FUNCTIONS.has(kind) && !this.trusted;
      if (DATA.has(kind) || isTheirs) this.kept.set(id, snapshot(this.objects.get(id), kind));
    }
  }

  // Whoever changes an object that was changed here as well, since we last spoke, can't know it.
  refuseConflict(id, [, kind]) {
    const before = this.kept.get(id);
    const own = id.startsWith(this.side);
    if (own && !DATA.has(kind)) throw new Error("a change of what the other side does not own");
    if (before && before.kind !== kind) throw new Error("an object that changes its kind");
    if (before && !isUnchanged(this.objects.get(id), before)) {
      throw new CannotCross("tests and program change the same object at the same time");
    }
  }

  made([id, kind, ...about]) {
    switch (kind) {
      case "module":
        return {};
      case "array":
        return [];
      case "map":
        return new Map();
      case "set":
        return new Set();
      case "date":
        return new Date(0);
      case "regexp":
        return new RegExp(about[2][0], about[2][1]);
      case "error":
        return new Error();
      case "bytes": {
        const bytes = Buffer.from(about[2][2], "base64");
        if (about[2][1]) return bytes;
        if (!TYPED.includes(about[2][0])) throw new Error("an unknown kind of bytes");
        return new globalThis[about[2][0]](new Uint8Array(bytes).buffer);
      }
      case "object":
        return {};
      case "function":
      case "class":
        return this.standIn(id, kind, about[0]);
      case "promise":
        return new Promise((resolve, reject) => this.resolvers.set(id, [resolve, reject]));
      case "iterator": {
        const made = Object.create(about[1] ? ASYNC_ITERATOR : ITERATOR);
        Object.defineProperty(made, Symbol.toStringTag, { value: textOf(about[0]), configurable: true });
        return made;
      }
    }
    throw new Error(`an object of the unknown kind ${String(kind)}`);
  }

  standIn(id, kind, about) {
    const { remote } = this;
    const refuse = () => this.refused(`${about.name || "a class"}, a class of one side, has a subclass on the other`);
    let made;
    if (kind === "class") {
      made = class {
        constructor(...given) {
          if (new.target !== made) refuse();
          return remote(id, undefined, given, true, made);
        }
      };
    } else {
      made = function (...given) {
        if (new.target !== undefined && new.target !== made) refuse();
        return remote(id, this, given, new.target !== undefined, made);
      };
    }
    Object.defineProperty(made, "name", { value: textOf(about.name), configurable: true });
    Object.defineProperty(made, "length", { value: Number(about.length), configurable: true });
    Object.defineProperty(made, "toString", {
      configurable: true,
      writable: true,
      value: () => this.refused("the source of a function is read from the other side"),
    });
    return made;
  }

  fill([id, kind, ...about]) {
    const value = this.objects.get(id);
    if (kind === "module") {
      for (const [key, told] of about[0]) Object.defineProperty(value, key, { value: this.in(told), enumerable: true, configurable: true, writable: true });
      return;
    }
    if (kind === "promise") return;
    if (kind === "iterator") {
      for (const [at, name] of ["next", "return", "throw"].entries()) {
        if (about[2 + at] !== null) Object.defineProperty(value, name, { value: this.in(about[2 + at]), configurable: true, writable: true });
      }
      return;
    }
    if (kind === "function" || kind === "class") {
      this.fillFunction(value, about[0]);
      return;
    }
    const [proto, closed, content, props] = about;
    const above = proto !== null && proto[0] === "c" ? this.in(proto[1]).prototype : this.in(proto);
    if (Object.getPrototypeOf(value) !== above) Object.setPrototypeOf(value, above);
    fillers[kind]?.(value, content, (each) => this.in(each));
    if (kind === "error" && !this.kept.has(id)) {
      Object.defineProperty(value, "stack", { value: content, writable: true, configurable: true, enumerable: false });
    }
    this.fillProps(value, props, skips[kind]);
    CLOSE[closed](value);
  }

  fillFunction(value, about) {
    if (about.above !== null && about.above !== undefined) Object.setPrototypeOf(value, this.in(about.above));
    if (about.members) {
      const { proto } = about;
      const above = proto !== null && proto[0] === "c" ? this.in(proto[1]).prototype : this.in(proto);
      Object.setPrototypeOf(value.prototype, above);
      this.fillProps(value.prototype, about.members, (key) => key === "constructor");
    }
    this.fillProps(value, about.props, (key) => ["length", "name", "prototype", "toString", "arguments", "caller"].includes(key));
  }

  fillProps(value, props, skip = () => false) {
    const wanted = props.map(([key, flags, held, set]) => ({ key: this.in(key), flags, held: this.in(held), set: set === undefined ? undefined : this.in(set) }));
    const now = Reflect.ownKeys(value).filter((key) => !skip(key));
    const inOrder = now.every((key, at) => wanted[at]?.key === key);
    if (!inOrder) for (const key of now) delete value[key];
    for (const { key, flags, held, set } of wanted) {
      const enumerable = (flags & 1) > 0;
      const configurable = (flags & 4) > 0;
      const described = flags & 8 ? { get: held, set, enumerable, configurable } : { value: held, writable: (flags & 2) > 0, enumerable, configurable };
      Object.defineProperty(value, key, described);
      if (CONVERSIONS.has(key) && typeof held === "function" && this.ids.has(held)) this.conversions.add(this.ids.get(held));
    }
  }

  settle(id, works, told) {
    const found = this.resolvers.get(id);
    if (!found) throw new Error("a promise that is settled twice or was never made");
    this.resolvers.delete(id);
    found[works ? 0 : 1](this.in(told));
  }
}

const isIndex = (key) => typeof key === "string" && /^(0|[1-9]\d{0,9})$/.test(key);
// 0 for what can be extended, 1 if not, 2 for what is sealed, 3 for what is frozen.
function extensible(value) {
  if (Object.isExtensible(value)) return 0;
  return Object.isFrozen(value) ? 3 : Object.isSealed(value) ? 2 : 1;
}
const CLOSE = [(value) => value, Object.preventExtensions, Object.seal, Object.freeze];
const skips = {
  array: (key) => key === "length" || isIndex(key),
  regexp: (key) => key === "lastIndex",
  error: (key) => key === "stack",
  bytes: isIndex,
};
const fillers = {
  array(value, content, read) {
    if (value.length !== content.length) value.length = content.length;
    for (const [at, told] of content.entries()) {
      if (Array.isArray(told) && told[0] === "h") delete value[at];
      else {
        const held = read(told);
        if (!Object.hasOwn(value, at) || !Object.is(value[at], held)) value[at] = held;
      }
    }
  },
  map(value, content, read) {
    Map.prototype.clear.call(value);
    for (const [key, held] of content) Map.prototype.set.call(value, read(key), read(held));
  },
  set(value, content, read) {
    Set.prototype.clear.call(value);
    for (const each of content) Set.prototype.add.call(value, read(each));
  },
  date: (value, content, read) => Date.prototype.setTime.call(value, read(content)),
  regexp(value, [, , lastIndex]) {
    value.lastIndex = lastIndex;
  },
  bytes: (value, [, , text]) => bytesOf(value).set(Buffer.from(text, "base64")),
};

// What an object was when we last spoke. All are looked at before each frame, so the usual ones, with
// nothing but plain properties or elements, are looked at quickly.
function snapshot(value, kind) {
  const about = { kind, above: Object.getPrototypeOf(value), keys: null, state: null };
  if (kind === "array" && isPlain(value)) about.state = value.slice();
  else if (kind === "object" && isPlainObject(value)) {
    about.keys = Object.keys(value);
    about.state = Object.values(value);
  } else return { ...about, full: true, state: state(value, kind) };
  return about;
}

function isUnchanged(value, before) {
  if (before.full) return same(before.state, state(value, before.kind));
  if (!Object.isExtensible(value) || Object.getPrototypeOf(value) !== before.above) return false;
  const { keys, state: held } = before;
  if (keys === null) {
    if (value.length !== held.length) return false;
    for (let at = 0; at < held.length; at++) if (!Object.is(value[at], held[at])) return false;
    return value.length > 64 || Object.keys(value).length === value.length;
  }
  const now = Object.keys(value);
  if (now.length !== keys.length) return false;
  for (let at = 0; at < now.length; at++) {
    if (now[at] !== keys[at] || !Object.is(value[now[at]], held[at])) return false;
  }
  return true;
}

// All there is to an object, in a list: compared with the last one to see whether it has changed.
function state(value, kind) {
  const found = [extensible(value), Object.getPrototypeOf(value)];
  if (kind === "module") return [...found, ...Reflect.ownKeys(value).filter((key) => typeof key === "string").map((key) => value[key])];
  if (kind === "bytes") return [...found, bytesOf(value).toString("latin1")];
  if (kind === "map") for (const [key, held] of Map.prototype.entries.call(value)) found.push(key, held);
  else if (kind === "set") for (const each of Set.prototype.values.call(value)) found.push(each);
  else if (kind === "date") found.push(Date.prototype.getTime.call(value));
  for (const key of Reflect.ownKeys(value)) {
    if (key === "stack" && kind === "error") continue;
    const { get, set, value: held, enumerable, writable, configurable } = Object.getOwnPropertyDescriptor(value, key);
    found.push(key, get ?? held, set, (enumerable ? 1 : 0) | (writable ? 2 : 0) | (configurable ? 4 : 0));
  }
  if (FUNCTIONS.has(kind) && value.prototype) found.push(...state(value.prototype, "object"));
  return found;
}

// Whether an array has no holes, no names and nothing frozen.
function isPlain(value) {
  return Object.isExtensible(value) && Object.keys(value).length === value.length && Reflect.ownKeys(value).length === value.length + 1;
}

function isPlainObject(value) {
  if (!Object.isExtensible(value)) return false;
  return Reflect.ownKeys(value).every((key) => {
    const { writable, enumerable, configurable } = Object.getOwnPropertyDescriptor(value, key);
    return typeof key === "string" && writable && enumerable && configurable;
  });
}

function same(one, other) {
  if (one.length !== other.length) return false;
  for (let at = 0; at < one.length; at++) if (!Object.is(one[at], other[at])) return false;
  return true;
}

const bytesOf = (value) => Buffer.from(value.buffer, value.byteOffset, value.byteLength);
const textOf = (value) => (typeof value === "string" ? value : "");

// A function of ours that may be called from the other side, whatever it wraps.
const own = (body) => body;

function needed([, kind, ...about]) {
  const found = [];
  const add = (told) => {
    if (Array.isArray(told) && told[0] === "c") add(told[1]);
    else if (Array.isArray(told) && told[0] === "o") found.push(told[1]);
  };
  if (kind === "function" || kind === "class") {
    add(about[0].above);
    add(about[0].proto);
  } else if (DATA.has(kind)) add(about[0]);
  return found;
}

function known(table, name) {
  if (!table.has(name)) throw new Error(`${String(name)} is unknown here`);
  return table.get(name);
}

function isBuiltInIterator(value) {
  const above = Object.getPrototypeOf(value);
  const tag = above === null ? undefined : Object.getOwnPropertyDescriptor(above, Symbol.toStringTag)?.value;
  return typeof tag === "string" && ITERATOR_TAGS.test(tag) && ITERATOR.isPrototypeOf(value);
}

// Objects of the platform whose state can't be read: timers, sockets, URLs …
function isOpaque(value) {
  const name = names.get(Object.getPrototypeOf(value));
  return name !== undefined && name !== "Object" && !/Error$/.test(name);
}

const nameOf = (value) => `a ${Object.getPrototypeOf(value)?.constructor?.name ?? "nameless object"}`;
