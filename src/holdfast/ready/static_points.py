"""The points as far as code and configuration tell: nothing of the project is carried out.

Signatures, captures and options are asked of the loaded objects; bodies are read as trees. Each
check is a function of a `Look`, under the id of its point.
"""

from __future__ import annotations

import ast
import asyncio
import datetime
import io
import random
import re
import socket
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any, cast

from holdfast import approval, config, wait_for_event, wait_for_update
from holdfast.durations import seconds
from holdfast.errors import HoldfastError
from holdfast.gateway.config import GatewayConfig
from holdfast.loop.tools import AgentTool
from holdfast.ready.look import Look
from holdfast.ready.source_code import (
    SANDBOX,
    START,
    Source,
    SourceFunction,
    Sources,
    keyword,
    text_of,
    words_in,
)
from holdfast.runtime.codec import codec_for
from holdfast.runtime.context import Webhook
from holdfast.runtime.definitions import Workflow
from holdfast.runtime.retention import RetentionSettings
from holdfast.runtime.settings import Settings

Check = Callable[[Look, Sources], None]

# --- 1 to 4: what crosses a checkpoint, and what bodies may do ---------------------------------


def signatures(look: Look, sources: Sources) -> None:
    project = look.project
    durable: list[Any] = [*project.workflows, *project.steps]
    for each in durable:
        try:
            each.signature.check()
        except HoldfastError as error:
            look.fail(f"{each.name}: {error.message}", each)
    for tool in project.tools:
        try:
            _ = tool.wire
            codec_for(_result_hint(tool))
        except HoldfastError as error:
            look.fail(f"tool {tool.name}: {error.message}", tool)
    look.seen(len(durable) + len(project.tools), "signatures of workflows, steps and tools")


def _result_hint(tool: AgentTool) -> Any:
    import typing

    return typing.get_type_hints(tool.function).get("return", Any)


_LIVE: tuple[type[Any], ...] = (
    socket.socket,
    io.IOBase,
    threading.Thread,
    threading.Event,
    threading.Condition,
    type(threading.Lock()),
    type(threading.RLock()),
    asyncio.Lock,
    asyncio.Event,
    asyncio.Semaphore,
    asyncio.Queue,
    asyncio.Future,
    asyncio.AbstractEventLoop,
    types.GeneratorType,
    types.CoroutineType,
    types.AsyncGeneratorType,
)
_CLIENTS = ("openai", "anthropic", "httpx", "aiohttp", "requests", "urllib3", "sqlalchemy",
            "sqlite3", "psycopg", "psycopg2", "asyncpg", "redis", "boto3", "botocore",
            "pymongo")  # fmt: skip


def _is_live(value: Any) -> bool:
    kind = cast("type[Any]", type(value))
    if kind is type or isinstance(value, types.ModuleType | types.FunctionType):
        return False
    library = str(kind.__module__).split(".")[0] in _CLIENTS
    return issubclass(kind, _LIVE) or (library and not issubclass(kind, type | BaseException))


def live_objects(look: Look, sources: Sources) -> None:
    for flow in look.project.workflows:
        for name, value, how in _reached(flow.function):
            if _is_live(value):
                kind = f"{type(value).__module__}.{type(value).__qualname__}"
                look.fail(f"workflow {flow.name} {how} {name}, a live {kind}", flow)
    for step in look.project.steps:
        for name, value, how in _defaults(step.function):
            if _is_live(value):
                look.fail(f"step {step.name} {how} {name}, a live {type(value).__qualname__}", step)
    look.seen(len(look.project.workflows) + len(look.project.steps), "bodies and their captures")


def _reached(function: Any) -> Iterator[tuple[str, Any, str]]:
    """What a body can reach besides its arguments: (name, value, how)."""
    code: types.CodeType = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents, "captures"
        except ValueError:
            continue  # not filled: nothing to see
    yield from _defaults(function)
    for name in _global_names(code):
        if name in function.__globals__:
            yield name, function.__globals__[name], "uses the global"


