"""Drills: the real engine on a throw-away store, with nothing of the user's carried out but bodies.

Steps and tools are stood in for by values of their types, models by one that answers what was
asked of it, and no address but those a drill listens on can be reached: what tries is refused and
makes the drill fail. Sandboxes are real, and of this machine.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import re
import sys
import typing
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, cast

from holdfast import decide, list_approvals, start
from holdfast.errors import HoldfastError
from holdfast.gateway.messages import Request, ToolResultPart
from holdfast.gateway.providers import KNOWN, Candidate, Routes
from holdfast.gateway.scripted import Answer, Say, ScriptedModel
from holdfast.loop import tool_calls
from holdfast.loop.tools import AgentTool
from holdfast.ready.example_values import NoExample, examples, from_schema
from holdfast.ready.look import Look
from holdfast.ready.points import Finding
from holdfast.ready.project import Project
from holdfast.ready.source_code import Sources
from holdfast.records import COMMANDS, Event
from holdfast.runtime.definitions import Step, Workflow
from holdfast.runtime.settings import Settings
from holdfast.session import current_step
from holdfast.testing import Harness

MODEL = "holdfast-doctor"
FOLDER = "HOLDFAST_DRILL_FOLDER"
Drill = Callable[[Look, "Stage"], Any]


class DrillBroken(Exception):
    """A drill could not be carried out: it proves nothing."""


class Refused(Exception):
    """A drill tried to reach somebody."""


@dataclass
class Stage:
    """What stands in for the world: models, tools, steps, and a guard at the door."""

    project: Project
    sources: Sources
    script: Callable[[Request], Answer]
    """What models answer."""
    effects: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """What a step or tool would have done: its name and its idempotency key."""
    reached: list[str] = field(default_factory=list[str])
    """Who was tried to be reached, and was not."""
    listening: set[int] = field(default_factory=set[int])
    """Ports on this machine that a drill listens on."""

    def set(self) -> None:
        """For the rest of this process."""
        ScriptedModel(MODEL, self._answer).register()
        scripted = KNOWN["scripted"]
        Routes.candidates = lambda _self, _name: [Candidate(scripted, MODEL)]  # type: ignore[method-assign]
        tool_calls.perform = self._perform
        sys.addaudithook(self._guard)

    def _answer(self, request: Request) -> Answer:
        return self.script(request)

    def _guard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "socket.connect" or not isinstance(arguments[1], tuple):
            return  # a unix socket: this machine's own
        host, port = cast("tuple[Any, ...]", arguments[1])[:2]
        if port in self.listening and ipaddress.ip_address(host).is_loopback:
            return
        self.reached.append(f"{host}:{port}")
        raise Refused(f"a drill reaches nobody, and this tried {host}:{port}")

    async def _perform(self, tool: AgentTool, arguments: dict[str, Any]) -> Any:
        here = current_step()
        self.effects.append((tool.name, here.idempotency_key if here else ""))
        return first_example(typing.get_type_hints(tool.function).get("return", Any))

    def stand_in(self, step: Step[..., Any]) -> Callable[..., Any] | None:
        """What is carried out instead of a step of the project."""
        if step.function.__module__.startswith("holdfast."):
            return None
        value = first_example(step.signature.result.hint)

        async def made_up(*_args: Any, **_kwargs: Any) -> Any:
            here = current_step()
            self.effects.append((step.name, here.idempotency_key if here else ""))
            return value

        return made_up

    def inputs(self) -> Iterator[tuple[Workflow[..., Any], tuple[Any, ...], dict[str, Any]]]:
        """The workflows that there is an input for, with it."""
        for flow in self.project.workflows:
            given = self.project.settings.examples.get(flow.name)
            if given is not None:
                args, kwargs = flow.signature.decode_arguments(json.dumps(given).encode())
                yield flow, args, kwargs


def first_example(hint: Any) -> Any:
    """A plain value of a type; None where none can be made up."""
    try:
        return examples(hint)[0]
    except NoExample:
        return None


def agreeable(request: Request) -> Answer:
    """A model that calls each of its tools once, then answers in the shape that was asked for."""
    asked = [part for m in request.messages for part in m.parts if isinstance(part, ToolResultPart)]
    if len(asked) < len(request.tools):
        tool = request.tools[len(asked)]
        return Say("I will look.", tools=[(tool.name, from_schema(tool.schema))])
    if request.output is not None:
        return Say(json.dumps(from_schema(request.output.schema or {})))
    return Say("Done.")


def insatiable(request: Request) -> Answer:
    """A model that never stops calling tools."""
    number = len(request.messages)
    if not request.tools:
        return Say("Again.")
    tool = request.tools[number % len(request.tools)]
    return Say(f"Again, {number}.", tools=[(tool.name, from_schema(tool.schema))])


class DrillHarness(Harness):
    """The testing harness, with the project's steps stood in for."""

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        return self

    def __init__(
        self,
        stage: Stage,
        *,
        replay_always: bool = False,
        settings: Settings | None = None,
        copy_of: Path | None = None,
    ) -> None:
        # The crash limit is about runs that kill their workers; here we do.
        chosen = replace(settings or Settings(), crash_limit=100_000)
        super().__init__(settings=chosen, replay_always=replay_always, copy_of=copy_of)
        self.stage = stage

    def _substitute(self, step: Step[..., Any]) -> Callable[..., Any] | None:
        return super()._substitute(step) or self.stage.stand_in(step)

    async def journal(self, run_id: str) -> list[Event]:
        return await self.engine.store.load(run_id)

    async def approve_all(self) -> None:
        """What waits for somebody is agreed to."""
        for asked in await list_approvals():
            await decide(asked.id, True, by="drill")


