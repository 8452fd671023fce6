"""The picture of a project: bodies as graphs, and what they use of the other layers.

Built in a process that has loaded the project (see `examination.py`), from its objects, its source
and, where there is a store, from what its runs did. It is told as plain JSON, which pages, drawings
and `--check` are made of.
"""

from __future__ import annotations

import ast
import asyncio
import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any, cast

from holdfast import Agent, config, generate_object, generate_text, stream_text
from holdfast.gateway.providers import KNOWN
from holdfast.loop.tools import AgentTool
from holdfast.ready import static_points
from holdfast.ready.body_graph import ASKING, BodyGraph, Node, read_body
from holdfast.ready.journal_walk import Walker
from holdfast.ready.layer_advice import advise
from holdfast.ready.look import Look
from holdfast.ready.source_code import SourceFunction, Sources, keyword, text_of
from holdfast.records import STEP_COMPLETED, STEP_FAILED, STEP_STARTED, WAIT_TIMED_OUT
from holdfast.runtime.codec import Signature
from holdfast.runtime.definitions import Step, Workflow
from holdfast.runtime.settings import Settings
from holdfast.sandbox.network import AllowedHost
from holdfast.store import opener
from holdfast.store.inspection import JournalRow, RunQuery, View

SAMPLE = 300
"""The newest runs of each workflow that are laid over the picture."""
_MODEL_CALLS = (generate_text, generate_object, stream_text)


def picture(sources: Sources, *, history: bool = True) -> dict[str, Any]:
    """The whole picture, as JSON."""
    project = sources.project
    graphs = [read_body(sources, flow) for flow in project.workflows]
    drawn = _Drawing(sources)
    flows = [drawn.workflow(graph) for graph in graphs]
    for agent in project.agents:
        drawn.agent(agent)
    told: dict[str, Any] = {
        "project": project.root.name,
        "layers": static_points.layers(sources),
        "workflows": flows,
        "parts": list(drawn.parts.values()),
        "links": drawn.links,
    }
    told["fingerprint"] = fingerprint(told)
    _lay_points(told, sources)
    seen = _History(project.store, graphs) if history and opener.exists(project.store) else None
    if seen is not None:
        seen.lay_over(told)
    told["runs"] = 0 if seen is None else seen.runs
    told["advice"] = advise(sources, graphs, {} if seen is None else seen.tools_called)
    return told


def fingerprint(told: dict[str, Any]) -> str:
    """The same while the picture is: of what is drawn, not of lines in files or of runs."""
    drawn = {
        "workflows": [
            {
                **{k: v for k, v in flow.items() if k not in ("file", "line")},
                "nodes": [
                    {k: v for k, v in node.items() if k not in ("file", "line")}
                    for node in flow["nodes"]
                ],
            }
            for flow in told["workflows"]
        ],
        "parts": [{k: v for k, v in part.items() if k != "place"} for part in told["parts"]],
        "links": told["links"],
    }
    return hashlib.sha256(json.dumps(drawn, sort_keys=True).encode()).hexdigest()


