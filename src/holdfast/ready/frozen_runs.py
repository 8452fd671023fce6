"""A recorded run as a file, and as a test: frozen, with live tools, or with another model.

    holdfast runs freeze RUN app.py > tests/runs/refund.json

The file has the run's input, its journal (in it every step's result, sandboxes' included) and the
replies of its models, without secrets: they are masked wherever they stand, so that what a body
computes from a masked value is compared with what it computed from the same mask.

Three ways to replay it:

- *frozen*: the body alone, on the journal. Nothing is carried out; it takes milliseconds.
- *live tools*: the run from its beginning, in memory and in virtual time. Steps are carried out,
  models answer what they answered, events come when the run waits for them.
- *candidate*: the same, with one model really asked in place of the recorded one.

What people decided (approvals) stays as it was in all three.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from holdfast import config
from holdfast.errors import NonDeterminismError, UsageError
from holdfast.ready.replay_check import Replayed, bodies_limited, replay
from holdfast.records import (
    CHILD_STARTED,
    COMMANDS,
    COMPLETIONS,
    PATCH_MARKED,
    RUN_COMPLETED,
    RUN_FAILED,
    STEP_COMPLETED,
    WAIT_RECEIVED,
    WEBHOOK_CREATED,
    Event,
    Run,
)
from holdfast.runtime import failures, guard
from holdfast.runtime.commands import same_json
from holdfast.runtime.definitions import Step, Workflow
from holdfast.runtime.loop import keep_generators
from holdfast.runtime.replay import Completed, Failed
from holdfast.runtime.settings import Settings
from holdfast.session import current_step
from holdfast.store import opener
from holdfast.store.base import NewRun

if TYPE_CHECKING:
    from holdfast.gateway.gateway import Gateway
    from holdfast.gateway.messages import Request
    from holdfast.gateway.scripted import Answer
    from holdfast.records.calls import Call

FORMAT = "holdfast run 1"
"""What a frozen run's file begins with, after `{"format": "`."""
MASK = "[redacted]"
MOST_CALLS = 10_000


@dataclass(frozen=True)
class FrozenCall:
    """A model call of the run, and its reply as the ledger kept it."""

    run_id: str
    step: str
    model: str
    request_hash: str
    reply: str
    cost: int | None

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "reply": json.loads(self.reply)}


@dataclass(frozen=True)
class FrozenRun:
    """What a file holds."""

    run_id: str
    workflow: str
    status: str
    modules: Sequence[str]
    """What defines the workflow, as named when it was frozen."""
    journal: list[Event]
    calls: list[FrozenCall]

    @property
    def cost(self) -> int:
        """What its models cost, in nanodollars."""
        return sum(call.cost or 0 for call in self.calls)

    def to_text(self) -> str:
        body = {
            "format": FORMAT,
            "run": self.run_id,
            "workflow": self.workflow,
            "status": self.status,
            "modules": list(self.modules),
            "calls": [call.as_json() for call in self.calls],
            "journal": [_event_json(event) for event in self.journal],
        }
        return json.dumps(body, indent=1, ensure_ascii=False) + "\n"

    @staticmethod
    def from_text(text: str) -> FrozenRun:
        try:
            body = json.loads(text)
            if body["format"] != FORMAT:
                raise UsageError(f"this is no frozen run that can be read here: {body['format']}")
            calls = [_call(row) for row in body["calls"]]
            journal = [_event(body["run"], row) for row in body["journal"]]
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"this is no frozen run: {type(error).__name__}: {error}") from error
        return FrozenRun(
            body["run"], body["workflow"], body["status"], body["modules"], journal, calls
        )


def _call(row: Mapping[str, Any]) -> FrozenCall:
    reply = json.dumps(row["reply"])
    asked, cost = row["request_hash"], row["cost"]
    return FrozenCall(row["run_id"], row["step"], row["model"], asked, reply, cost)


def _event_json(event: Event) -> dict[str, Any]:
    value = None if event.value is None else json.loads(event.value)
    facts = event.facts
    return {
        "seq": event.seq,
        "type": event.type,
        "key": event.key,
        "at": event.at,
        "facts": facts,
        "value": value,
        "has_value": event.value is not None,
    }


def _event(run_id: str, row: Mapping[str, Any]) -> Event:
    value = json.dumps(row["value"]).encode() if row["has_value"] else None
    facts = json.dumps(row["facts"])
    return Event(run_id, row["seq"], row["type"], row["key"], row["at"], facts, value)


# --- freezing ---

_SECRET_NAMES = re.compile(r"(?i)(key|token|secret|passw|credential|auth)")


