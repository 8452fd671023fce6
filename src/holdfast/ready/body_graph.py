"""The control flow of a workflow's body as a graph: what it may ask for, in which order.

Read from the source, with names looked up in the module as it was loaded; helpers of the project
are read where they are called. The graph allows at least what the body can do: every journal of a
run is a walk of it (`journal_walk.py`). What can't be known from the source, such as a call of
something handed in, is a node of its own that allows anything, marked `dynamic`.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any, Literal, cast

from holdfast import (
    Agent,
    approval,
    continue_as_new,
    create_webhook,
    generate_object,
    generate_text,
    patched,
    publish,
    send_event,
    set_attributes,
    sleep,
    start,
    stream_text,
    wait_for_event,
    wait_for_update,
    write_stream,
)
from holdfast.loop.agent import run_agent
from holdfast.loop.tools import AgentTool
from holdfast.ready.source_code import Function, SourceFunction, Sources, keyword, text_of
from holdfast.records import (
    ATTRIBUTES_SET,
    CHILD_STARTED,
    STEP_STARTED,
    STREAM_WRITTEN,
    TIMER_SET,
    VALUE_PUBLISHED,
    WAIT_CREATED,
    WEBHOOK_CREATED,
)
from holdfast.runtime.definitions import Step, Workflow
from holdfast.runtime.updates import UPDATE
from holdfast.sandbox.sandbox import Sandbox

NodeKind = Literal[
    "begin", "end", "step", "child", "wait", "approval", "timer", "webhook", "agent", "model",
    "note", "patch", "start", "event", "sandbox", "branch", "loop", "except", "finally", "fork",
    "task", "join", "dynamic",
]  # fmt: skip
EdgeKind = Literal["control", "recovery", "spawn", "deferred"]
ASKING: frozenset[NodeKind] = frozenset(
    {"step", "child", "wait", "approval", "timer", "webhook", "agent", "model", "note", "start",
     "event", "sandbox", "dynamic"}
)  # fmt: skip
"""Nodes that stand for commands of the journal."""
ANYTHING = (("*", "*"),)
_APPROVAL = (
    (STEP_STARTED, "ask for approval"),
    (STEP_STARTED, "notify the approver"),
    (WAIT_CREATED, "@approval/*"),
    (STEP_STARTED, "read the decision"),
    (STEP_STARTED, "withdraw the approval"),
    (STEP_STARTED, "use the approval"),
)
_MODELS = tuple((STEP_STARTED, f"{kind}*") for kind in ("generate_", "stream_"))
_SPAWNERS: tuple[Any, ...] = (
    asyncio.gather, asyncio.wait, asyncio.wait_for, asyncio.shield, asyncio.as_completed,
    asyncio.create_task, asyncio.ensure_future,
)  # fmt: skip
_DEEPEST = 12
"""Helpers in helpers; what lies deeper is drawn as dynamic."""


@dataclass
class Node:
    """Something a body asks for, or a place where its way forks."""

    id: int
    kind: NodeKind
    name: str
    file: str
    line: int
    depth: int
    """How deep it stands in branches, loops and helpers: for drawing."""
    accepts: tuple[tuple[str, str], ...] = ()
    """Commands of the journal it stands for: type and name; `*` at the end for any rest."""
    repeats: bool = False
    target: Any = None
    """The step, workflow or agent itself."""
    code: str = ""
    helper: str = ""
    """The helper it stands in, if not in the body itself."""

    def allows(self, type: str, name: str) -> bool:
        return any(_fits(kind, type) and _fits(said, name) for kind, said in self.accepts)


def _fits(pattern: str, text: str) -> bool:
    return text.startswith(pattern[:-1]) if pattern.endswith("*") else pattern == text


@dataclass(frozen=True)
class Edge:
    source: int
    target: int
    kind: EdgeKind = "control"
    label: str = ""


@dataclass
class BodyGraph:
    """One workflow's body. The first node is its beginning, the last its end."""

    workflow: Workflow[..., Any]
    nodes: list[Node] = field(default_factory=list[Node])
    edges: list[Edge] = field(default_factory=list[Edge])

    @property
    def end(self) -> Node:
        return self.nodes[-1]

    def next(self, node: int, *kinds: EdgeKind) -> Iterator[int]:
        for edge in self.edges:
            if edge.source == node and (not kinds or edge.kind in kinds):
                yield edge.target


