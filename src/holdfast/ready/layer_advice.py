"""Which row of the decision matrix a project is, which it needs, and why.

Loop, runtime, sandbox: what is used is read from the code; what is needed follows from what the
code does. Every reason names its place or the runs it was seen in.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holdfast.loop.tools import AgentTool
from holdfast.ready import static_points
from holdfast.ready.body_graph import BodyGraph
from holdfast.ready.source_code import SourceFunction, Sources

LAYERS = ("loop", "runtime", "sandbox")
_RUNS_CODE = {
    "exec",
    "eval",
    "system",
    "popen",
    "create_subprocess_shell",
    "create_subprocess_exec",
}
_PROCESSES = {"run", "Popen", "call", "check_call", "check_output"}
_DURABLE = {"wait": "waits for an event", "approval": "waits for a person", "timer": "sleeps",
            "webhook": "waits for a webhook", "child": "has children"}  # fmt: skip
ENOUGH = 20
"""Runs before what an agent never did says something."""


def advise(
    sources: Sources, graphs: Sequence[BodyGraph], called: Mapping[str, tuple[int, int]]
) -> dict[str, Any]:
    """The rows, in words and as JSON; `called`: runs and tool calls by the agent's name."""
    used = [each for each in LAYERS if each in static_points.layers(sources).split(" + ")]
    reasons = {
        "loop": list(_loop(sources)),
        "runtime": list(_runtime(sources, graphs)),
        "sandbox": list(_sandbox(sources)),
    }
    needed = [each for each in LAYERS if reasons[each]]
    if "sandbox" in needed and "runtime" not in needed and reasons["loop"]:
        needed = ["loop", "runtime", "sandbox"]
        reasons["runtime"] = ["a sandbox made in a step ends with its run, whatever is killed"]
    notes = [
        f"{name} is an agent that called no tool in {runs} runs: generate_object would do"
        for name, (runs, tools) in sorted(called.items())
        if runs >= ENOUGH and tools == 0
    ]
    notes += [
        f"the {each} is used, and nothing here asks for it"
        for each in used
        if each not in needed and each != "loop"
    ]
    return {
        "is": " + ".join(used) or "none",
        "needs": " + ".join(needed) or "none",
        "reasons": {each: reasons[each] for each in needed},
        "notes": notes,
    }


def words(advice: Mapping[str, Any]) -> list[str]:
    """The advice in lines."""
    same = advice["is"] == advice["needs"]
    lines = [f"uses {advice['is']}", f"needs {advice['needs']}{', as it is' if same else ''}"]
    for layer, reasons in advice["reasons"].items():
        lines += [f"  {layer}: {reason}" for reason in reasons[:5]]
        if len(reasons) > 5:
            lines.append(f"  {layer}: and {len(reasons) - 5} more reasons")
    return [*lines, *(f"note: {each}" for each in advice["notes"])]


def _loop(sources: Sources) -> Iterator[str]:
    for agent in sources.project.agents:
        tools = f"{len(agent.tools)} tools" if agent.tools else "no tools"
        yield f"the agent {agent.name} decides what to do next, with {tools}"


def _runtime(sources: Sources, graphs: Sequence[BodyGraph]) -> Iterator[str]:
    for graph in graphs:
        for node in graph.nodes:
            if node.kind in _DURABLE:
                place = f"{node.file}:{node.line}"
                yield f"{graph.workflow.name} {_DURABLE[node.kind]} ({node.name}, {place})"
        steps = {node.name for node in graph.nodes if node.kind == "step"}
        if len(steps) > 1:
            yield f"{graph.workflow.name} has {len(steps)} steps: what was done is not done again"
    for tool in sources.project.tools:
        if not tool.idempotent:
            yield f"the tool {tool.name} must not be done twice{_at(sources, tool)}"
        if tool.needs_approval is not False:
            yield f"the tool {tool.name} waits for a person{_at(sources, tool)}"


def _at(sources: Sources, tool: AgentTool) -> str:
    file, line = sources.project.place(tool)
    return "" if file is None else f" ({file}:{line})"


def _sandbox(sources: Sources) -> Iterator[str]:
    for function, call in static_points.creates(sources):
        yield f"{function.name} makes one ({function.source.path}:{call.lineno})"
    for function in sources.of_kind("tool"):
        for call in function.own_calls():
            if _runs_code(function, call):
                yield (
                    f"the tool {function.name} runs what a model gave it, outside of one "
                    f"({function.source.path}:{call.lineno})"
                )


def _runs_code(function: SourceFunction, call: ast.Call) -> bool:
    """Whether a call runs a program or code that comes with the tool's arguments."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    made = function.source.resolve(call.func)
    module = str(getattr(made, "__module__", "")).split(".")[0]
    known = name in _RUNS_CODE and module in ("builtins", "os", "posix", "asyncio")
    known = known or (name in _PROCESSES and module == "subprocess")
    given = {each.arg for each in function.node.args.args}
    return known and any(
        isinstance(part, ast.Name) and part.id in given
        for argument in call.args
        for part in ast.walk(argument)
    )