@asynccontextmanager
async def drilled(
    stage: Stage, flow: Workflow[..., Any], args: Any, kwargs: Any, **options: Any
) -> AsyncGenerator[tuple[DrillHarness, Any]]:
    async with DrillHarness(stage, **options) as harness:
        yield harness, await start(flow, *args, **kwargs)


async def ended(run: Any) -> str:
    """How a run ended, in a word; it is let expire whatever it waits for."""
    try:
        await run.result()
    except HoldfastError as error:
        return f"{type(error).__name__}: {error.message}"
    return "completed"


_ID = re.compile(r"_[0-9A-HJKMNP-TV-Z]{26}")


def commands_of(journal: list[Event], *, exact: bool = False) -> list[str]:
    """What a body asked for, in order; ids, which differ from run to run, are left out.

    `exact`: with the arguments.
    """
    asked = [
        f"{e.key} {e.facts.get('name', '')} {(e.value or b'').decode() if exact else ''}".rstrip()
        for e in journal
        if e.type in COMMANDS
    ]
    return [_ID.sub("_…", each) for each in asked]


def examine(project: Project, sources: Sources, points: set[str]) -> list[Finding]:
    """Every drill that is asked for."""
    from holdfast.ready.sandbox_drills import SANDBOX_DRILLS
    from holdfast.ready.workflow_drills import WORKFLOW_DRILLS

    stage = Stage(project, sources, agreeable)
    stage.set()
    found: list[Finding] = []
    for point, drill in {**WORKFLOW_DRILLS, **SANDBOX_DRILLS}.items():
        if point in points:
            look = Look(project, point, "D")
            asyncio.run(_carried_out(drill, look, stage))
            found += look.findings
    return found


async def _carried_out(drill: Drill, look: Look, stage: Stage) -> None:
    try:
        async with asyncio.timeout(170):
            made = drill(look, stage)
            if made is not None:
                await made
    except TimeoutError:
        look.fail("the drill did not come to an end within 170 s")
    except Refused as error:
        look.fail(str(error))
    except HoldfastError as error:
        look.skip(f"the drill could not be carried out: {type(error).__name__}: {error.message}")
    except Exception as error:  # noqa: BLE001 - of the project, or ours: it proves nothing
        look.skip(f"the drill broke off: {type(error).__name__}: {error}")


def _main(order: str) -> None:
    """One run of one workflow; its commands on the last line: for a process with a hash seed."""
    from holdfast.ready import project

    given = json.loads(order)
    loaded = project.load(Path(given["root"]))
    stage = Stage(loaded, Sources(loaded), agreeable)
    stage.set()

    async def one(flow: Workflow[..., Any], args: Any, kwargs: Any) -> list[Event]:
        async with drilled(stage, flow, args, kwargs) as (harness, run):
            await harness.until_blocked()
            await harness.approve_all()
            await ended(run)
            return await harness.journal(run.id)

    for flow, args, kwargs in stage.inputs():
        if flow.name == given["workflow"]:
            first, second = (asyncio.run(one(flow, args, kwargs)) for _ in range(2))
            # Where two runs in one process ask with different arguments (they drew lots), only
            # what they ask for is compared.
            exact = commands_of(first, exact=True)
            same = exact == commands_of(second, exact=True)
            print(json.dumps(exact if same else commands_of(first)))  # noqa: T201


if __name__ == "__main__":
    _main(sys.argv[1])