class _Drawing:
    """Nodes and links, told once each."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self.parts: dict[str, dict[str, Any]] = {}
        self.links: list[dict[str, str]] = []
        self.default_timeout = config.section("runtime", Settings).step_timeout

    def workflow(self, graph: BodyGraph) -> dict[str, Any]:
        flow = graph.workflow
        begun = graph.nodes[0]
        return {
            "name": flow.name,
            "file": begun.file,
            "line": begun.line,
            "about": _shape(flow.signature),
            "timeout": flow.timeout,
            "on_failure": None if flow.on_failure is None else flow.on_failure.name,
            "starts": [*(str(each) for each in flow.schedules), *sorted(flow.reactions)],
            "nodes": [self._node(graph, node) for node in graph.nodes],
            "edges": [
                {"from": e.source, "to": e.target, "kind": e.kind, "label": e.label}
                for e in graph.edges
            ],
        }

    def _node(self, graph: BodyGraph, node: Node) -> dict[str, Any]:
        told: dict[str, Any] = {
            "id": node.id,
            "kind": node.kind,
            "name": node.name,
            "file": node.file,
            "line": node.line,
            "depth": node.depth,
            "code": node.code,
            "helper": node.helper,
        }
        place = f"{graph.workflow.name}/{node.id}"
        target = node.target
        if isinstance(target, Step):
            step = cast("Step[..., Any]", target)
            limit = step.timeout or graph.workflow.step_timeout or self.default_timeout
            told |= {
                "about": _shape(step.signature),
                "options": {"retries": step.retries, "timeout": limit},
            }
            function = self.sources.function_of(step.function)
            if function is not None:
                told |= {"source": ast.unparse(function.node)[:4000]}
                self._used(place, function)
        elif isinstance(target, Workflow):
            told |= {"about": _shape(cast("Workflow[..., Any]", target).signature)}
        elif isinstance(target, Agent):
            self._link(place, self.agent(cast("Agent[Any]", target)), "uses")
        elif node.kind == "model":
            self._link(place, self._model(node.name), "uses")
        if node.kind in ASKING:
            told["crash"] = crash_at(graph, node)
            told["before"] = _bits(before(graph, node.id))
        return told

    def _used(self, place: str, function: SourceFunction) -> None:
        """Models, agents and sandboxes that a step uses, itself or in its helpers."""
        for each in self.sources.called(function):
            for call in each.own_calls():
                made = each.source.resolve(call.func)
                if made in _MODEL_CALLS and call.args:
                    self._link(place, self._model(text_of(call.args[0]) or "chosen there"), "uses")
                elif isinstance(call.func, ast.Attribute) and call.func.attr in ("run", "stream"):
                    agent = each.source.resolve(call.func.value)
                    if isinstance(agent, Agent):
                        self._link(place, self.agent(cast("Agent[Any]", agent)), "uses")
        for owner, call in static_points.creates(self.sources):
            if any(owner.node is each.node for each in self.sources.called(function)):
                self._link(place, self._sandbox(owner, call), "uses")

    def agent(self, agent: Agent[Any]) -> str:
        id = f"agent:{agent.name}:{agent.model}"
        if id not in self.parts:
            self.parts[id] = {
                "id": id, "band": "loop", "kind": "agent", "name": agent.name,
                "about": f"at most {agent.max_steps} model calls, {agent.max_time:g} s"
                + ("" if agent.budget is None else f", ${agent.budget}"),
            }  # fmt: skip
            self._link(id, self._model(agent.model), "uses")
            for each in agent.tools:
                self._link(id, self._tool(each), "uses")
        return id

    def _tool(self, given: Any) -> str:
        name = str(getattr(given, "name", getattr(given, "__name__", type(given).__name__)))
        id = f"tool:{name}"
        words = "a step" if isinstance(given, Step) else "a workflow"
        if isinstance(given, AgentTool):
            words = "may be done twice" if given.idempotent else "must not be done twice"
            if given.needs_approval is not False:
                words += ", after an approval"
        if id not in self.parts:
            self.parts[id] = {
                "id": id, "band": "loop", "kind": "tool", "name": name, "about": words,
                "idempotent": isinstance(given, AgentTool) and given.idempotent,
            }  # fmt: skip
            function = self.sources.function_of(given)
            if function is not None:
                self.parts[id]["place"] = f"{function.source.path}:{function.node.lineno}"
                self._used(id, function)
        return id

    def _model(self, name: str) -> str:
        id = f"model:{name}"
        if id not in self.parts:
            self.parts[id] = {"id": id, "band": "loop", "kind": "model", "name": name, "about": ""}
            provider = KNOWN.get(name.partition("/")[0])
            if provider is not None and provider.base_url and provider.key_env:
                host = provider.base_url.split("/")[2]
                self.parts[id]["about"] = f"{provider.key_env[0]} → {host}"
                self._secret(id, host, provider.key_env[0])
        return id

    def _secret(self, source: str, host: str, what: str) -> None:
        id = f"host:{host}"
        self.parts.setdefault(
            id, {"id": id, "band": "outside", "kind": "host", "name": host, "about": ""}
        )
        self._link(source, id, "secret", what)

    def _sandbox(self, function: SourceFunction, call: ast.Call) -> str:
        own = [each for owner, each in static_points.creates(self.sources) if owner == function]
        id = f"sandbox:{function.source.path}:{function.name}:{own.index(call)}"
        if id not in self.parts:
            said = {each.arg: ast.unparse(each.value) for each in call.keywords if each.arg}
            self.parts[id] = {
                "id": id, "band": "sandbox", "kind": "sandbox",
                "name": f"sandbox of {function.name}",
                "about": ", ".join(f"{k}={v}" for k, v in said.items() if k != "env")[:200],
                "network": said.get("network", "none"),
                "place": f"{function.source.path}:{call.lineno}",
            }  # fmt: skip
            network = keyword(call, "network")
            for rule in ast.walk(network) if network is not None else ():
                if isinstance(rule, ast.Call) and function.source.resolve(rule.func) is AllowedHost:
                    host = text_of(rule.args[0]) if rule.args else None
                    headers = keyword(rule, "headers")
                    names = [text_of(k) or "?" for k in getattr(headers, "keys", ())]
                    if host and names:
                        self._secret(id, host, f"{', '.join(names)}, added outside")
        return id

    def _link(self, source: str, target: str, kind: str, label: str = "") -> None:
        link = {"from": source, "to": target, "kind": kind, "label": label}
        if link not in self.links:
            self.links.append(link)


def _shape(signature: Signature) -> str:
    """Arguments and result, in a line: what passes the checkpoint."""
    arguments = ", ".join(f"{name}: {type_name(hint)}" for name, hint in signature.hints.items())
    return f"({arguments}) → {type_name(signature.result.hint)}"


def type_name(hint: Any) -> str:
    """A type as people write it."""
    if hint is None or hint is type(None):
        return "None"
    return (
        hint.__name__
        if isinstance(hint, type) and not hasattr(hint, "__args__")
        else (str(hint).replace("typing.", ""))
    )


# --- crash mode --------------------------------------------------------------------------------


def before(graph: BodyGraph, node: int) -> set[int]:
    """What may have been asked for and finished when a run is at a node."""
    into: dict[int, list[int]] = {}
    for edge in graph.edges:
        into.setdefault(edge.target, []).append(edge.source)
    seen: set[int] = set()
    open_ = list(into.get(node, ()))
    while open_:
        each = open_.pop()
        if each not in seen:
            seen.add(each)
            open_ += into.get(each, ())
    return {each for each in seen if graph.nodes[each].kind in ASKING}


def crash_at(graph: BodyGraph, node: Node) -> dict[str, str]:
    """What becomes of what is under way there, if its worker is killed: a word, and why."""
    match node.kind:
        case "step":
            return _crash("repeated", "begins again, with the same idempotency key: what it did "
                          "before the kill may be done twice")  # fmt: skip
        case "model":
            return _crash("repeated", "is asked again; the answer that was under way is lost")
        case "agent":
            agent = cast("Agent[Any] | None", node.target)
            unsafe = [t.name for t in _own_tools(agent) if not t.idempotent]
            if unsafe:
                return _crash(
                    "unknown",
                    "a model call or a tool that may be done twice is done again if it was under "
                    f"way. The outcome of {', '.join(unsafe)} is unknown, and the model is told so",
                )
            return _crash("repeated", "the model call or tool under way is done again")
        case "wait" | "approval" | "webhook":
            return _crash("kept", "waits on; what comes meanwhile is kept, and so is its deadline")
        case "timer":
            return _crash("kept", "fires at its moment, or at once if that has passed")
        case "child":
            return _crash("kept", "is a run of its own, and goes on by itself")
        case "note" | "start" | "event":
            return _crash("kept", "is made once: a second time is recognised")
        case _:
            return _crash("unknown", "can't be known from the source")


def _crash(outcome: str, why: str) -> dict[str, str]:
    return {"outcome": outcome, "why": why}


def _own_tools(agent: Agent[Any] | None) -> Iterator[AgentTool]:
    for each in () if agent is None else agent.tools:
        if isinstance(each, AgentTool):
            yield each


def _bits(nodes: set[int]) -> str:
    return f"{sum(1 << each for each in nodes):x}"


# --- what the doctor says, and what runs did ---------------------------------------------------


def _lay_points(told: dict[str, Any], sources: Sources) -> None:
    """The doctor's static points, beside the nodes they are about."""
    found: list[dict[str, Any]] = []
    for point, check in static_points.CHECKS.items():
        look = Look(sources.project, point, "S")
        check(look, sources)
        found += [
            {"point": point, "outcome": f.outcome, "message": f.message, "place": f.place}
            for f in look.findings
            if f.outcome in ("fail", "warn")
        ]
    told["points"] = found
    for flow in told["workflows"]:
        for node in flow["nodes"]:
            places = {f"{node['file']}:{node['line']}"}
            node["points"] = [each for each in found if each["place"] in places]


