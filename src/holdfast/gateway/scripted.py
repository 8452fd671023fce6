"""The scripted model: answers from a script or a function, streams, and fails on demand.

    model = ScriptedModel("planner", ["first answer", Say("second", reasoning="…"), Fail(429)])
    with model:                                   # known as scripted/planner while it lasts
        reply = await generate_text("scripted/planner", prompt="hello")

Part of the product: demos and users' tests run on it with no key, no network and no cost.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, cast

from holdfast.errors import (
    BadReply,
    ConfigError,
    ProviderTimeout,
    ProviderUnavailable,
    UnknownModel,
)
from holdfast.gateway.accounting import Meter
from holdfast.gateway.config import Timeouts
from holdfast.gateway.formats.base import Failure, classify_failure
from holdfast.gateway.input_bounds import estimate
from holdfast.gateway.messages import (
    ReasoningPart,
    RefusalPart,
    ReplyPart,
    Request,
    TextPart,
    ToolCallPart,
)
from holdfast.gateway.reply import (
    Completion,
    Event,
    FinishReason,
    OnEvent,
    PartDelta,
    Usage,
    as_events,
)

FailKind = Literal["connect", "hang", "cut", "malformed", "error_event", "stall"]


@dataclass(frozen=True, slots=True)
class Say:
    """An answer: text, reasoning, tool calls as `(name, arguments)`, and how it streams."""

    text: str = ""
    reasoning: str = ""
    tools: Sequence[tuple[str, Any]] = ()
    refusal: str = ""
    finish: FinishReason | None = None
    usage: Usage | None = None
    chunk: int = 12
    """Characters to a streamed piece."""
    delay: float = 0.0
    """Seconds before each piece."""


@dataclass(frozen=True, slots=True)
class Fail:
    """A failure: an HTTP status, or a way to break.

    `connect`: out of reach. `hang`: no answer until the time-out. `cut`: ends in mid-reply.
    `stall`: goes silent in mid-reply. `malformed`: broken JSON. `error_event`: an error in
    mid-stream. `after` is how many characters of `text` come first.
    """

    how: int | FailKind
    message: str = "scripted failure"
    retry_after: float | None = None
    text: str = "This answer is going to break off somewhere."
    after: int = 16


Answer = str | Say | Fail | Completion
Script = Sequence[Answer] | Callable[[Request], "Answer | Awaitable[Answer]"]

_models: dict[str, ScriptedModel] = {}


@dataclass(slots=True)
class ScriptedModel:
    """A model called `scripted/<name>`: a list of answers used in turn, or a function."""

    name: str
    script: Script
    requests: list[Request] = field(default_factory=list[Request])
    """What it was asked, for tests to look at."""

    def __enter__(self) -> ScriptedModel:
        return self.register()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _models.pop(self.name, None)

    def register(self) -> ScriptedModel:
        """Make it known as `scripted/<name>` for as long as this process lives."""
        _models[self.name] = self
        return self

    async def answer(self, request: Request) -> Say | Fail | Completion:
        """The next answer."""
        number = len(self.requests)
        self.requests.append(request)
        if callable(self.script):
            answer = self.script(request)
            if inspect.isawaitable(answer):
                answer = await answer
        elif number < len(self.script):
            answer = self.script[number]
        else:
            return Fail(400, f"the script of {self.name!r} has only {len(self.script)} answers")
        return Say(answer) if isinstance(answer, str) else answer


def echo(request: Request) -> Answer:
    """`scripted/echo`: the last thing said, said again."""
    return Say(request.messages[-1].text)


ScriptedModel("echo", echo).register()


def names() -> list[str]:
    """The scripted models known now."""
    return list(_models)


def find(name: str, references: dict[str, str]) -> ScriptedModel:
    """The model of this name: registered, or loaded from a configured reference."""
    if name not in _models and name in references:
        _models[name] = _load(name, references[name])
    if name not in _models:
        raise UnknownModel(
            f"there is no scripted model {name!r}",
            hint="register it: ScriptedModel(name, script).register()",
        )
    return _models[name]


def _load(name: str, reference: str) -> ScriptedModel:
    module, _, attribute = reference.partition(":")
    try:
        found: Any = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"scripted.{name}: {reference!r} can't be loaded: {error}") from error
    if isinstance(found, ScriptedModel):
        return found
    if callable(found) or isinstance(found, list | tuple):
        return ScriptedModel(name, cast(Script, found))
    raise ConfigError(f"scripted.{name}: {reference!r} is no scripted model, function or list")


async def complete(
    model: ScriptedModel, request: Request, meter: Meter, timeouts: Timeouts
) -> Completion:
    """The whole answer."""
    meter.sent = True
    answer = await model.answer(request)
    if isinstance(answer, Fail):
        await _fail(answer, timeouts)
    completion = as_completion(answer, request)
    if isinstance(answer, Say) and answer.delay:
        await asyncio.sleep(answer.delay * len(in_pieces(completion, answer.chunk)))
    meter.status = 200
    meter.usage, meter.finish, meter.model = (
        completion.usage, completion.finish, completion.model,
    )  # fmt: skip
    return completion


async def stream(
    model: ScriptedModel, request: Request, meter: Meter, timeouts: Timeouts, *, emit: OnEvent
) -> None:
    """The answer's events."""
    meter.sent = True
    answer = await model.answer(request)
    if isinstance(answer, Fail):
        if answer.how in ("cut", "stall", "error_event", "malformed"):
            meter.status = 200
            for event in in_pieces(as_completion(Say(answer.text[: answer.after]), request), 12)[
                :-1
            ]:
                meter.note(event)
                await emit(event)
        await _fail(answer, timeouts)
    completion = as_completion(answer, request)
    chunk, delay = (answer.chunk, answer.delay) if isinstance(answer, Say) else (12, 0.0)
    meter.status = 200
    for event in in_pieces(completion, chunk):
        if delay and isinstance(event, PartDelta):
            await asyncio.sleep(delay)
        meter.note(event)
        await emit(event)