def _defaults(function: Any) -> Iterator[tuple[str, Any, str]]:
    code: types.CodeType = function.__code__
    given: tuple[Any, ...] = function.__defaults__ or ()
    named: dict[str, Any] = function.__kwdefaults__ or {}
    names = code.co_varnames[: code.co_argcount][code.co_argcount - len(given) :]
    for name, value in [*zip(names, given, strict=True), *named.items()]:
        yield name, value, "has as default of"


def _global_names(code: types.CodeType) -> set[str]:
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _global_names(constant)
    return found


_CLOCKS = {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"}
_MOMENTS = {"now", "utcnow", "today"}


def determinism(look: Look, sources: Sources) -> None:
    flows = sources.of_kind("workflow")
    for flow in flows:
        for function in sources.called(flow):
            for node, what in _undetermined(function):
                look.fail(f"workflow {flow.name}: {what}", (function.source, node))
    look.seen(len(flows), "workflow bodies, with the functions they call")


def _undetermined(function: SourceFunction) -> Iterator[tuple[ast.AST, str]]:
    source = function.source
    for node in function.own_nodes():
        if isinstance(node, ast.Global):
            yield node, f"writes the global {', '.join(node.names)}"
        elif isinstance(node, ast.For | ast.comprehension) and _is_set(node.iter, source):
            yield node.iter, "goes through a set, whose order differs between processes"
        elif isinstance(node, ast.Attribute | ast.Name):
            what = _source_of_chance(source, node)
            if what:
                yield node, what


def _is_set(node: ast.expr, source: Source) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    return isinstance(node, ast.Call) and source.resolve(node.func) in (set, frozenset)


def _source_of_chance(source: Source, node: ast.Attribute | ast.Name) -> str | None:
    import os
    import secrets
    import time
    import uuid

    found = source.resolve(node)
    if found is None:
        return None
    if isinstance(node, ast.Attribute):
        base = source.resolve(node.value)
        if base is random or base is secrets:
            return f"uses {base.__name__}.{node.attr}"
        if isinstance(base, type) and issubclass(base, datetime.date) and node.attr in _MOMENTS:
            return f"asks the clock: {base.__name__}.{node.attr}"
    if found is os.environ or found is os.getenv:
        return "reads the environment"
    if found in (uuid.uuid1, uuid.uuid4):
        return f"uses uuid.{found.__name__}"
    if isinstance(found, types.BuiltinFunctionType) and found.__module__ == time.__name__:
        return f"asks the clock: time.{found.__name__}" if found.__name__ in _CLOCKS else None
    if isinstance(getattr(found, "__self__", None), random.Random):
        return f"uses random.{found.__name__}"
    return None


# --- 6 to 10: limits ---------------------------------------------------------------------------


def step_deadlines(look: Look, sources: Sources) -> None:
    project, runtime = look.project, config.section("runtime", Settings)
    flows_bound = bool(project.workflows) and all(f.step_timeout for f in project.workflows)
    for step in project.steps:
        if step.timeout is None and runtime.step_timeout is None and not flows_bound:
            look.fail(f"step {step.name} may take for ever", step)
    for tool in project.tools:
        if tool.timeout is None and tool.place == "step":
            look.fail(f"tool {tool.name} may take for ever", tool)
    look.seen(len(project.steps) + len(project.tools), "steps and tools with a limit")


def waits(look: Look, sources: Sources) -> None:
    number = 0
    for function in sources.functions:
        for node in function.own_nodes():
            if isinstance(node, ast.Await) and _is_wait(function, node.value):
                number += 1
                problem = _unbranched(function, node)
                if problem:
                    look.fail(f"{function.name}: {problem}", (function.source, node))
    look.seen(number, "waits for events, webhooks, updates and approvals")


def _is_wait(function: SourceFunction, node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    if function.source.resolve(node.func) in (wait_for_event, wait_for_update, approval):
        return True
    # `hook.wait(timeout=…)`: a webhook's.
    hook = isinstance(node.func, ast.Attribute) and node.func.attr == Webhook.wait.__name__
    return hook and keyword(node, "timeout") is not None


def _unbranched(function: SourceFunction, wait: ast.Await) -> str | None:
    tests = list(_tests(function))
    if any(wait in ast.walk(test) for test in tests):
        return None
    for node in function.own_nodes():
        if isinstance(node, ast.Expr) and node.value is wait:
            return "what the wait returned is never looked at"
        if isinstance(node, ast.Return) and node.value is wait:
            return None  # whoever called it has the branch
        value = getattr(node, "value", None)
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and value is wait:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            name = target.id if isinstance(target, ast.Name) else None
            used = [
                t for t in tests if name in {n.id for n in ast.walk(t) if isinstance(n, ast.Name)}
            ]
            return None if used else f"there is no branch for a wait that timed out ({name})"
    return None


def _tests(function: SourceFunction) -> Iterator[ast.AST]:
    for node in function.own_nodes():
        if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
            yield node.test
        elif isinstance(node, ast.Match):
            yield node.subject
        elif isinstance(node, ast.BoolOp):
            yield node
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield node.operand


def loops(look: Look, sources: Sources) -> None:
    flows = sources.of_kind("workflow")
    for flow in flows:
        for node in flow.own_nodes():
            endless = isinstance(node, ast.While) and _is_true(node.test)
            if endless and not any(
                isinstance(n, ast.Break | ast.Return | ast.Raise) for n in ast.walk(node)
            ):
                look.fail(f"workflow {flow.name} has a loop without an end", (flow.source, node))
    gateway = config.section("gateway", GatewayConfig)
    per_run = any(budget.per == "run" for budget in gateway.budgets)
    for agent in look.project.agents:
        if agent.max_steps > 1000:
            look.fail(f"agent {agent.name} may take {agent.max_steps:,} steps")
        if agent.budget is None and not per_run:
            look.fail(
                f"agent {agent.name} on {agent.model} may spend without a limit: neither the "
                "agent nor [[gateway.budgets]] has one per run",
                config.FILE,
            )
    look.seen(len(flows) + len(look.project.agents), "workflows and agents with bounded loops")


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and bool(node.value)


def model_calls(look: Look, sources: Sources) -> None:
    gateway = config.section("gateway", GatewayConfig)
    models = sorted(_models(look, sources))
    for model in models:
        names = gateway.aliases.get(model, (model,))
        spares = [
            *names[1:],
            *gateway.fallbacks.get(model, ()),
            *gateway.fallbacks.get(names[0], ()),
        ]
        if not spares and not names[0].startswith(("scripted/", "local/")):
            look.fail(
                f"{model} has no fallback: a provider that is down stops every run", config.FILE
            )
    if models and gateway.retries.attempts < 2:
        look.fail("[gateway.retries] attempts = 1: a 429 or 529 is not retried", config.FILE)
    if models and gateway.timeouts.total > 3600:
        look.fail(f"a model call may take {gateway.timeouts.total:g} s in all", config.FILE)
    look.seen(len(models), f"models in use, with time-out and retries: {', '.join(models)}")


def _models(look: Look, sources: Sources) -> set[str]:
    from holdfast import generate_object, generate_text, stream_text

    found = {agent.model for agent in look.project.agents}
    for source in sources.files:
        for call in source.calls(source.tree):
            if source.resolve(call.func) in (generate_text, generate_object, stream_text):
                named = text_of(call.args[0] if call.args else keyword(call, "model"))
                found |= {named} if named else set()
    for section in ("code", "repo"):
        named = config.read().get(section, {}).get("model")
        found |= {named} if isinstance(named, str) else set()
    return found


def run_deadlines(look: Look, sources: Sources) -> None:
    for flow in look.project.workflows:
        if flow.timeout is None:
            look.fail(f"workflow {flow.name}: a run of it may take for ever", flow)
    look.seen(len(look.project.workflows), "workflows with a deadline")


# --- 11 to 16: sandboxes -----------------------------------------------------------------------


def creates(sources: Sources) -> Iterator[tuple[SourceFunction, ast.Call]]:
    for function in sources.functions:
        for call in function.own_calls():
            if function.source.resolve(call.func) == SANDBOX.create and _innermost(function, call):
                yield function, call


def _innermost(function: SourceFunction, call: ast.Call) -> bool:
    """Whether the call is the function's own, not that of a function in it."""
    inner = [f for f in function.source.functions if function.node in f.around]
    return not any(call in ast.walk(f.node) for f in inner)


def teardown(look: Look, sources: Sources) -> None:
    found = list(creates(sources))
    for function, call in found:
        if not _is_torn_down(function, call):
            look.fail(
                f"{function.name} makes a sandbox that nothing stops", (function.source, call)
            )
    look.seen(len(found), "places that make sandboxes")


def _is_torn_down(function: SourceFunction, call: ast.Call) -> bool:
    for node in function.own_nodes():
        if isinstance(node, ast.AsyncWith) and any(
            call in ast.walk(item.context_expr) for item in node.items
        ):
            return True
        if isinstance(node, ast.Try) and node.finalbody:
            stops = [n for s in node.finalbody for n in ast.walk(s)]
            if any(isinstance(n, ast.Attribute) and n.attr == "stop" for n in stops):
                return True
        attribute = node.func if isinstance(node, ast.Call) else None
        entered = isinstance(attribute, ast.Attribute) and attribute.attr == "enter_async_context"
        if entered and call in ast.walk(node):
            return True
        if isinstance(node, ast.Return) and node.value is not None and call in ast.walk(node.value):
            return True  # whoever called it has the `async with`
    return False


_WILD = re.compile(r"\*(\.[a-z]+)?(:\d+)?|0\.0\.0\.0(/0)?|::(/0)?")


def egress(look: Look, sources: Sources) -> None:
    allowed, number = set(look.project.settings.egress), 0
    for name in allowed:
        if _WILD.fullmatch(name):
            look.fail(f"[project] egress allows {name}: that is everybody", config.FILE)
    for function, call in creates(sources):
        number += 1
        network = keyword(call, "network")
        for name in _hosts(network):
            if _WILD.fullmatch(name):
                look.fail(
                    f"{function.name} allows {name}: that is everybody", (function.source, call)
                )
            elif name.partition(":")[0] not in {each.partition(":")[0] for each in allowed}:
                look.fail(
                    f"{function.name} lets its sandbox reach {name}, which [project] egress "
                    "does not name",
                    (function.source, call),
                )
    look.seen(number, "places that make sandboxes, and what they may reach")


def _hosts(network: ast.expr | None) -> list[str]:
    if network is None:
        return []
    texts = [text_of(node) for node in ast.walk(network)]
    return [
        t
        for t in texts
        if t and re.fullmatch(r"[\w*.-]+\.[a-z*]+(:\d+)?|\*(:\d+)?|[\d.]+(/\d+)?", t)
    ]


_SECRET_NAME = re.compile(r"(?i)(^|_)(key|token|secret|password|passwd|credentials?)$")


def secrets_inside(look: Look, sources: Sources) -> None:
    from holdfast.gateway.secrets import Redactor

    redact, number = Redactor(), 0
    for function, call in _given_env(sources):
        number += 1
        env = keyword(call, "env")
        if not isinstance(env, ast.Dict):
            continue
        for name, value in zip(env.keys, env.values, strict=True):
            named, said = text_of(name), text_of(value)
            if (named and _SECRET_NAME.search(named)) or (said and redact(said) != said):
                look.fail(f"{function.name} puts {named} into a sandbox", (function.source, call))
    look.seen(number, "places that make sandboxes or run commands in them")


def _given_env(sources: Sources) -> Iterator[tuple[SourceFunction, ast.Call]]:
    made = list(creates(sources))
    yield from made
    makers = {function.node for function, _ in made}
    for function in sources.functions:
        for call in function.own_calls():
            run = isinstance(call.func, ast.Attribute) and call.func.attr in (
                "run",
                "start",
                "shell",
            )
            if run and function.node in makers and keyword(call, "env") is not None:
                yield function, call


def isolation(look: Look, sources: Sources) -> None:
    from holdfast.sandbox.settings import load

    number = sum(1 for _ in creates(sources)) + _agents_with_sandboxes()
    wanted = load().min_isolation
    if number and wanted is None:
        look.fail(
            "[sandbox] min_isolation is not set: any backend that works is taken", config.FILE
        )
    look.seen(number, f"places that make sandboxes, each isolated by {wanted} at least")


def _agents_with_sandboxes() -> int:
    return sum(section in config.read() for section in ("code", "repo"))


# --- 17 to 20: what must not happen twice ------------------------------------------------------

_VERBS = {"post", "put", "patch", "delete", "execute", "executemany", "commit", "send", "sendmail",
          "send_message", "publish_message", "insert", "insert_one", "update_one", "delete_one",
          "put_object", "charge", "refund", "transfer", "unlink", "rmtree"}  # fmt: skip


def _effects(function: SourceFunction) -> Iterator[ast.Call]:
    """Calls that change something elsewhere, by their verb."""
    for call in function.own_calls():
        if isinstance(call.func, ast.Attribute) and call.func.attr in _VERBS and not _reads(call):
            yield call


def _reads(call: ast.Call) -> bool:
    """Whether it is SQL that only reads."""
    said = text_of(call.args[0]) if call.args else None
    return said is not None and said.lstrip().lower().startswith(("select", "pragma", "with"))


def side_effects(look: Look, sources: Sources) -> None:
    tools = sources.of_kind("tool")
    for tool in tools:
        effect = next(_effects(tool), None)
        if effect is not None and "idempotent" not in tool.options():
            assert isinstance(effect.func, ast.Attribute)
            look.fail(
                f"tool {tool.name} calls .{effect.func.attr}(…) and does not say whether it may be "
                "done twice",
                (tool.source, effect),
            )
    look.seen(len(tools), "tools that say what they do, or change nothing")


def idempotency(look: Look, sources: Sources) -> None:
    number = 0
    for function in sources.of_kind("step", "tool"):
        effects = list(_effects(function))
        number += len(effects)
        if effects and "idempotency_key" not in words_in(function.node):
            look.fail(
                f"{function.kind} {function.name} changes something elsewhere without handing an "
                "idempotency key on: done again after a crash, it is done twice",
                (function.source, effects[0]),
            )
    look.seen(number, "effects of steps and tools that carry an idempotency key")


_GRAVE = re.compile(
    r"(?i)(^|_)(refund|pay|payout|charge|transfer|withdraw|delete|drop|destroy|wipe|cancel_account)(_|$)"
)


def approvals(look: Look, sources: Sources) -> None:
    number = 0
    for tool in look.project.tools:
        if _GRAVE.search(tool.name):
            number += 1
            if tool.needs_approval is False:
                look.fail(f"tool {tool.name} moves money or deletes, and asks nobody", tool)
    for function in sources.of_kind("tool"):
        known = {t.name for t in look.project.tools}
        if _GRAVE.search(function.name) and function.name not in known:
            number += 1
            if "needs_approval" not in function.options():
                look.fail(f"tool {function.name} moves money or deletes, and asks nobody", function)
    look.seen(number, "tools that move money or delete, each with an approval")


def keyed_starts(look: Look, sources: Sources) -> None:
    number = 0
    for function in sources.functions:
        if not function.is_route:
            continue
        for call in function.own_calls():
            if function.source.resolve(call.func) is not START or not call.args:
                continue
            number += 1
            flow = call.args[0]
            keyed = isinstance(flow, ast.Call) and keyword(flow, "key") is not None
            if not keyed:
                look.fail(
                    f"{function.name} starts a run for a request, without a key: a client that "
                    "tries again starts it twice",
                    (function.source, call),
                )
    look.seen(number, "starts in request handlers")


# --- 21 and 22: who hears of it ----------------------------------------------------------------

_SDKS = {"openai": ("OpenAI", "AsyncOpenAI"), "anthropic": ("Anthropic", "AsyncAnthropic"),
         "mistralai": ("Mistral",), "cohere": ("Client", "AsyncClient")}  # fmt: skip
_HOSTS = re.compile(
    r"https?://(api\.openai\.com|api\.anthropic\.com|[\w.-]*googleapis\.com|api\.mistral\.ai)"
)


def unrecorded_calls(look: Look, sources: Sources) -> None:
    number = 0
    for source in sources.files:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Call):
                made = source.resolve(node.func)
                library = str(getattr(made, "__module__", "")).split(".")[0]
                if getattr(made, "__name__", "") in _SDKS.get(library, ()):
                    number += 1
                    if keyword(node, "base_url") is None:
                        look.fail(
                            f"{library}'s client calls the provider past the gateway: on no "
                            "record, in no budget",
                            (source, node),
                        )
            elif (said := text_of(node)) and _HOSTS.match(said):
                look.fail(f"{said} is called past the gateway", (source, node))
    look.passed(f"{len(sources.files)} files, in which no model is called past the gateway")


def failure_handlers(look: Look, sources: Sources) -> None:
    flows = look.project.workflows
    handlers = {id(flow.on_failure.function) for flow in flows if flow.on_failure is not None}
    children = {id(child.function) for child in _children(sources, flows)}
    top = [f for f in flows if id(f.function) not in handlers | children]
    for flow in top:
        if flow.on_failure is None:
            look.fail(f"workflow {flow.name} fails without anybody being told", flow)
    look.seen(len(top), "workflows with a failure handler")


def _children(
    sources: Sources, flows: tuple[Workflow[..., Any], ...]
) -> Iterator[Workflow[..., Any]]:
    """Workflows that are called in the body of another: whoever calls them hears of it."""
    for function in sources.of_kind("workflow"):
        for call in function.own_calls():
            made = function.source.resolve(call.func)
            yield from (flow for flow in flows if flow is made)


# --- 28: what is kept --------------------------------------------------------------------------


def retention(look: Look, sources: Sources) -> None:
    from holdfast.sandbox.settings import load

    settings = look.project.settings
    if load().keep_records is None:
        look.fail(
            "[sandbox] keep_records is not set: records of sandboxes are kept for ever", config.FILE
        )
    if not config.section("retention", RetentionSettings).has_rules:
        look.fail("[retention] has no rule: runs that have ended are kept for ever", config.FILE)
    if settings.backups is None:
        look.fail(
            "[project] backups names no folder: nothing says that the store is backed up",
            config.FILE,
        )
    else:
        seconds(settings.backup_every)
    look.passed("retention of runs and sandboxes, and a place for backups")


CHECKS: dict[str, Check] = {
    "HF01": signatures,
    "HF03": live_objects,
    "HF04": determinism,
    "HF06": step_deadlines,
    "HF07": waits,
    "HF08": loops,
    "HF09": model_calls,
    "HF10": run_deadlines,
    "HF11": teardown,
    "HF14": egress,
    "HF15": secrets_inside,
    "HF16": isolation,
    "HF17": side_effects,
    "HF18": idempotency,
    "HF19": approvals,
    "HF20": keyed_starts,
    "HF21": unrecorded_calls,
    "HF22": failure_handlers,
    "HF28": retention,
}


def uses_sandboxes(sources: Sources) -> bool:
    """Whether the project makes sandboxes, itself or by a ready-made agent."""
    return any(True for _ in creates(sources)) or _agents_with_sandboxes() > 0


def layers(sources: Sources) -> str:
    """Which layers the project uses, by what it defines and makes."""
    project = sources.project
    sandboxes = uses_sandboxes(sources)
    used = [
        word
        for word, there in (
            ("loop", bool(project.agents or project.tools)),
            ("runtime", bool(project.workflows)),
            ("sandbox", sandboxes),
        )
        if there
    ]
    return " + ".join(used) or "none"