class _History:
    """What the newest runs of each workflow did, by node and edge."""

    def __init__(self, store: str, graphs: Sequence[BodyGraph]) -> None:
        self.runs = 0
        self.tools_called: dict[str, tuple[int, int]] = {}
        """By agent: in how many runs it worked, and how many tools it called in them."""
        self._graphs = {graph.workflow.name: graph for graph in graphs}
        self._seen: dict[str, dict[int, dict[str, Any]]] = {}
        self._edges: dict[str, dict[tuple[int, int], int]] = {}
        self._strays: dict[str, list[str]] = {}
        asyncio.run(self._ask(store))

    async def _ask(self, store: str) -> None:
        inspection = opener.inspection(store)
        try:
            await inspection.ask(self._read)
        finally:
            inspection.close()

    def _read(self, view: View) -> None:
        for name, graph in self._graphs.items():
            walker = Walker(graph)
            self._seen[name], self._edges[name], self._strays[name] = {}, {}, []
            for row in view.run_page(RunQuery(workflow=name), SAMPLE).rows:
                self.runs += 1
                journal = view.journal(row.run.id)
                way = walker.walk(journal)
                if way.problem:
                    self._strays[name].append(f"{row.run.id}: {way.problem}")
                for edge in way.edges:
                    self._edges[name][edge] = self._edges[name].get(edge, 0) + 1
                costs = {k: t.cost for k, t in view.call_totals_by_step(row.run.id).items()}
                self._count(name, way.nodes, journal, costs, row.run.id)

    def _count(
        self,
        name: str,
        nodes: dict[str, int],
        journal: list[JournalRow],
        costs: dict[str, int],
        run_id: str,
    ) -> None:
        begun = {e.key: e for e in journal if e.key in nodes and e.type not in _ENDS}
        agents: dict[int, int] = {}
        for event in journal:
            if event.key not in nodes:
                continue
            place = nodes[event.key]
            kept = self._seen[name].setdefault(
                place, {"times": 0, "failed": 0, "cost": 0, "took": [], "sizes": [], "runs": []}
            )
            if event.type in _ENDS:
                kept["took"].append(event.at - begun[event.key].at)
                kept["sizes"].append(event.size)
                kept["failed"] += event.type in (STEP_FAILED, WAIT_TIMED_OUT)
            else:
                kept["times"] += 1
                kept["cost"] += costs.get(event.key, 0)
                if run_id not in kept["runs"] and len(kept["runs"]) < 5:
                    kept["runs"].append(run_id)
                node = self._graphs[name].nodes[place]
                if node.kind == "agent":
                    tool = event.type == STEP_STARTED and str(event.facts["name"]).startswith(
                        "tool "
                    )
                    agents[place] = agents.get(place, 0) + tool
        for place, tools in agents.items():
            agent = self._graphs[name].nodes[place].name
            runs, called = self.tools_called.get(agent, (0, 0))
            self.tools_called[agent] = runs + 1, called + tools

    def lay_over(self, told: dict[str, Any]) -> None:
        for flow in told["workflows"]:
            seen, edges = self._seen[flow["name"]], self._edges[flow["name"]]
            for node in flow["nodes"]:
                kept = seen.get(node["id"])
                if kept is not None:
                    node["seen"] = {
                        "times": kept["times"],
                        "failed": kept["failed"],
                        "p95": _p95(kept["took"]),
                        "bytes": _p95(kept["sizes"]),
                        "usd": kept["cost"] / 1e9,
                        "runs": kept["runs"],
                    }
            for edge in flow["edges"]:
                edge["taken"] = edges.get((edge["from"], edge["to"]), 0)
            flow["strays"] = self._strays[flow["name"]][:5]


_ENDS = frozenset(
    {STEP_COMPLETED, STEP_FAILED, WAIT_TIMED_OUT, "wait.received", "timer.fired", "child.ended"}
)


def _p95(values: list[float]) -> float | None:
    if not values:
        return None
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.95))]