async def _fail(fail: Fail, timeouts: Timeouts) -> None:
    match fail.how:
        case int():
            failure = Failure(fail.message)
            raise classify_failure("scripted", fail.how, failure, retry_after=fail.retry_after)
        case "connect":
            raise ProviderUnavailable("scripted is out of reach: scripted failure")
        case "hang" | "stall":
            seconds = timeouts.first_token if fail.how == "hang" else timeouts.idle
            await asyncio.sleep(min(seconds, timeouts.total))
            raise ProviderTimeout(f"scripted was silent for {seconds:g} s", bought=True)
        case "cut":
            raise BadReply("scripted's stream was cut", bought=True)
        case "malformed":
            raise BadReply("scripted's reply is not valid JSON", bought=True)
        case "error_event":
            error = classify_failure("scripted", 529, Failure(fail.message))
            error.bought = True
            raise error


def as_completion(answer: Say | Completion | Fail, request: Request) -> Completion:
    if isinstance(answer, Completion):
        return answer
    assert isinstance(answer, Say)
    parts = tuple(_parts(answer))
    finish: FinishReason = answer.finish or (
        "tool_calls" if answer.tools else "refusal" if answer.refusal else "stop"
    )
    said = sum(len(message.text.encode()) for message in request.messages)
    words = answer.text + answer.reasoning + answer.refusal + "".join(
        part.arguments for part in parts if isinstance(part, ToolCallPart)
    )  # fmt: skip
    usage = answer.usage or Usage(
        input=estimate(said), output=estimate(len(words.encode())),
        reasoning=estimate(len(answer.reasoning.encode())),
    )  # fmt: skip
    return Completion(parts, finish, request.model, usage, "scripted")


def _parts(say: Say) -> Iterator[ReplyPart]:
    if say.reasoning:
        yield ReasoningPart(say.reasoning)
    if say.text:
        yield TextPart(say.text)
    if say.refusal:
        yield RefusalPart(say.refusal)
    for number, (name, arguments) in enumerate(say.tools):
        given = arguments if isinstance(arguments, str) else json.dumps(arguments)
        yield ToolCallPart(f"call_{number}", name, given)


def in_pieces(completion: Completion, chunk: int) -> list[Event]:
    """The answer's events, its text in pieces."""
    return list(_cut(as_events(completion), max(chunk, 1)))


def _cut(events: Iterable[Event], chunk: int) -> Iterator[Event]:
    for event in events:
        if isinstance(event, PartDelta):
            for at in range(0, len(event.text), chunk):
                yield PartDelta(event.index, event.text[at : at + chunk])
        else:
            yield event
