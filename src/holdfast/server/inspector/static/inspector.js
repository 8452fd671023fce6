// Makes the pages live. Everything works without it; this only saves reloading.
//
// What a page shows is always the server's answer: news come as events of the log, and each makes
// us fetch the page again and change what differs. So nothing can be lost, doubled or out of order
// here, whatever happens to the connection; the event stream only says when to look.

const root = document.documentElement;
root.classList.add("has-js");

// --- changing what differs ---

const keyOf = (node) => (node.nodeType === 1 ? node.id || node.dataset.key || "" : "");

function morph(old, fresh) {
  if (old.isEqualNode(fresh) || old.dataset.keep !== undefined) return;
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !(name === "open" && old.nodeName === "DETAILS")) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  morphChildren(old, fresh);
}

function morphChildren(old, fresh) {
  const keyed = new Map();
  for (const child of old.children) if (keyOf(child)) keyed.set(keyOf(child), child);
  let place = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const key = keyOf(wanted);
    let found = key ? keyed.get(key) : place;
    const fits = found && found.nodeName === wanted.nodeName && keyOf(found) === key;
    if (!fits) {
      old.insertBefore(document.importNode(wanted, true), place);
      continue;
    }
    if (found !== place) old.insertBefore(found, place);
    else place = place.nextSibling;
    if (found.nodeType === 1) morph(found, wanted);
    else if (found.nodeValue !== wanted.nodeValue) found.nodeValue = wanted.nodeValue;
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

// --- looking again ---

let looking = false;
let again = false;
let notBefore = 0;
let timer = 0;

async function look(url = location.href) {
  const answer = await fetch(url, { headers: { accept: "text/html" }, credentials: "same-origin" });
  if (answer.redirected && new URL(answer.url).pathname === "/login") return location.reload();
  if (!answer.ok) throw new Error(`${url}: ${answer.status}`);
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of document.querySelectorAll("[data-live]:not(body)")) {
    const found = fresh.getElementById(part.id);
    if (found) morph(part, document.importNode(found, true));
  }
  const { live, log } = fresh.body.dataset;
  document.title = fresh.title;
  if (!live && document.body.dataset.live) unfollow("");
  document.body.dataset.live = live;
  document.body.dataset.log = log;
}

function refresh() {
  if (looking) return void (again = true);
  if (timer) return;
  timer = setTimeout(async () => {
    timer = 0;
    looking = true;
    again = false;
    const begun = performance.now();
    try {
      await look();
    } catch {
      again = !document.hidden; // the stream's own state says that the server is away
    }
    looking = false;
    const took = performance.now() - begun;
    notBefore = performance.now() + Math.max(150, 2 * took); // leave the machine to the work
    if (again) refresh();
  }, Math.max(0, notBefore - performance.now()));
}

// --- following the log ---

const indicator = document.getElementById("live");
let stream = null;
let place = document.body.dataset.log;
let lost = false;

function say(state, text) {
  indicator.dataset.state = state;
  if (indicator.textContent !== text) indicator.textContent = text;
}

function follow() {
  const source = document.body.dataset.live;
  if (!source || stream) return;
  const address = new URL(source, location.href);
  address.searchParams.set("after", place);
  stream = new EventSource(address);
  stream.onopen = () => {
    say("live", "live");
    if (lost) refresh();
    lost = false;
  };
  stream.onmessage = (event) => {
    if (event.lastEventId) place = event.lastEventId;
    refresh();
  };
  stream.addEventListener("touch", () => refresh()); // what is not in the log; its place stays
  stream.addEventListener("end", () => {
    unfollow("");
    refresh();
  });
  stream.addEventListener("reset", () => location.reload());
  stream.onerror = () => {
    lost = true;
    say("lost", "reconnecting");
    if (stream && stream.readyState === EventSource.CLOSED) {
      unfollow("reconnecting");
      say("lost", "reconnecting");
      setTimeout(follow, 1500);
    }
  };
}

function unfollow(text) {
  stream?.close();
  stream = null;
  say("", text);
}

// A browser has few connections to a server: a page that nobody sees gives its own back.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) unfollow("");
  else if (document.body.dataset.live) {
    follow();
    refresh();
  }
});
follow();
// What nothing tells of (a lease that runs out) is looked for now and then, where a page says so.
const { every } = document.body.dataset;
if (every) setInterval(() => !document.hidden && !lost && refresh(), 1000 * Number(every));

// --- time passes ---

function duration(seconds) {
  if (seconds < 0.1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 1) return `${seconds.toFixed(2)} s`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const rest = Math.round(seconds) % 60;
  const minutes = Math.floor(Math.round(seconds) / 60);
  if (seconds < 3600) return rest ? `${minutes} m ${rest} s` : `${minutes} m`;
  return seconds < 86400 ? `${(seconds / 3600).toFixed(1)} h` : `${(seconds / 86400).toFixed(1)} d`;
}
setInterval(() => {
  if (document.hidden || lost) return;
  for (const each of document.querySelectorAll("time[data-since]")) {
    const text = duration(Math.max(0, Date.now() / 1000 - Number(each.dataset.since)));
    if (each.textContent !== text) each.textContent = text;
  }
}, 1000);

