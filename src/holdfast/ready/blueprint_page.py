"""A blueprint drawn: one HTML file that needs nothing else, or SVG, or Mermaid.

Three bands, left to right: what the loop brings (agents, tools, models), the runtime's bodies, each
read from top to bottom, and the sandboxes. The same picture gives the same text, byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from importlib import resources
from typing import Any

from holdfast.ready.layer_advice import words

ROW, INDENT, WIDE, SIDE = 40, 20, 270, 230
LOOP_AT, RUNTIME_AT = 10, 320
MARK = "holdfast-blueprint:"
"""Before the fingerprint, in every format."""
_SYMBOLS = {
    "begin": "▶", "end": "■", "step": "●", "child": "⧉", "wait": "◔", "approval": "☑", "timer": "◷",
    "webhook": "⇠", "agent": "✦", "model": "◆", "note": "✎", "patch": "⑂", "start": "⇢",
    "event": "⇢", "sandbox": "▣", "branch": "◇", "loop": "↻", "except": "⚠", "finally": "⚑",
    "fork": "⋔", "task": "⋔", "join": "⋏", "dynamic": "?", "tool": "⚒", "host": "⌂",
}  # fmt: skip
_LAYERS = (
    ("control", "control"), ("flow", "state flow"), ("checkpoint", "checkpoints"),
    ("recovery", "recovery"), ("spawn", "tasks"), ("uses", "uses"), ("secret", "secrets"),
    ("seen", "runs"), ("point", "doctor"),
)  # fmt: skip
_WAYS = {"begin", "end", "branch", "loop", "except", "finally", "fork", "task", "join", "patch"}


@dataclass
class _Box:
    id: str
    x: int
    y: int
    wide: int


@dataclass
class _Sheet:
    """What is drawn, and where."""

    boxes: dict[str, _Box] = field(default_factory=dict[str, _Box])
    under: list[str] = field(default_factory=list[str])
    over: list[str] = field(default_factory=list[str])
    tall: int = 0


def svg(told: Mapping[str, Any]) -> str:
    """The picture alone."""
    sheet = _Sheet()
    deepest = max((n["depth"] for f in told["workflows"] for n in f["nodes"]), default=0)
    sandbox_at = RUNTIME_AT + WIDE + deepest * INDENT + 330
    parts = {part["id"]: part for part in told["parts"]}
    y = 40
    for flow in told["workflows"]:
        y = _flow(sheet, told, flow, parts, y, sandbox_at) + 30
    drawn = {each.partition(" ")[2] for each in sheet.boxes}
    rest = [part for part in told["parts"] if part["id"] not in drawn]
    for part in rest:
        _part(sheet, "rest", part, LOOP_AT if part["band"] != "sandbox" else sandbox_at, y)
        y += ROW
    _links(sheet, told, "rest")
    wide = sandbox_at + SIDE + 20
    bands = "".join(
        f'<text class="band" x="{x}" y="20">{word}</text>'
        for x, word in ((LOOP_AT, "Loop"), (RUNTIME_AT, "Runtime"), (sandbox_at, "Sandbox"))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{y + 20}" '
        f'viewBox="0 0 {wide} {y + 20}" role="group" '
        f'aria-label="Blueprint of {escape(told["project"])}">\n'
        f"<!-- {MARK}{told['fingerprint']} -->\n"
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#767f8a" '
        'stroke="none"/></marker></defs>\n'
        + bands
        + "\n".join((*sheet.under, *sheet.over))
        + "\n</svg>\n"
    )


def _flow(
    sheet: _Sheet,
    told: Mapping[str, Any],
    flow: Mapping[str, Any],
    parts: Mapping[str, Any],
    y: int,
    sandbox_at: int,
) -> int:
    name = flow["name"]
    begun = y
    recorded = told["runs"] > 0
    for node in flow["nodes"]:
        id = f"{name}/{node['id']}"
        box = _Box(id, RUNTIME_AT + node["depth"] * INDENT, y, WIDE)
        sheet.boxes[id] = box
        sheet.over.append(_node(node, box, flow, recorded))
        y += ROW
    for edge in flow["edges"]:
        sheet.under.append(_edge(edge, sheet, name))
    sides = {"loop": begun, "outside": begun, "sandbox": begun}
    for id in _used(told, name):
        part = parts[id]
        column = "sandbox" if part["band"] == "sandbox" else "loop"
        at = max(sides[column], _first_use(sheet, told, id, name))
        _part(sheet, name, part, sandbox_at if column == "sandbox" else LOOP_AT, at)
        sides[column] = at + ROW
    _links(sheet, told, name)
    return max(y, *sides.values())


def _used(told: Mapping[str, Any], flow: str) -> list[str]:
    """The parts a workflow uses, and what they use in turn; in order of use."""
    found: list[str] = []
    open_ = [link["to"] for link in told["links"] if link["from"].rpartition("/")[0] == flow]
    while open_:
        each = open_.pop(0)
        if each not in found:
            found.append(each)
            open_ = [link["to"] for link in told["links"] if link["from"] == each] + open_
    return found


def _first_use(sheet: _Sheet, told: Mapping[str, Any], id: str, flow: str) -> int:
    places = [sheet.boxes.get(link["from"]) for link in told["links"] if link["to"] == id]
    places += [
        sheet.boxes.get(f"{flow} {link['from']}") for link in told["links"] if link["to"] == id
    ]
    return min((each.y for each in places if each is not None), default=0)


def _node(node: Mapping[str, Any], box: _Box, flow: Mapping[str, Any], recorded: bool) -> str:
    kind, seen = node["kind"], node.get("seen")
    classes = [kind, "way" if kind in _WAYS else "ask"]
    if recorded and kind not in _WAYS and seen is None:
        classes.append("never")
    if any(each["outcome"] == "fail" for each in node.get("points", ())):
        classes.append("fails")
    label = f"{_SYMBOLS[kind]} {_cut(node['name'], 34)}"
    words = f"{kind} {node['name']}, {node['file']} line {node['line']}"
    lines = [
        f'<g class="{" ".join(classes)}" data-id="{escape(box.id)}" tabindex="0" role="button" '
        f'aria-label="{escape(words)}"><title>{escape(node["code"] or node["name"])}</title>',
        f'<rect x="{box.x}" y="{box.y}" width="{box.wide}" height="24" rx="3"/>',
        f'<text x="{box.x + 8}" y="{box.y + 16}">{escape(label)}</text>',
    ]
    beside = box.x + box.wide + 8
    if node.get("about"):
        lines.append(_note("s-flow", beside, box.y + 8, _cut(node["about"], 42)))
    if seen:
        took = "" if seen["p95"] is None else f", {seen['p95']:.2g} s"
        failed = f", {seen['failed']} failed" if seen["failed"] else ""
        lines.append(_note("s-seen", beside, box.y + 25, f"{seen['times']}×{took}{failed}"))
    elif recorded and kind not in _WAYS:
        lines.append(_note("s-seen", beside, box.y + 25, "never"))
    if node.get("points"):
        said = " ".join(f"⚠ {each['point']}" for each in node["points"])
        lines.append(_note("s-point", beside + 150, box.y + 25, said))
    if kind not in _WAYS and kind != "dynamic":
        middle = box.y + 29
        lines.append(f'<path class="checkpoint" d="M{box.x} {middle} H{box.x + box.wide}"/>')
    if kind == "end" and flow["on_failure"]:
        lines.append(_note("soft", beside, box.y + 16, f"fails → {flow['on_failure']}"))
    return "".join(lines) + "</g>"


def _note(kind: str, x: int, y: int, text: str) -> str:
    return f'<text class="{kind}" x="{x}" y="{y}">{escape(text)}</text>'


def _edge(edge: Mapping[str, Any], sheet: _Sheet, flow: str) -> str:
    one, other = sheet.boxes[f"{flow}/{edge['from']}"], sheet.boxes[f"{flow}/{edge['to']}"]
    kind = edge["kind"]
    tip = ' marker-end="url(#tip)"'
    down = abs(other.y - one.y)
    if kind == "control" and other.y - one.y == ROW:
        path = f"M{max(one.x, other.x) + 12} {one.y + 24} V{other.y}"
    elif kind == "control":
        bend = min(one.x, other.x) - 8 - min(40, down // 20)
        path = _curve((one.x, one.y), bend, bend, (other.x, other.y))
    else:
        right, end = one.x + one.wide, other.x + other.wide
        bend = max(right, end) + 14 + min(60, down // 8)
        path = _curve((right, one.y), bend, bend, (end, other.y))
    said = escape(edge["label"])
    title = f"<title>{said}</title>" if said else ""
    return f'<path class="e-{kind}" d="{path}"{tip}>{title}</path>'


def _part(sheet: _Sheet, flow: str, part: Mapping[str, Any], x: int, y: int) -> None:
    key = f"{flow} {part['id']}"
    sheet.boxes[key] = _Box(part["id"], x, y, SIDE)
    words = f"{part['kind']} {part['name']} {part['about']}".strip()
    secret = (
        _note("s-secret", x + 8, y + 35, _cut(part["about"], 36)) if part["kind"] == "model" else ""
    )
    sheet.over.append(
        f'<g class="ask {part["kind"]}" data-id="{escape(part["id"])}" tabindex="0" role="button" '
        f'aria-label="{escape(words)}"><rect x="{x}" y="{y}" width="{SIDE}" height="24" rx="3"/>'
        f'<text x="{x + 8}" y="{y + 16}">{escape(_SYMBOLS[part["kind"]])} '
        f"{escape(_cut(part['name'], 28))}</text>{secret}</g>"
    )


def _links(sheet: _Sheet, told: Mapping[str, Any], flow: str) -> None:
    for link in told["links"]:
        one = sheet.boxes.get(f"{flow} {link['from']}")
        if one is None and link["from"].rpartition("/")[0] == flow:
            one = sheet.boxes.get(link["from"])
        other = sheet.boxes.get(f"{flow} {link['to']}")
        if one is None or other is None:
            continue
        right = one.x + one.wide
        if one.x == other.x:
            path = _curve((one.x, one.y), one.x - 9, one.x - 9, (other.x, other.y))
        elif other.x < one.x:
            end = other.x + SIDE
            path = _curve((one.x, one.y), one.x - 50, end + 50, (end, other.y))
        else:
            path = _curve((right, one.y), right + 60, other.x - 60, (other.x, other.y))
        title = f"<title>{escape(link['label'])}</title>" if link["label"] else ""
        sheet.under.append(f'<path class="e-{link["kind"]}" d="{path}">{title}</path>')


def _curve(one: tuple[int, int], bend: int, back: int, other: tuple[int, int]) -> str:
    """From the middle of one box's side to that of another."""
    top, low = one[1] + 12, other[1] + 12
    return f"M{one[0]} {top} C{bend} {top} {back} {low} {other[0]} {low}"