Loose = list[tuple[int, str]]
"""Ends that the next node is joined to, each with the word for the way there."""


@dataclass
class _Frame:
    """A function whose statements are being read."""

    function: SourceFunction
    exits: Loose = field(default_factory=list[tuple[int, str]])
    loops: list[_Loop] = field(default_factory=list["_Loop"])
    finals: list[_Final] = field(default_factory=list["_Final"])
    tasks: list[tuple[int, Loose]] = field(default_factory=list[tuple[int, Loose]])
    """What was called and not awaited there: it runs as a task, or is awaited later."""
    assigned: dict[str, ast.AST | None] = field(default_factory=dict[str, ast.AST | None])


@dataclass
class _Loop:
    node: int
    finals: int
    breaks: Loose = field(default_factory=list[tuple[int, str]])


@dataclass
class _Final:
    jumps: Loose = field(default_factory=list[tuple[int, str]])
    ways: set[str] = field(default_factory=set[str])


@dataclass(frozen=True)
class LocalAgent:
    """An agent made in the body itself: what is written there is all that is known."""

    call: ast.Call


def read_body(sources: Sources, flow: Workflow[..., Any]) -> BodyGraph:
    """The graph of a workflow of the project."""
    return _Reader(sources, flow).read()


class _Reader:
    def __init__(self, sources: Sources, flow: Workflow[..., Any]) -> None:
        self.sources, self.graph = sources, BodyGraph(flow)
        self.frames: list[_Frame] = []
        self.catches: list[int] = []
        self.loose: Loose = []
        self.depth = 0
        self._seen: set[tuple[int, int, str]] = set()

    def read(self) -> BodyGraph:
        function = self.sources.function_of(self.graph.workflow.function)
        if function is None:
            code = self.graph.workflow.function.__code__
            place = self.sources.project.relative(code.co_filename), code.co_firstlineno
            self.graph.nodes = [
                Node(0, "begin", self.graph.workflow.name, *place, 0),
                Node(1, "dynamic", "its source was not found", *place, 0, ANYTHING, True),
                Node(2, "end", "end", *place, 0),
            ]
            self.graph.edges = [Edge(0, 1), Edge(1, 2), Edge(0, 2)]
            return self.graph
        self.frames.append(_Frame(function, assigned=_assigned(function.node)))
        self._add("begin", self.graph.workflow.name, function.node)
        self._statements(function.node.body)
        self.loose += self.frames[-1].exits
        self._add("end", "end", function.node)
        self.frames.pop()
        _without_bare(self.graph)
        return self.graph

    # --- nodes and edges ---

    def _add(
        self,
        kind: NodeKind,
        name: str,
        at: ast.AST,
        accepts: Sequence[tuple[str, str]] = (),
        *,
        repeats: bool = False,
        target: Any = None,
    ) -> int:
        frame = self.frames[-1]
        node = Node(
            len(self.graph.nodes), kind, name, frame.function.source.path,
            int(getattr(at, "lineno", frame.function.node.lineno)), self.depth, tuple(accepts),
            repeats, target, _short(at) if kind not in ("begin", "end") else "",
            frame.function.name if len(self.frames) > 1 else "",
        )  # fmt: skip
        self.graph.nodes.append(node)
        self._join(self.loose, node.id)
        if self.catches and kind != "end":
            self._edge(node.id, self.catches[-1], "recovery", "raises")
        self.loose = [(node.id, "")]
        return node.id

    def _edge(self, source: int, target: int, kind: EdgeKind = "control", label: str = "") -> None:
        if (source, target, kind) not in self._seen:
            self._seen.add((source, target, kind))
            self.graph.edges.append(Edge(source, target, kind, label))

    def _join(self, loose: Loose, target: int, kind: EdgeKind = "control") -> None:
        for source, label in loose:
            self._edge(source, target, kind, label)

    @contextmanager
    def _deeper(self) -> Generator[None]:
        self.depth += 1
        yield
        self.depth -= 1

    # --- statements ---

    def _statements(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                pass
            case ast.If():
                self._if(node)
            case ast.For() | ast.AsyncFor() | ast.While():
                self._loop(node)
            case ast.Try() | ast.TryStar():
                self._try(node)
            case ast.With() | ast.AsyncWith():
                self._with(node)
            case ast.Match():
                self._match(node)
            case ast.Return():
                self._expression(node.value)
                self._jump("return")
            case ast.Break():
                self._jump("break")
            case ast.Continue():
                self._jump("continue")
            case ast.Raise():
                self._expression(node.exc)
                # Nodes before it lead to the handlers already; a bare `raise` needs its own way.
                if self.catches:
                    self._join(self.loose, self.catches[-1], "recovery")
                self.loose = []
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                self._expression(node.value)
            case _:
                for child in ast.iter_child_nodes(node):
                    self._expression(child)

    def _if(self, node: ast.If) -> None:
        self._expression(node.test)
        here = self._add("branch", f"if {ast.unparse(node.test)}", node)
        with self._deeper():
            self.loose = [(here, "yes")]
            self._statements(node.body)
            after = self.loose
            self.loose = [(here, "no")]
            self._statements(node.orelse)
        self.loose += after

    def _match(self, node: ast.Match) -> None:
        self._expression(node.subject)
        here = self._add("branch", f"match {ast.unparse(node.subject)}", node)
        after: Loose = [(here, "none")]
        with self._deeper():
            for case in node.cases:
                self.loose = [(here, ast.unparse(case.pattern)[:30])]
                self._statements(case.body)
                after += self.loose
        self.loose = after

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While) -> None:
        frame = self.frames[-1]
        if not isinstance(node, ast.While):
            self._expression(node.iter)
            name = f"for {ast.unparse(node.target)} in {ast.unparse(node.iter)}"
        else:
            name = f"while {ast.unparse(node.test)}"
        here = self._add("loop", name, node)
        if isinstance(node, ast.While):
            self._expression(node.test)
        tested = self.loose
        frame.loops.append(_Loop(here, len(frame.finals)))
        with self._deeper():
            self.loose = [(each, "again") for each, _ in tested]
            self._statements(node.body)
            self._join(self.loose, here)
            done = frame.loops.pop()
            forever = isinstance(node, ast.While) and _is_true(node.test)
            self.loose = [] if forever else [(each, "done") for each, _ in tested]
            self._statements(node.orelse)
        self.loose += done.breaks

    def _try(self, node: ast.Try | ast.TryStar) -> None:
        frame = self.frames[-1]
        final = _Final()
        if node.finalbody:
            frame.finals.append(final)
        entered = self.loose
        self.loose = []
        catch = self._add("except", "if it raises", node)
        self.loose = entered
        # Something that asks for nothing may raise before the first node of the block.
        self._join(entered, catch, "recovery")
        self.catches.append(catch)
        with self._deeper():
            self._statements(node.body)
            self.catches.pop()
            self._statements(node.orelse)
            after = self.loose
            for handler in node.handlers:
                words = "except" if handler.type is None else f"except {ast.unparse(handler.type)}"
                self.loose = [(catch, words)]
                self._statements(handler.body)
                after += self.loose
        self.loose = after
        if node.finalbody:
            frame.finals.pop()
            self.loose = [*after, *final.jumps, (catch, "other errors")]
            here = self._add("finally", "finally", node.finalbody[0])
            with self._deeper():
                self._statements(node.finalbody)
            behind = self.loose
            if self.catches:
                self._join(behind, self.catches[-1], "recovery")
            for way in sorted(final.ways):
                self.loose = list(behind)
                self._jump(way)
            self.loose = behind if after or here in {each for each, _ in behind} else []

    def _with(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            self._expression(item.context_expr)
            called = item.context_expr
            if isinstance(called, ast.Call) and self._resolve(called.func) in (
                asyncio.timeout,
                asyncio.timeout_at,
            ):
                self._optional("timer", "timeout", called, ((TIMER_SET, "timer"),))
        self._statements(node.body)
        if isinstance(node, ast.AsyncWith):
            self._await_tasks(node)  # a task group waits for its own

    def _jump(self, way: str) -> None:
        frame = self.frames[-1]
        if way == "return":
            around, into = len(frame.finals) > 0, frame.exits
        elif not frame.loops:
            return
        else:
            around = len(frame.finals) > frame.loops[-1].finals
            into = frame.loops[-1].breaks
        if around:
            frame.finals[-1].jumps += self.loose
            frame.finals[-1].ways.add(way)
        elif way == "continue":
            self._join(self.loose, frame.loops[-1].node)
        else:
            into += self.loose
        self.loose = []

    # --- expressions ---

    def _expression(self, node: ast.AST | None) -> None:
        match node:
            case None | ast.Lambda():
                pass
            case ast.Await(value=ast.Call() as call):
                self._awaited(call)
            case ast.Await():
                self._expression(node.value)
                self._await_tasks(node)
            case ast.Call():
                self._called(node)
            case ast.IfExp():
                self._expression(node.test)
                begun = self.loose
                self._expression(node.body)
                after = self.loose
                self.loose = begun
                self._expression(node.orelse)
                self.loose = [*after, *(each for each in self.loose if each not in after)]
            case ast.BoolOp():
                self._expression(node.values[0])
                for value in node.values[1:]:
                    begun = self.loose
                    self._expression(value)
                    self.loose = [*self.loose, *(each for each in begun if each not in self.loose)]
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                self._comprehension(node)
            case _:
                for child in ast.iter_child_nodes(node):
                    self._expression(child)

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
    ) -> None:
        inner = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        tests = [each for generator in node.generators for each in generator.ifs]
        self._expression(node.generators[0].iter)
        if not any(
            isinstance(each, ast.Call) for part in (*inner, *tests) for each in ast.walk(part)
        ):
            return
        here = self._add("loop", f"for … in {ast.unparse(node.generators[0].iter)}", node)
        with self._deeper():
            for part in (*(g.iter for g in node.generators[1:]), *tests, *inner):
                self._expression(part)
            self._join(self.loose, here)
        self.loose = [(here, "done")]

    def _arguments(self, call: ast.Call) -> None:
        if not isinstance(call.func, ast.Name):
            self._expression(call.func)
        for argument in (*call.args, *(each.value for each in call.keywords)):
            self._expression(argument)

    def _awaited(self, call: ast.Call) -> None:
        target = self._resolve(call.func)
        frame = self.frames[-1]
        known = len(frame.tasks)
        self._arguments(call)
        if any(target is each for each in _SPAWNERS):
            self._fork(call, frame.tasks[known:], timer=target in (asyncio.wait_for, asyncio.wait))
        elif not self._ask(target, call, awaited=True):
            self._unknown(target, call)

    def _fork(self, call: ast.Call, tasks: list[tuple[int, Loose]], *, timer: bool) -> None:
        if timer:
            self._optional("timer", "timeout", call, ((TIMER_SET, "timer"),))
        for entry, _ in tasks:
            self._join(self.loose, entry, "spawn")
        self._await_tasks(call)

    def _await_tasks(self, at: ast.AST) -> None:
        """Wait for what was called before: as tasks of their own, or carried out only here."""
        tasks = self.frames[-1].tasks
        if not tasks:
            return
        here = self._add("join", "wait for tasks", at)
        for entry, exits in tasks:
            self._edge(here, entry, "deferred")
            self._join(exits, here, "deferred")

    def _called(self, call: ast.Call) -> None:
        """A call that is not awaited there and then."""
        target = self._resolve(call.func)
        frame = self.frames[-1]
        known = len(frame.tasks)
        self._arguments(call)
        spawns = any(target is each for each in _SPAWNERS) or (
            isinstance(call.func, ast.Attribute) and call.func.attr == "create_task"
        )
        if spawns:
            for entry, _ in frame.tasks[known:]:
                self._join(self.loose, entry, "spawn")
        elif _is_later(target):
            self._task(target, call)
        else:
            self._ask(target, call, awaited=False)

    def _task(self, target: Any, call: ast.Call) -> None:
        kept = self.loose, self.catches
        self.loose, self.catches = [], []
        with self._deeper():
            entry = self._add("task", f"task {_called_name(call)}", call)
            frame = self.frames[-1]
            loops, finals = frame.loops, frame.finals
            frame.loops, frame.finals = [], []
            if not self._ask(target, call, awaited=True):
                self._unknown(target, call)
            frame.loops, frame.finals = loops, finals
        self.frames[-1].tasks.append((entry, self.loose))
        self.loose, self.catches = kept

    def _unknown(self, target: Any, call: ast.Call) -> None:
        """Something awaited that can't be read: it may ask for anything, or for nothing."""
        module = str(getattr(target, "__module__", ""))
        if target is not None and module.split(".", maxsplit=1)[0] in ("asyncio", "builtins"):
            return
        self._optional("dynamic", _called_name(call), call, ANYTHING, repeats=True)

    def _optional(
        self,
        kind: NodeKind,
        name: str,
        at: ast.AST,
        accepts: Sequence[tuple[str, str]],
        *,
        repeats: bool = False,
    ) -> None:
        before = self.loose
        self._add(kind, name, at, accepts, repeats=repeats)
        self.loose = [*self.loose, *before]

    def _ask(self, target: Any, call: ast.Call, *, awaited: bool) -> bool:
        """A node for a call that is known, or the helper's own; whether it was."""
        match target:
            case Step():
                self._add("step", target.name, call, ((STEP_STARTED, target.name),), target=target)
            case Workflow():
                asked = ((CHILD_STARTED, target.name),)
                self._add("child", target.name, call, asked, target=target)
            case Agent() | LocalAgent():
                self._agent(cast("Agent[Any] | LocalAgent", target), call)
            case SourceFunction():
                return self._inline(target, call)
            case FunctionType() if self._known(target, call):
                pass
            case FunctionType():
                found = self.sources.function_of(target)
                if found is None or found.kind != "plain":
                    return not awaited
                return self._inline(found, call)
            case _:
                return not awaited
        return True

    def _known(self, target: Any, call: ast.Call) -> bool:
        first = _text(call.args[0]) if call.args else "*"
        if target is wait_for_event:
            self._add("wait", first, call, ((WAIT_CREATED, first),))
        elif target is wait_for_update:
            self._add("wait", f"update {first}", call, ((WAIT_CREATED, UPDATE + first),))
        elif target is approval:
            self._add("approval", first.strip("*") or "approval", call, _APPROVAL, repeats=True)
        elif target is sleep or target is asyncio.sleep:
            said = ast.unparse(call.args[0]) if call.args else ""
            asked = ((TIMER_SET, "sleep"), (TIMER_SET, "timer"))
            self._optional("timer", f"sleep {said}", call, asked)
        elif target is create_webhook:
            self._add("webhook", "webhook", call, ((WEBHOOK_CREATED, "*"),))
        elif target in (generate_text, generate_object, stream_text):
            self._optional("model", first, call, _MODELS, repeats=True)
        elif target is run_agent:
            self._agent(LocalAgent(call), call)
        elif target is start:
            name = ast.unparse(call.args[0]) if call.args else "?"
            self._add("start", name, call, ((STEP_STARTED, "start"),))
        elif target is send_event:
            self._add("event", first, call, ((STEP_STARTED, "send_event"),))
        elif target is set_attributes:
            self._add("note", "set_attributes", call, ((ATTRIBUTES_SET, "*"),))
        elif target is publish:
            self._add("note", f"publish {first}", call, ((VALUE_PUBLISHED, "*"),))
        elif target is write_stream:
            self._add("note", "write_stream", call, ((STREAM_WRITTEN, "*"),))
        elif target is patched:
            self._add("patch", first, call)
        elif target is continue_as_new:
            self._add("join", "continue as new", call)
        elif target is getattr(Sandbox.create, "__func__", None):
            self._optional("sandbox", "sandbox", call, ANYTHING, repeats=True)
        else:
            return False
        return True

    def _agent(self, target: Agent[Any] | LocalAgent, call: ast.Call) -> None:
        if isinstance(target, LocalAgent):
            named = text_of(keyword(target.call, "name"))
            self._optional("agent", named or "agent", call, ANYTHING, repeats=True)
            return
        asked = tuple(dict.fromkeys(_asked_by(target, set())))
        self._add("agent", target.name, call, asked, repeats=True, target=target)

    def _inline(self, function: SourceFunction, call: ast.Call) -> bool:
        stack = [frame.function.node for frame in self.frames]
        if function.node in stack or len(stack) > _DEEPEST:
            self._optional("dynamic", f"{function.name} again", call, ANYTHING, repeats=True)
            return True
        frame = _Frame(function, assigned=_assigned(function.node))
        self.frames.append(frame)
        with self._deeper():
            self._statements(function.node.body)
        self.loose = [*self.loose, *frame.exits]
        self.frames.pop()
        return True

    # --- names ---

    def _resolve(self, node: ast.AST) -> Any:
        """The object that is called, if the source says which."""
        frame = self.frames[-1]
        match node:
            case ast.Name():
                if node.id in frame.assigned:
                    given = frame.assigned[node.id]
                    if isinstance(given, ast.FunctionDef | ast.AsyncFunctionDef):
                        return SourceFunction(frame.function.source, given)
                    return None if given is None else self._resolve(given)
                return frame.function.source.resolve(node)
            case ast.Attribute():
                return self._member(self._resolve(node.value), node.attr)
            case ast.Call():
                made = self._resolve(node.func)
                if isinstance(made, Step | Workflow):
                    # `.options(…)` of one: the same, called in a certain way.
                    asked = isinstance(node.func, ast.Attribute) and node.func.attr == "options"
                    return made if asked else None  # pyright: ignore[reportUnknownVariableType]
                return LocalAgent(node) if made is Agent else None
            case _:
                return None

    def _member(self, base: Any, name: str) -> Any:
        if isinstance(base, Step | Workflow):
            return base if name == "options" else None  # pyright: ignore[reportUnknownVariableType]
        if isinstance(base, Agent | LocalAgent):
            return base if name in ("run", "stream") else None  # pyright: ignore[reportUnknownVariableType]
        if base is Sandbox and name == "create":
            return Sandbox.create.__func__
        if isinstance(base, ModuleType | type):
            # Only where looking carries out nothing of the user's.
            return inspect.getattr_static(cast("Any", base), name, None)
        if base is None:
            return None
        found = inspect.getattr_static(cast("Any", type(base)), name, None)
        return found if isinstance(found, FunctionType) else None