def freeze(
    run: Run,
    journal: Sequence[Event],
    calls: Sequence[Call],
    modules: Sequence[str],
    redact: Callable[[str], str],
    environ: Mapping[str, str] = os.environ,
) -> FrozenRun:
    """A run without its secrets: what `redact` knows, webhooks' tokens, and the values of all
    variables of the environment whose names speak of a key, token, secret or password."""
    tokens = [e.facts["token"] for e in journal if e.type == WEBHOOK_CREATED]
    known = [v for n, v in environ.items() if _SECRET_NAMES.search(n) and len(v) >= 8]
    hidden = _in_every_form({*tokens, *known})
    kept = [
        FrozenCall(
            call.start.run_id or "",
            call.start.step or "",
            call.start.model,
            call.start.request_hash,
            call.end.reply,
            call.end.cost,
        )
        for call in sorted(calls, key=lambda call: call.start.started_at)
        if call.end is not None and call.end.status == "completed" and call.end.reply is not None
    ]
    whole = FrozenRun(run.id, run.workflow, run.status, modules, list(journal), kept)

    def clean(text: str) -> str:
        return redact(text if hidden is None else hidden.sub(MASK, text))

    body = json.loads(whole.to_text())
    for row in body["journal"]:
        row["facts"], row["value"] = _cleaned(row["facts"], clean), _cleaned(row["value"], clean)
    for row in body["calls"]:
        row["reply"] = _cleaned(row["reply"], clean)
    return FrozenRun.from_text(json.dumps(body))


def _in_every_form(secrets: set[str]) -> re.Pattern[str] | None:
    """Secrets in whatever case, and as they stand in URLs, base64 and hexadecimal digits."""
    forms: set[str] = set()
    for secret in secrets:
        raw = secret.encode("utf-8", "surrogateescape")
        forms |= {secret, quote(secret, safe=""), raw.hex()}
        # Where it stands in the encoded text decides on its first and last characters.
        forms |= {base64.b64encode(b"\0" * n + raw).decode()[4 * bool(n) : -4] for n in range(3)}
    longest = sorted((f for f in forms if len(f) >= 8), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest)), re.IGNORECASE) if longest else None


def known_redactor() -> Callable[[str], str]:
    """What masks the keys that are configured here, and all that looks like a secret."""
    from holdfast.gateway.config import GatewayConfig
    from holdfast.gateway.providers import resolve_providers
    from holdfast.gateway.secrets import Redactor

    chosen = GatewayConfig.load(os.environ)
    providers = resolve_providers(chosen, os.environ)
    return Redactor([p.key for p in providers.values() if p.key], chosen.redact)


async def frozen_calls(store: str | Path, journal: Sequence[Event]) -> list[Call]:
    """The model calls of a run and of its children, as the store's ledger has them."""
    ledger = opener.ledger(store)
    try:
        found: list[Call] = []
        runs = [journal[0].run_id]
        runs += [e.facts["run"]["id"] for e in journal if e.type == CHILD_STARTED]
        for run_id in runs:
            found += await ledger.calls(run_id=run_id, limit=MOST_CALLS)
        return found
    finally:
        ledger.close()


def _cleaned(value: Any, clean: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_cleaned(each, clean) for each in cast("list[Any]", value)]
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value)
        return {clean(name): _cleaned(each, clean) for name, each in items.items()}
    return value


# --- replaying ---


@dataclass(frozen=True)
class Verdict:
    """What came of replaying a frozen run."""

    passed: bool
    message: str
    difference: str = ""
    """The first thing that was not as recorded."""
    cost: Decimal = Decimal(0)
    """What models cost now, in US dollars."""
    recorded_cost: Decimal = Decimal(0)


NANO = Decimal(1_000_000_000)


def replay_frozen(frozen: FrozenRun, workflow: Workflow[..., Any]) -> Verdict:
    """Replay the body on the journal, with nothing carried out.

    A run that completed must complete with the same result; one that had not ended must fit; one
    that failed passes once the code no longer fails on what was recorded.
    """
    guard.install()
    keep_generators()
    settings = config.section("runtime", Settings)
    with bodies_limited(settings.body_seconds) as watch:
        found = replay(workflow, frozen.journal, max_payload=settings.max_payload, watch=watch)
    recorded = Decimal(frozen.cost) / NANO
    return replace(_judged(frozen, found), recorded_cost=recorded)