def _cut(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def html(told: Mapping[str, Any]) -> str:
    """The page that stands alone: the picture, and what it takes to ask it questions."""
    title = f"Blueprint of {escape(told['project'])}"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; \
style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>{title}</title>
<style>
{asset("blueprint_page.css")}{asset("blueprint_drawing.css")}</style>
</head>
<body>
<main>
<h1>{title}</h1>
{drawing(told)}</main>
<script>
{asset("blueprint_drawing.js")}</script>
</body>
</html>
"""


ASSETS = ("blueprint_drawing.css", "blueprint_drawing.js")
"""What `drawing` is shown with, wherever it is."""


def asset(name: str) -> str:
    """The text of a file beside this one."""
    return resources.files("holdfast.ready").joinpath(name).read_text("utf-8")


def drawing(told: Mapping[str, Any], *, runs: str = "") -> str:
    """The picture with its switches and the panel, for a page to stand in.

    `runs`: the address before a run's id, if runs have pages here.
    """
    data = json.dumps(told, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    boxes = "".join(
        f'<label><input type="checkbox" value="{value}" checked> {word}</label>'
        for value, word in _LAYERS
    )
    about = "".join(f"<p>{escape(line)}</p>" for line in words(told["advice"])[:2])
    laid = f"{told['runs']:,} runs laid over it" if told["runs"] else "no runs laid over it"
    return f"""<div class="blueprint" data-runs="{escape(runs)}">
<div class="about">{about}
<p>{len(told["workflows"])} workflows, {len(told["parts"])} parts, {laid}, \
{len(told["points"])} points of the doctor</p></div>
<div class="tools" role="group" aria-label="What is shown">{boxes}
<button type="button" id="kill" aria-pressed="false">Kill here: what then?</button></div>
<div class="sheet">
<section id="picture" aria-label="The picture" tabindex="0">
{svg(told)}</section>
<aside aria-label="Details"><div id="panel" aria-live="polite">
<p>Choose a node: its source, options and last runs. With “Kill here” on, it says what a run that is
killed there replays, does again, and can't know. Arrow keys go from node to node.</p></div></aside>
</div>
<script type="application/json" id="told">{data}</script>
</div>
"""


def mermaid(told: Mapping[str, Any]) -> str:
    """The picture as a Mermaid flow chart, for a README."""
    return "\n".join(_mermaid(told)) + "\n"


def _mermaid(told: Mapping[str, Any]) -> Iterator[str]:
    yield f"%% {MARK}{told['fingerprint']}"
    yield "flowchart TD"
    arrows = {"control": "-->", "recovery": "-.->", "spawn": "==>", "deferred": "-.->"}
    places: dict[str, str] = {}
    for number, flow in enumerate(told["workflows"]):
        yield f'  subgraph w{number}["{_quoted(flow["name"])}"]'
        for node in flow["nodes"]:
            id = f"w{number}n{node['id']}"
            places[f"{flow['name']}/{node['id']}"] = id
            name = _quoted(_cut(node["name"], 40))
            shape = f'{{"{name}"}}' if node["kind"] in ("branch", "loop") else f'["{name}"]'
            yield f"    {id}{shape}"
        for edge in flow["edges"]:
            label = f"|{_quoted(_cut(edge['label'], 24))}|" if edge["label"] else ""
            one, other = f"w{number}n{edge['from']}", f"w{number}n{edge['to']}"
            yield f"    {one} {arrows[edge['kind']]}{label} {other}"
        yield "  end"
    for number, part in enumerate(told["parts"]):
        places[part["id"]] = f"p{number}"
        yield f'  p{number}(["{part["kind"]} {_quoted(part["name"])}"])'
    for link in told["links"]:
        label = f"|{_quoted(link['label'])}|" if link["label"] else ""
        yield f"  {places[link['from']]} -.->{label} {places[link['to']]}"


def _quoted(text: str) -> str:
    return text.replace('"', "#quot;").replace("|", "#124;")


def as_json(told: Mapping[str, Any]) -> str:
    """All that is known, for programs."""
    return json.dumps({**told, "mark": f"{MARK}{told['fingerprint']}"}, indent=1) + "\n"


FORMATS = {"html": html, "svg": svg, "mermaid": mermaid, "json": as_json}
