"""Alerts: what people and programs are told of runs, by webhook, Slack or e-mail, durably.

    [alerts]
    base_url = "https://holdfast.example.com"     # where links lead

    [alerts.to.oncall]
    kind = "slack"                                # or webhook, email
    url_env = "SLACK_WEBHOOK_URL"
    events = ["run.failed", "run.stuck", "approval.needed", "budget.warning"]
    workflows = ["import_*"]                      # all, unless some are named

An alert is a run of its own (`holdfast_alert`) with a key made of the event it is about: however
many processes follow the log, it is made once, and it is tried again for a day. How far the log was
followed is kept in the store, so that what happens while no process is there is told later. What
goes out names the run and its error, never its input or results; the link that lets its holder
decide an approval is made when it is sent, and is in no journal.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import logging
import smtplib
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.message import EmailMessage
from typing import Any

from holdfast import config
from holdfast.errors import ConfigError, FatalError, NotFound, RetryableError, StoreError
from holdfast.gateway.accounting import Meter
from holdfast.gateway.calls import default_gateway
from holdfast.gateway.config import Bounds, Timeouts
from holdfast.gateway.exchange import Exchange
from holdfast.gateway.hooks import Alert as BudgetAlert
from holdfast.gateway.hooks import Hook
from holdfast.gateway.http_client import HttpClient
from holdfast.loop.approval_decisions import approval_token, get_approval
from holdfast.records import RUN_FAILED, RUN_STUCK, WAIT_CREATED, Event
from holdfast.runtime.context import step_context
from holdfast.runtime.definitions import step, workflow
from holdfast.runtime.engine import Engine
from holdfast.runtime.retry import Backoff
from holdfast.server.alert_settings import WORKFLOW, AlertSettings, AlertTarget, variable
from holdfast.store import opener
from holdfast.store.base import DECIDED
from holdfast.store.ledger import Ledger

log = logging.getLogger("holdfast.alerts")

PAGE = 1000
LOOK_SECONDS = 1.0
FOLLOWED = "alerts:followed"
YEARS = 10 * 365 * 86400.0
ERROR_CHARACTERS = 500
TIMEOUTS = Timeouts(connect=10, first_token=20, idle=20, total=30)


# --- sending one ---


@workflow(name=WORKFLOW, version="1")
async def send_alert(target: str, alert: dict[str, Any]) -> None:
    """Tell one target of one event."""
    await deliver(target, alert)


@step(
    retries=30,
    timeout="60s",
    backoff=Backoff(initial=5, maximum="1h"),
    give_up_on=(FatalError, ConfigError),
)
async def deliver(target: str, alert: dict[str, Any]) -> None:
    """Send an alert; whoever gets it twice knows it by its id."""
    settings = config.section("alerts", AlertSettings)
    found = settings.to.get(target)
    if found is None:
        raise FatalError(f"there is no [alerts.to.{target}] any more")
    url, decide_url = await _links(settings, alert)
    if found.kind == "email":
        await asyncio.to_thread(_send_mail, found, alert, url, decide_url)
        return
    id = f"alert_{step_context().run_id}"
    if found.kind == "slack":
        body, headers = slack_message(alert, url, decide_url), dict[str, str]()
    else:
        body = {**alert, "data": {**alert["data"], "url": url or None}}
        if decide_url:
            body["data"]["decide_url"] = decide_url
        headers = None
    data = json.dumps(body, ensure_ascii=False).encode()
    if headers is None:
        headers = signed(id, int(time.time()), data, found.secret_env)
    await _post(found.address, data, {"Content-Type": "application/json", **headers})


async def _links(settings: AlertSettings, alert: dict[str, Any]) -> tuple[str, str]:
    """Where to look, and where to decide if that is what is asked."""
    base, data = settings.base_url.rstrip("/"), alert["data"]
    if not base or "run_id" not in data:
        return base, ""
    url = f"{base}/runs/{data['run_id']}"
    if "approval_id" not in data:
        return url, ""
    return url, f"{base}/hooks/{data['approval_id']}/{await approval_token(data['approval_id'])}"


def signed(id: str, at: int, body: bytes, secret_env: str) -> dict[str, str]:
    """The headers of Standard Webhooks."""
    headers = {"webhook-id": id, "webhook-timestamp": str(at)}
    if secret_env:
        try:
            key = base64.b64decode(variable(secret_env).removeprefix("whsec_"), validate=True)
        except binascii.Error as error:
            raise ConfigError(f"{secret_env} is not base64, as whsec_… is") from error
        mac = hmac.new(key, f"{id}.{at}.".encode() + body, hashlib.sha256).digest()
        headers["webhook-signature"] = f"v1,{base64.b64encode(mac).decode()}"
    return headers


async def _post(url: str, body: bytes, headers: dict[str, str]) -> None:
    async with Exchange(
        HttpClient(TIMEOUTS, trust_env=True), "the receiver of alerts", url, body=body,
        meter=Meter(), headers=headers, streams=False, timeouts=TIMEOUTS,
        bounds=Bounds(reply=65536),
    ) as exchange:  # fmt: skip
        await exchange.read()
    if exchange.status >= 300:
        raise RetryableError(f"the receiver answered {exchange.status}")


def words(alert: dict[str, Any]) -> str:
    """An alert on one line."""
    data = alert["data"]
    match alert["type"]:
        case "run.failed":
            return f"{data['workflow']} failed: {data['error']}"
        case "run.stuck":
            return f"{data['workflow']} is stuck: {data['error']}"
        case "approval.needed":
            return f"{data['workflow']} waits for a decision: {data['title']}"
        case "budget.warning":
            return f"{data['scope']} has spent {float(data['part']):.0%} of its budget"
        case _:
            return "a test of Holdfast's alerts"


def slack_message(alert: dict[str, Any], url: str, decide_url: str) -> dict[str, Any]:
    """What Slack's incoming webhooks take: text, and buttons that lead to pages."""
    text = words(alert)
    # Slack reads these three as its own marks, and would notify a whole channel for <!here>.
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    places = [("Decide", decide_url, "primary"), ("Show the run", url, None)]
    buttons = [
        {
            "type": "button",
            "text": {"type": "plain_text", "text": label},
            "url": place,
            **({"style": style} if style else {}),
        }
        for label, place, style in places
        if place
    ]
    section = {"type": "section", "text": {"type": "mrkdwn", "text": escaped}}
    blocks = [section, {"type": "actions", "elements": buttons}] if buttons else [section]
    return {"text": escaped, "blocks": blocks}