def _without_bare(graph: BodyGraph) -> None:
    """Take out branches, loops and handlers in which nothing is asked for; ways stay."""
    bare = {
        node.id
        for place, node in enumerate(graph.nodes)
        if node.kind in ("branch", "loop", "except", "finally") and not _has_asking(graph, place)
    }
    into: dict[int, list[Edge]] = {}
    out: dict[int, list[Edge]] = {}
    for edge in graph.edges:
        into.setdefault(edge.target, []).append(edge)
        out.setdefault(edge.source, []).append(edge)
    for gone in bare:
        for before in into.pop(gone, []):
            for after in out.get(gone, []):
                if gone in (before.source, after.target):
                    continue
                kind = before.kind if before.kind != "control" else after.kind
                made = Edge(before.source, after.target, kind, before.label)
                out.setdefault(before.source, []).append(made)
                into.setdefault(after.target, []).append(made)
        out.pop(gone, None)
    places = {
        node.id: number for number, node in enumerate(n for n in graph.nodes if n.id not in bare)
    }
    seen: dict[tuple[int, int, str], Edge] = {}
    for source, edges in out.items():
        for edge in edges:
            if source in places and edge.target in places:
                moved = Edge(places[source], places[edge.target], edge.kind, edge.label)
                seen.setdefault((moved.source, moved.target, moved.kind), moved)
    graph.nodes = [node for node in graph.nodes if node.id not in bare]
    for node in graph.nodes:
        node.id = places[node.id]
    graph.edges = list(seen.values())


