"""The calls people make: `generate_text`, `stream_text`, `generate_object`.

In a workflow body a call is handed to the runtime, which makes it a durable step by itself (see
`holdfast.session`); in a step it belongs to that step; elsewhere it is just made.

For `generate_object` the type's JSON schema goes to the provider, which holds the model to it where
it can; the answer is validated in any case, and the model is told what was wrong and asked again a
few times.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, Unpack, cast

from typing_extensions import TypedDict

from holdfast.durations import Duration, seconds
from holdfast.errors import BadReply, UsageError
from holdfast.gateway.gateway import Gateway
from holdfast.gateway.messages import (
    Effort,
    Message,
    OutputSchema,
    ProviderTool,
    Request,
    TextPart,
    Tool,
    ToolChoice,
    user,
)
from holdfast.gateway.reply import (
    Completion,
    Event,
    OnEvent,
    PartDelta,
    PartStart,
    Reply,
    as_events,
)
from holdfast.session import current_store, interceptor, on_store_close
from holdfast.task_stream import TaskStream

Starter = Callable[[OnEvent], Awaitable[Reply]]


class ReplyStream(TaskStream[Event, Reply]):
    """Iterate it for the answer's text; `events()` has everything, `reply()` the whole.

    Leaving it before its end stops the call, which is recorded as interrupted.
    """

    def __init__(self, start: Starter) -> None:
        super().__init__(self._call)
        self._start = start

    def __aiter__(self) -> AsyncIterator[str]:
        return self._text()

    async def _text(self) -> AsyncIterator[str]:
        shown: set[int] = set()
        async for event in self.events():
            if isinstance(event, PartStart) and isinstance(event.part, TextPart):
                shown.add(event.index)
                if event.part.text:
                    yield event.part.text
            elif isinstance(event, PartDelta) and event.index in shown:
                yield event.text

    async def reply(self) -> Reply:
        """The whole reply; what was not read yet is skipped."""
        return await self._outcome()

    async def _call(self, tell: OnEvent) -> Reply:
        events = 0

        async def on_event(event: Event) -> None:
            nonlocal events
            events += 1
            await tell(event)

        reply = await self._start(on_event)
        if not events:  # a replay, or a durable step: the answer is there at once
            for event in as_events(_completion(reply)):
                await tell(event)
        return reply


def _completion(reply: Reply) -> Completion:
    return Completion(reply.parts, reply.finish, reply.served_by, reply.usage)


class Options(TypedDict, total=False):
    """What a call may be told beside what is said."""

    tools: Sequence[Tool | ProviderTool | Callable[..., Any]]
    tool_choice: str | ToolChoice
    parallel_tools: bool
    max_tokens: int
    temperature: float
    top_p: float
    stop: Sequence[str]
    seed: int
    effort: Effort
    thinking_tokens: int
    output: OutputSchema
    user: str
    extra: dict[str, dict[str, Any]]
    tags: Sequence[str]
    budget_wait: Duration
    """How long to wait for room in a budget that calls in flight hold."""
    input_bound: int
    """No more input tokens than these, where `extra` makes a provider read what is not in the
    request; budgets ask for it."""
    cache: bool
    """Give the answer that an equal request got before, if it is still kept; on record as that
    call. Off unless asked for."""
    gateway: Gateway


_BESIDE = frozenset(("gateway", "tags", "budget_wait", "input_bound", "cache"))
"""Options that are no part of the request."""
_default: Gateway | None = None
_of_stores: dict[str, Gateway] = {}
_gateway: ContextVar[Gateway | None] = ContextVar("holdfast_gateway", default=None)
_tags: ContextVar[tuple[str, ...]] = ContextVar("holdfast_call_tags", default=())


def default_gateway() -> Gateway:
    """The gateway calls go through unless told otherwise; made from the environment.

    Its ledger is in the store that is open, and it is closed with that.
    """
    chosen = _gateway.get() or _default
    return chosen if chosen is not None else _of_store(current_store())


def _of_store(name: str) -> Gateway:
    if name not in _of_stores:
        gateway = _of_stores[name] = Gateway()

        async def close() -> None:
            del _of_stores[name]
            await gateway.close()

        on_store_close(name, close)
    return _of_stores[name]


def use_gateway(gateway: Gateway | None) -> None:
    """Send every call of this process through `gateway`; None: back to the environment's."""
    global _default
    _default = gateway


