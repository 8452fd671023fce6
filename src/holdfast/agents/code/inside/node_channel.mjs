// Frames to and from the other process: lines of JSON, read by a thread of their own.
//
// A call across is synchronous for whoever makes it, and promises settle while nobody calls. So a
// worker reads, posts each line and raises a counter in shared memory: the main thread either
// sleeps on the counter (Atomics.wait) and takes the next line, or is handed it by its event loop.
// File descriptors 3 (out) and 4 (in) are what the shell that started us made of 2 and 0.

import fs from "node:fs";
import { Socket } from "node:net";
import { MessageChannel, Worker, isMainThread, receiveMessageOnPort, workerData } from "node:worker_threads";

const OUT = 3;
const IN = 4;
const BUSY = new Int32Array(new SharedArrayBuffer(4));

// The first line, read before the worker is there: what the host has to say.
export function firstLine() {
  const bytes = [];
  const one = Buffer.alloc(1);
  while (fs.readSync(IN, one) === 1 && one[0] !== 10) bytes.push(one[0]);
  return Buffer.from(bytes).toString();
}

export function write(text) {
  const data = Buffer.from(`${text}\n`);
  let at = 0;
  while (at < data.length) {
    try {
      at += fs.writeSync(OUT, data, at);
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
      Atomics.wait(BUSY, 0, 0, 1);
    }
  }
}

// Lines as they come; null is the end of the other side. `handle` gets those that nobody waits for.
export function open(handle) {
  const counter = new Int32Array(new SharedArrayBuffer(4));
  const { port1, port2 } = new MessageChannel();
  const worker = new Worker(new URL(import.meta.url), {
    workerData: { counter, port: port2 },
    transferList: [port2],
    stdout: false,
  });
  worker.unref();
  port1.on("message", ({ line }) => handle(line));
  port1.unref();
  return {
    // Sleeps until there is a line.
    next() {
      for (;;) {
        const seen = Atomics.load(counter, 0);
        const message = receiveMessageOnPort(port1);
        if (message) return message.message.line;
        Atomics.wait(counter, 0, seen);
      }
    },
    hold: () => port1.ref(),
    release: () => port1.unref(),
  };
}

// By the thread's own event loop: one that sleeps in a read could not be ended with the process.
function read({ counter, port }) {
  const pieces = [];
  const post = (line) => {
    port.postMessage({ line });
    Atomics.add(counter, 0, 1);
    Atomics.notify(counter, 0);
  };
  const source = new Socket({ fd: IN, readable: true, writable: false });
  source.on("data", (data) => {
    let from = 0;
    for (let end = data.indexOf(10); end >= 0; end = data.indexOf(10, from)) {
      pieces.push(data.subarray(from, end));
      post(Buffer.concat(pieces.splice(0)).toString());
      from = end + 1;
    }
    pieces.push(data.subarray(from));
  });
  source.on("error", () => {});
  source.on("close", () => post(null));
}

if (!isMainThread && workerData?.port && workerData.counter) read(workerData);
