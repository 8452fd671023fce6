// The picture answers: layers on and off, a node's details, and crash mode. No network, no library.
const told = JSON.parse(document.getElementById("told").textContent);
const svg = document.querySelector("#picture svg");
const panel = document.getElementById("panel");
const runs = document.querySelector(".blueprint").dataset.runs;
const kill = document.getElementById("kill");
const nodes = [...svg.querySelectorAll("[data-id]")];
const flows = Object.fromEntries(told.workflows.map((flow) => [flow.name, flow]));
const parts = Object.fromEntries(told.parts.map((part) => [part.id, part]));
const MARKS = { replayed: "↺ replayed", repeated: "! again", unknown: "? unknown", kept: "✓ goes on" };

for (const box of document.querySelectorAll(".tools input")) {
  const apply = () => svg.classList.toggle("no-" + box.value, !box.checked);
  box.addEventListener("change", apply);
  apply();
}

const element = (name, text) => {
  const made = document.createElement(name);
  made.textContent = text;
  return made;
};

function facts(rows) {
  const list = document.createElement("dl");
  for (const [name, value] of rows) {
    if (value === undefined || value === null || value === "") continue;
    const shown = value instanceof Node ? document.createElement("dd") : element("dd", String(value));
    if (value instanceof Node) shown.append(value);
    list.append(element("dt", name), shown);
  }
  return list;
}

// Where runs have pages, their ids lead there.
function lastRuns(ids) {
  if (!runs || !ids.length) return ids.join(" ");
  const all = document.createDocumentFragment();
  for (const id of ids) {
    const link = element("a", id);
    link.href = runs + encodeURIComponent(id);
    all.append(link, " ");
  }
  return all;
}

function find(id) {
  if (parts[id]) return { part: parts[id] };
  const cut = id.lastIndexOf("/");
  const flow = flows[id.slice(0, cut)];
  return { flow, node: flow.nodes[Number(id.slice(cut + 1))] };
}

function show(id) {
  const { flow, node, part } = find(id);
  panel.replaceChildren();
  if (part) {
    panel.append(element("h2", `${part.kind} ${part.name}`), facts([["about", part.about], ["network", part.network], ["at", part.place]]));
    return;
  }
  panel.append(element("h2", `${node.kind} ${node.name}`));
  const seen = node.seen || {};
  panel.append(facts([
    ["in", flow.name + (node.helper ? ` › ${node.helper}` : "")], ["at", `${node.file}:${node.line}`], ["types", node.about],
    ...Object.entries(node.options || {}), ["times", seen.times], ["failed", seen.failed],
    ["p95", seen.p95 == null ? "" : `${seen.p95.toFixed(2)} s`], ["size p95", seen.bytes == null ? "" : `${seen.bytes} bytes`],
    ["cost", seen.usd ? `$${seen.usd.toFixed(4)}` : ""], ["last runs", lastRuns(seen.runs || [])],
  ]));
  for (const point of node.points || []) panel.append(element("p", `${point.point}: ${point.message}`));
  if (node.crash) panel.append(element("h2", "Killed here"), element("p", `${MARKS[node.crash.outcome]}: it ${node.crash.why}.`));
  const source = element("pre", node.source || node.code || node.name);
  source.tabIndex = 0; // it may scroll
  panel.append(source);
}

function crash(id) {
  const { flow, node } = find(id);
  for (const each of nodes) {
    each.classList.remove("crash-replayed", "crash-repeated", "crash-unknown", "crash-kept");
    each.querySelector(".mark")?.remove();
  }
  if (!node || !node.crash) return;
  const before = BigInt("0x" + node.before);
  const count = { replayed: 0 };
  for (const each of flow.nodes) {
    const itself = each.id === node.id;
    if (!itself && !((before >> BigInt(each.id)) & 1n)) continue;
    const outcome = itself ? node.crash.outcome : "replayed";
    count.replayed += !itself;
    const drawn = svg.querySelector(`[data-id="${CSS.escape(flow.name + "/" + each.id)}"]`);
    drawn.classList.add("crash-" + outcome);
    const mark = document.createElementNS("http://www.w3.org/2000/svg", "text");
    const box = drawn.querySelector("rect");
    mark.setAttribute("class", "mark");
    mark.setAttribute("x", Number(box.getAttribute("x")) + Number(box.getAttribute("width")) - 8);
    mark.setAttribute("text-anchor", "end");
    mark.setAttribute("y", Number(box.getAttribute("y")) + 16);
    mark.textContent = MARKS[outcome];
    drawn.append(mark);
  }
  panel.prepend(element("p", `Killed at ${node.name}: up to ${count.replayed} before it are replayed from the journal, not done again. It ${node.crash.why}.`));
}

function choose(drawn) {
  for (const each of nodes) each.classList.toggle("chosen", each === drawn);
  show(drawn.dataset.id);
  history.replaceState(null, "", "#" + encodeURIComponent(drawn.dataset.id));
  if (kill.getAttribute("aria-pressed") === "true") crash(drawn.dataset.id);
}

kill.addEventListener("click", () => {
  const on = kill.getAttribute("aria-pressed") !== "true";
  kill.setAttribute("aria-pressed", String(on));
  const chosen = svg.querySelector(".chosen");
  if (on && chosen) choose(chosen);
  if (!on) for (const each of nodes) {
    each.classList.remove("crash-replayed", "crash-repeated", "crash-unknown", "crash-kept");
    each.querySelector(".mark")?.remove();
  }
});
svg.addEventListener("click", (event) => {
  const drawn = event.target.closest("[data-id]");
  if (drawn) choose(drawn);
});
svg.addEventListener("keydown", (event) => {
  const place = nodes.indexOf(event.target.closest("[data-id]"));
  if (place < 0) return;
  if (event.key === "Enter" || event.key === " ") choose(nodes[place]);
  else if (event.key === "ArrowDown") nodes[Math.min(place + 1, nodes.length - 1)].focus();
  else if (event.key === "ArrowUp") nodes[Math.max(place - 1, 0)].focus();
  else return;
  event.preventDefault();
});
// On a narrow screen the bodies are what is seen first, not the band left of them.
const picture = document.getElementById("picture");
const runtime = svg.querySelectorAll(".band")[1];
if (picture.clientWidth < 600 && runtime) picture.scrollLeft = Number(runtime.getAttribute("x")) - 10;

// The address names what is chosen.
const named = decodeURIComponent(location.hash.slice(1));
const there = nodes.find((each) => each.dataset.id === named);
if (there) choose(there);