def _has_asking(graph: BodyGraph, place: int) -> bool:
    """Whether something is asked for in what stands below a node."""
    for node in graph.nodes[place + 1 :]:
        if node.depth <= graph.nodes[place].depth:
            return False
        if node.kind in ASKING or node.kind == "patch":
            return True
    return False


def _asked_by(agent: Agent[Any], seen: set[int]) -> Iterator[tuple[str, str]]:
    """What a run of an agent may ask for: models, tools, approvals, its time limits."""
    if id(agent) in seen:
        return
    seen.add(id(agent))
    yield from (*_MODELS, *_APPROVAL, (TIMER_SET, "timer"), (STEP_STARTED, "set the budget"))
    yield STREAM_WRITTEN, "*"
    for each in agent.tools:
        match each:
            case Step():
                yield STEP_STARTED, each.name
            case Workflow():
                yield CHILD_STARTED, each.name
            case AgentTool(place="body"):
                yield from ANYTHING  # another agent, or a body's own code
            case AgentTool():
                yield STEP_STARTED, f"tool {each.name}"
            case FunctionType():
                yield STEP_STARTED, f"tool {each.__name__}"
            case _:
                yield from ANYTHING  # a server of tools, which says what it has when it is asked
    if agent.prepare_step is not None or agent.on_step_finish is not None:
        yield from ANYTHING