@contextmanager
def through(gateway: Gateway) -> Any:
    """Send the calls of this block through `gateway`."""
    token = _gateway.set(gateway)
    try:
        yield gateway
    finally:
        _gateway.reset(token)


@contextmanager
def tagged(*tags: str) -> Any:
    """Count the calls of this block against budgets of these tags as well."""
    token = _tags.set((*_tags.get(), *tags))
    try:
        yield
    finally:
        _tags.reset(token)


def current_tags() -> tuple[str, ...]:
    """The tags of the blocks this code is in."""
    return _tags.get()


async def generate_text(
    model: str,
    *,
    system: str | None = None,
    prompt: str | None = None,
    messages: Sequence[Message] | None = None,
    **options: Unpack[Options],
) -> Reply:
    """Ask a model and wait for the whole answer.

    reply = await generate_text("anthropic/claude-sonnet-4.6", prompt="Why is the sky blue?")
    print(reply.text, reply.usage.total, reply.cost)
    """
    request = make_request(model, system, prompt, messages, options)
    return await perform(request, options)


async def perform(request: Request, options: Options) -> Reply:
    """Make the call, as a durable step where the runtime asks for it."""
    tags = (*_tags.get(), *options.get("tags", ()))
    durable = interceptor()
    if durable is not None:
        for option in ("budget_wait", "input_bound", "cache"):
            if option in options:
                raise UsageError(
                    f"{option} is for calls in steps and outside of workflows",
                    hint="put the call into a step",
                )
        name = f"generate_text {request.model}"
        return await durable(name, call_model, (request, tags))
    gateway = options.get("gateway") or default_gateway()
    return await gateway.call(
        request,
        tags=tags,
        budget_wait=_budget_wait(options),
        input_bound=options.get("input_bound"),
        cache=options.get("cache", False),
    )


def _budget_wait(options: Options) -> float | None:
    return seconds(options["budget_wait"]) if "budget_wait" in options else None


async def call_model(asked: tuple[Request, tuple[str, ...]]) -> Reply:
    """One call with its tags: what the runtime runs as a step for a workflow body."""
    request, tags = asked
    return await default_gateway().call(request, tags=tags)


def stream_text(
    model: str,
    *,
    system: str | None = None,
    prompt: str | None = None,
    messages: Sequence[Message] | None = None,
    **options: Unpack[Options],
) -> ReplyStream:
    """Ask a model and read the answer as it comes.

    async with stream_text("openai/gpt-5.2", prompt="Tell me a story") as stream:
        async for piece in stream:
            print(piece, end="")
    print((await stream.reply()).cost)
    """
    request = make_request(model, system, prompt, messages, options)
    tags = (*_tags.get(), *options.get("tags", ()))
    gateway = options.get("gateway")

    async def start(on_event: Any) -> Reply:
        if interceptor() is not None:
            return await perform(request, options)
        return await (gateway or default_gateway()).call(
            request,
            tags=tags,
            on_event=on_event,
            budget_wait=_budget_wait(options),
            input_bound=options.get("input_bound"),
            cache=options.get("cache", False),
        )

    return ReplyStream(start)


def make_request(
    model: str,
    system: str | None,
    prompt: str | None,
    messages: Sequence[Message] | None,
    options: Options,
) -> Request:
    """The canonical request; raises UsageError for what can't be meant."""
    if (prompt is None) == (messages is None):
        raise UsageError("give either prompt= or messages=")
    said: list[Message] = []
    if system is not None:
        said.append(Message("system", (TextPart(system),)))
    if prompt is not None:
        said.append(Message("user", (TextPart(prompt),)))
    said.extend(messages or ())
    if not any(message.role != "system" for message in said):
        raise UsageError("messages holds nothing to answer")
    if _BESIDE.issuperset(options):
        return Request(model, tuple(said))
    offered = options.get("tools", ())
    own = tuple(tool for tool in offered if isinstance(tool, ProviderTool))
    tools = [
        tool if isinstance(tool, Tool) else Tool.of(tool)
        for tool in offered
        if not isinstance(tool, ProviderTool)
    ]
    choice = options.get("tool_choice")
    return Request(
        model=model,
        messages=tuple(said),
        tools=tuple(tools),
        provider_tools=own,
        tool_choice=_choice(choice) if isinstance(choice, str) else choice,
        parallel_tools=options.get("parallel_tools"),
        max_tokens=options.get("max_tokens"),
        temperature=options.get("temperature"),
        top_p=options.get("top_p"),
        stop=tuple(options.get("stop", ())),
        seed=options.get("seed"),
        output=options.get("output"),
        effort=options.get("effort"),
        thinking_tokens=options.get("thinking_tokens"),
        user=options.get("user"),
        extra=options.get("extra", {}),
    )