def _judged(frozen: FrozenRun, found: Replayed) -> Verdict:
    last = frozen.journal[-1]
    if found.error is not None:
        past_failure = last.type == RUN_FAILED and isinstance(found.error, NonDeterminismError)
        hint = "; with live tools it runs from its beginning" if past_failure else ""
        where = "" if found.place is None else f" ({found.place})"
        text = f"the code no longer fits the recorded run: {found.message}{where}{hint}"
        return Verdict(False, text, found.message)
    if isinstance(found.outcome, Failed):
        error = failures.describe(found.outcome.error)
        why = "as recorded" if last.type == RUN_FAILED else f"instead of {last.type}"
        return Verdict(
            False, f"it fails, {why}: {error}", "" if why == "as recorded" else str(error)
        )
    if last.type == RUN_COMPLETED:
        if not isinstance(found.outcome, Completed):
            now = "goes on" if found.outcome is None else "ends otherwise"
            text = f"it completed when it was recorded, and now {now}"
            return Verdict(False, text, text)
        if not same_json(found.outcome.result, last.value):
            text = _both("the result", last.value, found.outcome.result)
            return Verdict(False, text, text)
    return Verdict(True, "as recorded")


def _both(what: str, recorded: bytes | None, now: bytes | None) -> str:
    return f"{what} was {_short(recorded)}, and is now {_short(now)}"


def _short(value: bytes | None) -> str:
    text = (value or b"nothing").decode()
    return text if len(text) <= 300 else f"{text[:299]}…"


# --- with live tools ---


def replay_live(
    frozen: FrozenRun, workflow: Workflow[..., Any], *, candidate: str | None = None
) -> Verdict:
    """Run it from its beginning: steps carried out, models as recorded.

    `candidate`: `new/model`, asked in place of every recorded model, or `old/model=new/model`, in
    place of that one alone.
    """
    return asyncio.run(_replay_live(frozen, workflow, candidate))


async def _replay_live(
    frozen: FrozenRun, workflow: Workflow[..., Any], candidate: str | None
) -> Verdict:
    from holdfast.gateway.calls import use_gateway
    from holdfast.testing.harness import Harness

    models = _FrozenModels(frozen, candidate)
    harness = Harness()
    harness.clock.set(frozen.journal[0].at)
    gateway = models.gateway()
    use_gateway(gateway)
    try:
        async with harness:
            harness.substitutes.append(lambda step: _as_decided(frozen, step))
            journal = await _drive(harness, frozen, workflow)
            spent = await gateway.ledger.totals([frozen.run_id, *models.runs])
    finally:
        use_gateway(None)
        models.forget()
        await gateway.close()
    difference = first_difference(frozen.journal, journal)
    verdict = _live_verdict(frozen, journal, difference, swapped=candidate is not None)
    cost, recorded = Decimal(spent.cost) / NANO, Decimal(frozen.cost) / NANO
    return replace(verdict, cost=cost, recorded_cost=recorded)


async def _drive(harness: Any, frozen: FrozenRun, workflow: Workflow[..., Any]) -> list[Event]:
    """Let the run go on to its end, with the events it got, or to where it can't."""
    first = frozen.journal[0]
    facts = first.facts
    now = harness.clock.now()
    meta = {"seed": facts["seed"]}
    await harness.engine.create(
        NewRun(
            frozen.run_id,
            workflow.name,
            workflow.version,
            first.value or b"{}",
            meta,
            now,
            now,
            attributes=facts.get("attributes", {}),
        )
    )
    received = {e.key: e for e in frozen.journal if e.type == WAIT_RECEIVED}
    opened = {e.key: e for e in frozen.journal if e.type in COMMANDS}
    sent: set[str] = set()
    while True:
        await harness.until_blocked()
        run = await harness.engine.store.get(frozen.run_id)
        journal: list[Event] = await harness.engine.store.load(frozen.run_id)
        if run.ended or run.status == "stuck":
            return journal
        waiting = {e.key for e in journal if e.type in COMMANDS} - {
            e.key for e in journal if e.type in COMPLETIONS
        }
        due = [key for key in received if key in waiting and key not in sent]
        if due:
            key = min(due, key=lambda key: received[key].seq)
            sent.add(key)
            name = opened[key].facts["name"]
            payload = received[key].value or b"null"
            store = harness.engine.store
            await store.send(name, payload, f"frozen-{key}", frozen.run_id, harness.clock.now())
            continue
        moment = harness.engine.next_alarm()
        if moment is None:
            return journal
        harness.clock.advance(moment)