// --- going elsewhere on the same page ---

async function goTo(url, push = true) {
  try {
    await look(url);
  } catch {
    return void (location.href = url);
  }
  if (push) history.pushState(null, "", url);
  else history.replaceState(null, "", url);
}
addEventListener("popstate", () => refresh());

// --- asking ---

const ask = document.getElementById("ask");

async function openDialog(url) {
  const answer = await fetch(url, { headers: { accept: "text/html" }, credentials: "same-origin" });
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  const content = fresh.querySelector("main .ask");
  if (!content) return void (location.href = url);
  ask.replaceChildren(document.importNode(content, true));
  ask.dataset.url = url;
  if (!ask.open) ask.showModal();
}

document.addEventListener("click", (event) => {
  const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
  const link = event.target.closest("a, button");
  if (!link || !plain) return;
  if (link.dataset.help !== undefined) document.getElementById("help").showModal();
  else if (link.dataset.copy) copy(link);
  else if (link.dataset.close !== undefined && ask.open) {
    event.preventDefault();
    ask.close();
  } else if (link.dataset.dialog !== undefined) {
    event.preventDefault();
    openDialog(link.href);
  } else if (link.dataset.soft !== undefined) {
    event.preventDefault();
    goTo(link.href);
  }
});
document.addEventListener("submit", (event) => {
  if (event.submitter?.dataset.dialogForm === undefined) return;
  event.preventDefault();
  openDialog(`${event.target.action}?${new URLSearchParams(new FormData(event.target))}`);
});
document.addEventListener("change", (event) => {
  if (event.target.dataset.reload === undefined) return;
  const form = event.target.form;
  const url = `${form.action}?${new URLSearchParams(new FormData(form))}`;
  if (ask.open) openDialog(url);
  else location.href = url;
});
for (const dialog of document.querySelectorAll("dialog")) {
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
}

async function copy(button) {
  const text = button.dataset.copy;
  try {
    await navigator.clipboard.writeText(text);
    button.dataset.done = "";
    setTimeout(() => delete button.dataset.done, 1200);
  } catch {
    const near = button.parentElement.querySelector("code") ?? button.closest("section").querySelector(".diff");
    getSelection().selectAllChildren(near);
  }
}

// --- the panel's width: drawn or stepped, and kept for the next time ---

function widen(share) {
  const width = Math.round(Math.min(Math.max(share, 15), 60));
  root.style.setProperty("--panel", `${width}vw`);
  document.getElementById("grip")?.setAttribute("aria-valuenow", width);
  return width;
}
let width = 30;
try {
  width = Number(localStorage.getItem("panel")) || width;
  if (width !== 30) widen(width);
} catch {} // a browser that keeps nothing: the width is as it was made
function keepWidth() {
  try {
    localStorage.setItem("panel", width);
  } catch {} // as above
}
document.addEventListener("pointerdown", (event) => {
  const grip = event.target.closest?.(".grip");
  if (!grip) return;
  event.preventDefault();
  grip.setPointerCapture(event.pointerId);
  grip.onpointermove = (moved) => (width = widen((100 * (innerWidth - moved.clientX)) / innerWidth));
  grip.onpointerup = () => {
    grip.onpointermove = null;
    keepWidth();
  };
});
document.addEventListener("keydown", (event) => {
  if (!event.target.closest?.(".grip") || !["ArrowLeft", "ArrowRight"].includes(event.key)) return;
  event.preventDefault();
  width = widen(width + (event.key === "ArrowLeft" ? 2 : -2));
  keepWidth();
});

// --- the keyboard ---

function step(by) {
  const rows = [...document.querySelectorAll("[data-row]")];
  if (!rows.length) return;
  const current = rows.findIndex((row) => row === document.activeElement);
  const marked = rows.findIndex((row) => row.getAttribute("aria-current") === "true");
  const from = current >= 0 ? current : marked >= 0 ? marked : by > 0 ? -1 : rows.length;
  const next = rows[Math.min(Math.max(from + by, 0), rows.length - 1)];
  next.focus({ preventScroll: false });
  next.scrollIntoView({ block: "nearest" });
  if (next.dataset.soft !== undefined) goTo(next.href, false);
}

document.addEventListener("keydown", (event) => {
  if (event.metaKey || event.ctrlKey || event.altKey) return;
  const typing = event.target.closest("input, textarea, select");
  if (typing) {
    if (event.key === "Escape") typing.blur();
    return;
  }
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "/") {
    const search = document.querySelector("[data-search]");
    if (!search) return;
    event.preventDefault();
    search.focus();
    search.select();
  } else if (event.key === "j") step(1);
  else if (event.key === "k") step(-1);
  else if (event.key === "?") document.getElementById("help").showModal();
});