def _is_later(target: Any) -> bool:
    """Whether calling it, without await, gives something that is carried out later."""
    if isinstance(target, Step | Workflow | Agent | LocalAgent):
        return True
    if isinstance(target, SourceFunction):
        return isinstance(target.node, ast.AsyncFunctionDef)
    return inspect.iscoroutinefunction(target)


def _assigned(node: Function) -> dict[str, ast.AST | None]:
    """The local names of a function, each with what it stands for if that is said exactly once."""
    arguments = node.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    found: dict[str, ast.AST | None] = {each.arg: None for each in every}
    for each in (arguments.vararg, arguments.kwarg):
        if each is not None:
            found[each.arg] = None
    for part in ast.walk(node):
        if part is node:
            continue
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            found[part.name] = None if part.name in found else part
        elif isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Name):
            name = part.targets[0].id
            found[name] = None if name in found else part.value
        elif (
            isinstance(part, ast.Name)
            and isinstance(part.ctx, ast.Store)
            and (part.id not in found or not _assigns(node, part.id))
        ):
            found[part.id] = None
    return {name: _plain(value) for name, value in found.items()}


def _assigns(node: Function, name: str) -> bool:
    """Whether the name is stored to in one plain assignment alone."""
    stored = [
        part
        for part in ast.walk(node)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store) and part.id == name
    ]
    return len(stored) == 1


def _plain(value: ast.AST | None) -> ast.AST | None:
    kinds = ast.Call | ast.Attribute | ast.FunctionDef | ast.AsyncFunctionDef
    return value if isinstance(value, kinds) else None


def _is_true(test: ast.expr) -> bool:
    return isinstance(test, ast.Constant) and bool(test.value)


def _text(node: ast.AST) -> str:
    """A text as far as the source says it, with `*` for the rest."""
    if (said := text_of(node)) is not None:
        return said
    if isinstance(node, ast.JoinedStr) and node.values:
        return f"{text_of(node.values[0]) or ''}*"
    return "*"


def _called_name(call: ast.Call) -> str:
    return ast.unparse(call.func)[:60]


def _short(node: ast.AST) -> str:
    text = ast.unparse(node).splitlines()[0] if isinstance(node, ast.expr) else ""
    return text if len(text) <= 200 else f"{text[:199]}…"