def _as_decided(frozen: FrozenRun, step: Step[..., Any]) -> Callable[..., Any] | None:
    """What people decided, instead of asking them again."""
    if not step.function.__module__.startswith("holdfast.loop.approval"):
        return None
    results = {e.key: e.value for e in frozen.journal if e.type == STEP_COMPLETED}

    async def decided(*args: Any, **kwargs: Any) -> Any:
        here = current_step()
        value = None if here is None else results.get(here.key)
        if value is None:
            return await step.function(*args, **kwargs)
        return step.signature.decode_result(value)

    return decided


def first_difference(recorded: Sequence[Event], now: Sequence[Event]) -> str:
    """The first command, result or end that is not as recorded; "" if there is none."""
    before: dict[tuple[str, bool], Event] = {}
    for event in recorded:
        if _compared(event):
            before[event.key, event.type in COMMANDS] = event
    for event in now:
        if not _compared(event):
            continue
        old = before.get((event.key, event.type in COMMANDS))
        name = event.facts.get("name", "")
        if old is None:
            if event.type in COMMANDS:
                return f"{event.key}: {event.type} {name}({_short(event.value)}) is new"
            continue
        if (old.type, old.facts.get("name")) != (event.type, event.facts.get("name")):
            was = f"{old.type} {old.facts.get('name', '')}".strip()
            return f"{event.key}: was {was}, is now {event.type} {name}".rstrip()
        if not same_json(old.value, event.value):
            return f"{event.key}: {_both(f'{event.type} {name}'.rstrip(), old.value, event.value)}"
    return ""


def _compared(event: Event) -> bool:
    if event.type in (PATCH_MARKED, WEBHOOK_CREATED):
        return False
    return event.type in COMMANDS or event.type in COMPLETIONS or event.type == RUN_COMPLETED


def _live_verdict(
    frozen: FrozenRun, journal: Sequence[Event], difference: str, *, swapped: bool
) -> Verdict:
    last, before = journal[-1], frozen.journal[-1]
    if last.type == RUN_FAILED:
        error = last.facts["error"]
        return Verdict(False, f"it fails: {error.get('message', error)}", difference)
    if last.type != RUN_COMPLETED:
        waiting = frozen.status not in ("completed", "failed")
        return Verdict(waiting, f"it stands at {last.type}", difference)
    if before.type != RUN_COMPLETED:
        return Verdict(True, f"it completes now; recorded was {before.type}", difference)
    if not swapped and not same_json(last.value, before.value):
        return Verdict(False, _both("the result", before.value, last.value), difference)
    if swapped and _passed(before.value) and not _passed(last.value):
        return Verdict(False, _both("the result", before.value, last.value), difference)
    return Verdict(True, "as recorded" if not difference else "it completes", difference)


def _passed(value: bytes | None) -> bool:
    """Whether a result says that it passed; one that says nothing of the kind has."""
    result = json.loads(value or b"null")
    return bool(result.get("passed", True)) if isinstance(result, dict) else True  # pyright: ignore


class _FrozenModels:
    """Models that answer what they answered: by what is asked, else by the step, in their order."""

    def __init__(self, frozen: FrozenRun, candidate: str | None) -> None:
        from holdfast.gateway.scripted import ScriptedModel

        self._left = list(frozen.calls)
        self._name = f"frozen-{frozen.run_id}"
        self._candidate = candidate
        self.runs: set[str] = set()
        self._scripted = ScriptedModel(self._name, self._answer).register()

    def forget(self) -> None:
        self._scripted.__exit__(None, None, None)

    def gateway(self) -> Gateway:
        """A gateway of its own, that keeps its records in memory."""
        from holdfast.gateway.gateway import Gateway
        from holdfast.gateway.providers import Candidate, Routes

        made = Gateway(ledger=opener.ledger(":memory:"))
        frozen = Candidate(made.providers["scripted"], self._name)
        old, _, new = (self._candidate or "").rpartition("=")

        class FrozenRoutes(Routes):
            def candidates(self, name: str) -> list[Candidate]:
                return super().candidates(new) if new and old in ("", name) else [frozen]

        made.routes = FrozenRoutes(made.config, made.providers)
        return made

    def _answer(self, request: Request) -> Answer:
        from holdfast.gateway.canonical_json import completion_from_text, request_text
        from holdfast.gateway.scripted import Fail

        here = current_step()
        if here is not None:
            self.runs.add(here.run_id)
        asked = request_text(request).encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(asked, digest_size=20).hexdigest()
        same = [call for call in self._left if call.request_hash == digest]
        step = [call for call in self._left if here is not None and call.step == here.step]
        model = [call for call in self._left if call.model == request.model]
        for found in (same, step, model):
            if found:
                self._left.remove(found[0])
                return completion_from_text(found[0].reply)
        return Fail(400, "the recorded run asked no model here: there is no reply to give")