def _choice(name: str) -> ToolChoice:
    if name in ("auto", "none", "required"):
        return ToolChoice(cast(Any, name))
    return ToolChoice("tool", name)


T = TypeVar("T")
_WRAPPED = "value"


@dataclass(frozen=True, slots=True)
class ObjectReply(Generic[T]):
    """The typed answer, and the reply it came in."""

    object: T
    reply: Reply
    asked: int
    """How many calls it took."""


async def generate_object(
    model: str,
    *,
    schema: type[T],
    system: str | None = None,
    prompt: str | None = None,
    messages: Sequence[Message] | None = None,
    repairs: int = 1,
    **options: Unpack[Options],
) -> ObjectReply[T]:
    """Ask a model for data of a type: a pydantic model, a dataclass, or any annotated type.

    city = (await generate_object("openai/gpt-5.2", schema=City, prompt="…")).object
    """
    from pydantic import TypeAdapter, ValidationError  # slow to import, and not needed by all

    adapter: TypeAdapter[T] = TypeAdapter(schema)
    output, wrapped = output_schema(adapter.json_schema(), getattr(schema, "__name__", "output"))
    request = make_request(model, system, prompt, messages, {**options, "output": output})
    asked = 0
    while True:
        asked += 1
        reply = await perform(request, options)
        try:
            return ObjectReply(validated(adapter, reply.text, wrapped=wrapped), reply, asked)
        except (ValidationError, ValueError) as error:
            if asked > repairs or reply.finish in ("refusal", "content_filter"):
                raise BadReply(
                    f"{reply.served_by} did not answer with a valid {output.name}: {_short(error)}",
                    hint="a larger model, a larger max_tokens or a simpler type may help",
                    bought=True,
                ) from error
            words = f"That was not valid: {_short(error)}\nAnswer again, with valid JSON only."
            more = (*request.messages, reply.message, user(words))
            request = replace(request, messages=more)


def output_schema(schema: dict[str, Any], name: str) -> tuple[OutputSchema, bool]:
    """The schema as providers take it, and whether the value had to be wrapped in an object."""
    wrapped = schema.get("type") != "object" and "$ref" not in schema
    if wrapped:
        definitions = schema.pop("$defs", None)
        schema = {"type": "object", "properties": {_WRAPPED: schema}, "required": [_WRAPPED]}
        if definitions:
            schema["$defs"] = definitions
    closed = _close(schema)
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in name)[:64]
    return OutputSchema(schema, safe or "output", strict=closed), wrapped


def _close(schema: Any) -> bool:
    """Close every object to unnamed properties; False if one has to stay open.

    Strict providers want every property required and none unnamed; optional ones are left as
    they are and make the schema not strict.
    """
    if isinstance(schema, list):
        return False not in [_close(one) for one in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return True
    found = cast("dict[str, Any]", schema)
    # Every one is looked at, since closing is what this is for: no `all` that stops early.
    inner = [_close(one) for name, one in found.items() if name not in ("enum", "const")]
    strict = False not in inner
    if found.get("type") == "object":
        properties: dict[str, Any] = found.get("properties", {})
        if "additionalProperties" not in found:
            found["additionalProperties"] = False
        closed = found["additionalProperties"] is False
        strict = strict and closed and set(found.get("required", ())) == set(properties)
    return strict


def validated(adapter: Any, text: str, *, wrapped: bool) -> Any:
    """The typed data in an answer; raises ValueError for what does not fit."""
    data = json.loads(_unfenced(text))
    if wrapped:
        if not isinstance(data, dict) or _WRAPPED not in data:
            raise ValueError(f"an object with {_WRAPPED!r} was expected")
        data = cast("dict[str, Any]", data)[_WRAPPED]
    # By JSON's rules: dates and enums come as text.
    return adapter.validate_json(json.dumps(data))


def _unfenced(text: str) -> str:
    """The text without the code fence some models put around JSON."""
    text = text.strip()
    if text.startswith("```") and text.endswith("```"):
        return text.removeprefix("```json").removeprefix("```").removesuffix("```").strip()
    return text


def _short(error: Exception) -> str:
    return str(error)[:600]