def _send_mail(target: AlertTarget, alert: dict[str, Any], url: str, decide_url: str) -> None:
    message = EmailMessage()
    line = " ".join(words(alert).split())
    message["Subject"] = f"[holdfast] {line[:150]}"
    message["From"], message["To"] = target.sender, ", ".join(target.to)
    lines = [line, ""]
    lines += [f"Decide: {decide_url}"] if decide_url else []
    lines += [f"The run: {url}"] if url else []
    message.set_content("\n".join(lines) + "\n")
    opened = smtplib.SMTP_SSL if target.smtp_tls == "tls" else smtplib.SMTP
    with opened(target.smtp_host, target.smtp_port, timeout=30) as server:
        if target.smtp_tls == "starttls":
            server.starttls()
        if target.smtp_user:
            server.login(target.smtp_user, variable(target.smtp_password_env))
        server.send_message(message)


# --- what is told ---


class Alerting:
    """Follows the log and starts the runs that tell of what is in it."""

    def __init__(self, engine: Engine, settings: AlertSettings, ledger: Ledger) -> None:
        self._engine, self._settings, self._ledger = engine, settings, ledger

    async def follow(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            try:
                await self.look()
            except StoreError as error:
                log.error("alerts can't be looked for, trying again: %s", error)
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Tell of what has come since the last look; the first one only says from where on."""
        kept = await self._ledger.kept(FOLLOWED)
        store = self._engine.store
        after = await store.log_end() if kept is None else int(kept)
        while True:
            events = await store.log(after, PAGE)
            for event in events:
                alert = await self._alert_of(event)
                if alert is not None:
                    await self.tell(alert, f"{event.run_id}:{event.seq}")
            if events:
                after = events[-1].log
            if events or kept is None:
                await self._ledger.keep(FOLLOWED, str(after).encode(), until=time.time() + YEARS)
            if len(events) < PAGE:
                return

    async def tell(self, alert: dict[str, Any], key: str, *, only: str | None = None) -> list[str]:
        """Start the runs that tell of something, or the one for a single target; their ids."""
        engine, data = self._engine, alert["data"]
        found: list[str] = []
        for name, target in self._settings.to.items():
            if only in (None, name) and target.takes(alert["type"], data.get("workflow")):
                chosen = send_alert.options(
                    key=f"{name}:{key}", attributes={"alert": alert["type"], "to": name}
                )
                input = chosen.signature.encode_arguments((name, alert), {})
                new = chosen.new_run(input, None, engine.clock.now())
                found.append((await engine.create(new)).run.id)
        return found

    async def _alert_of(self, event: Event) -> dict[str, Any] | None:
        """What there is to tell of an event, if anything."""
        if event.type in (RUN_FAILED, RUN_STUCK):
            error: dict[str, Any] = event.facts.get("error") or {}
            text = f"{error.get('type', 'Error')}: {error.get('message', '')}"[:ERROR_CHARACTERS]
            return await self._about(event, {"error": text})
        if event.type == WAIT_CREATED and event.facts["name"].startswith(DECIDED):
            id = event.facts["name"].removeprefix(DECIDED)
            try:
                asked = await get_approval(id)
            except NotFound:
                return None  # deleted with its run
            if asked.status != "pending":
                return None
            facts = {"approval_id": id, "title": asked.title, "asked_of": asked.asked_of}
            return await self._about(event, {**facts, "expires_at": asked.expires_at})
        return None

    async def _about(self, event: Event, facts: dict[str, Any]) -> dict[str, Any] | None:
        run = await self._engine.store.get(event.run_id)
        if run is None or run.workflow == WORKFLOW:
            return None
        kind = "approval.needed" if event.type == WAIT_CREATED else event.type
        return alert_of(kind, event.at, run_id=run.id, workflow=run.workflow, **facts)


def alert_of(kind: str, at: float, **data: Any) -> dict[str, Any]:
    """An alert as it is posted, by the shape of Standard Webhooks."""
    when = datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")
    return {"type": kind, "timestamp": when, "data": data}


class _BudgetHook(Hook):
    """Tells of budgets that near their end."""

    def __init__(self, alerting: Alerting) -> None:
        self._alerting = alerting

    async def alerted(self, alert: BudgetAlert) -> None:
        limit = None if alert.limit_usd is None else str(alert.limit_usd)
        told = alert_of(
            "budget.warning", time.time(), scope=alert.scope, part=str(alert.part),
            usd=str(alert.usd), limit_usd=limit, tokens=alert.tokens,
            limit_tokens=alert.limit_tokens,
        )  # fmt: skip
        key = f"budget:{alert.scope}:{alert.part}:{limit}:{alert.limit_tokens}"
        await self._alerting.tell(told, key)


@asynccontextmanager
async def alerting(engine: Engine) -> AsyncGenerator[Alerting | None]:
    """Tell whoever the configuration names, while this is open."""
    settings = config.section("alerts", AlertSettings)
    if not settings.to:
        yield None
        return
    ledger, gateway = opener.ledger(engine.store.name), default_gateway()
    found = Alerting(engine, settings, ledger)
    await found.look()
    hooks = gateway.hooks
    gateway.hooks = (*hooks, _BudgetHook(found))
    following = asyncio.create_task(found.follow())
    try:
        yield found
    finally:
        gateway.hooks = hooks
        following.cancel()
        await asyncio.wait([following])
        ledger.close()
