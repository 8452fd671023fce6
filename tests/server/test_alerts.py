"""Alerts: told once, told again until somebody takes them, and decided by the link in them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from holdfast import FatalError, config, get_run, list_runs, start, workflow
from holdfast.cli.main import main
from holdfast.errors import ConfigError
from holdfast.gateway.hooks import Alert
from holdfast.loop import approval
from holdfast.server import alerts
from holdfast.server.alert_settings import AlertSettings, AlertTarget
from holdfast.server.webhook_signatures import WebhookSource, verify
from holdfast.store import opener
from holdfast.testing import Harness

from .conftest import running, until

SECRET = "whsec_plJ3nmyCDGBKInavdOK15jsl"


@workflow(name="alert_breaks")
async def alert_breaks(text: str) -> None:
    raise FatalError(f"broken <!here> {text}")


@workflow(name="alert_asks")
async def alert_asks() -> bool:
    return bool(await approval("Refund 40 €?", timeout="1d"))


@dataclass
class Receiver:
    """Somebody's HTTP server: answers with the next of its statuses, or 204."""

    url: str
    statuses: list[int] = field(default_factory=list[int])
    got: list[tuple[dict[str, str], Any, bytes]] = field(
        default_factory=list[tuple[dict[str, str], Any, bytes]]
    )

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.got.append((headers, json.loads(body), body))
        return web.Response(status=self.statuses.pop(0) if self.statuses else 204)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    app = web.Application()
    found = Receiver("")
    app.router.add_post("/in", found.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}/in"
    yield found
    await runner.cleanup()


def configured(
    path: Path, monkeypatch: pytest.MonkeyPatch, **targets: dict[str, Any]
) -> AlertSettings:
    lines = ["[alerts]", 'base_url = "http://holdfast.example"']
    for name, fields in targets.items():
        lines.append(f"[alerts.to.{name}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in fields.items()]
    (path / "holdfast.toml").write_text("\n".join(lines) + "\n")
    monkeypatch.setenv("HOLDFAST_CONFIG", str(path / "holdfast.toml"))
    monkeypatch.setenv("ALERT_SECRET", SECRET)
    return config.section("alerts", AlertSettings)


@asynccontextmanager
async def following(harness: Harness, settings: AlertSettings) -> AsyncIterator[alerts.Alerting]:
    ledger = opener.ledger(":memory:")
    try:
        yield alerts.Alerting(harness.engine, settings, ledger)
    finally:
        ledger.close()


async def alert_runs() -> list[Any]:
    return (await list_runs(workflow=alerts.WORKFLOW)).runs


async def test_a_failed_run_is_told_signed_and_again_until_it_is_taken(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ops: dict[str, Any] = {"kind": "webhook", "url": receiver.url, "secret_env": "ALERT_SECRET"}
    settings = configured(tmp_path, monkeypatch, ops=ops)
    receiver.statuses = [500, 429, 301]
    async with Harness() as harness, following(harness, settings) as one:
        await one.look()
        run = await start(alert_breaks, "x" * 2000)
        await harness.until_blocked()
        other = alerts.Alerting(harness.engine, settings, opener.ledger(":memory:"))
        for each in (one, other, one):
            await each.look()
        [told] = await alert_runs()
        await harness.crash()
        await (await get_run(told.id)).result()
        assert len(await alert_runs()) == 1
    assert len(receiver.got) == 4
    assert {headers["webhook-id"] for headers, *_ in receiver.got} == {f"alert_{told.id}"}
    headers, body, raw = receiver.got[-1]
    assert (body["type"], body["data"]["run_id"], body["data"]["workflow"]) == (
        "run.failed", run.id, "alert_breaks",
    )  # fmt: skip
    assert body["data"]["url"] == f"http://holdfast.example/runs/{run.id}"
    assert body["data"]["error"].startswith("FatalError: broken")
    assert len(body["data"]["error"]) == 500
    at = float(headers["webhook-timestamp"])
    verify(WebhookSource("standard", secret=SECRET), headers, raw, at)


def test_signatures_are_those_of_the_standard(monkeypatch: pytest.MonkeyPatch) -> None:
    """The values that the standard's own libraries are tested with."""
    monkeypatch.setenv("ALERT_SECRET", SECRET)
    body = b'{"event_type":"ping","data":{"success":true}}'
    made = alerts.signed("msg_loFOjxBNrRLzqYUf", 1731705121, body, "ALERT_SECRET")
    assert made["webhook-signature"] == "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0="


async def test_what_happened_while_nobody_followed_is_told_later_and_alerts_of_nobody(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = {"kind": "webhook", "url_env": "ALERT_NOT_SET", "events": ["run.failed"]}
    mine = {"kind": "slack", "url": receiver.url, "workflows": ["alert_b*"]}
    settings = configured(tmp_path, monkeypatch, gone=gone, mine=mine)
    async with Harness() as harness, following(harness, settings) as found:
        await start(alert_breaks, "before anybody follows")
        await harness.until_blocked()
        await found.look()
        assert await alert_runs() == []
        await start(alert_breaks, "once")
        await start(alert_asks)  # not theirs
        await harness.until_blocked()
        for _ in range(3):
            await found.look()
            await harness.until_blocked()
        statuses = {run.attributes["to"]: run.status for run in await alert_runs()}
        assert statuses == {"gone": "failed", "mine": "completed"}
    [(_, message, _)] = receiver.got
    assert message["text"] == "alert_breaks failed: FatalError: broken &lt;!here&gt; once"
    [section, actions] = message["blocks"]
    assert section["type"] == "section"
    assert [each["text"]["text"] for each in actions["elements"]] == ["Show the run"]


async def test_an_approval_is_decided_by_the_link_that_was_sent(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = configured(tmp_path, monkeypatch, phone={"kind": "slack", "url": receiver.url})
    async with running(tmp_path / "store.db", token="t" * 20) as server:
        engine, server.headers = server.engine, {}
        ledger = opener.ledger(engine.store.name)
        found = alerts.Alerting(engine, settings, ledger)
        await found.look()
        run = await start(alert_asks)

        async def told() -> bool:
            await found.look()
            return bool(receiver.got)

        await until(told, "the alert")
        ledger.close()
        [(_, message, _)] = receiver.got
        decide, show = message["blocks"][1]["elements"]
        assert show["url"].endswith(f"/runs/{run.id}")
        path = decide["url"].removeprefix("http://holdfast.example")
        html = {"Accept": "text/html"}
        page = await server.get(path, headers=html)
        assert (page.status, "Refund 40 €?" in page.text) == (200, True)
        assert "<button" in page.text
        assert (await server.get(path[:-3] + "abc", headers=html)).status == 404
        assert (await server.get(f"/runs/{run.id}")).status == 401
        form = {"approved": "true", "by": "ann"}
        sent = await server.ask("POST", path, data=form, headers=html)
        assert (sent.status, sent.headers["location"]) == (303, path)
        assert "approved by ann" in (await server.get(path, headers=html)).text
        assert await run.result() is True
        for told_run in await alert_runs():  # what lets its holder decide is in no journal
            journal = await engine.store.load(told_run.id)
            assert path.rpartition("/")[2] not in repr(journal)


async def test_mail_goes_to_the_server_that_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mails: list[str] = []

    async def session(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 here\r\n")
        while line := (await reader.readline()).decode():
            word = line[:4].upper()
            if word == "DATA":
                writer.write(b"354 go on\r\n")
                mails.append((await reader.readuntil(b"\r\n.\r\n")).decode())
            writer.write(b"221 bye\r\n" if word == "QUIT" else b"250 ok\r\n")
            if word == "QUIT":
                break
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(session, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    team = {"kind": "email", "to": ["a@b.example"], "smtp_host": "127.0.0.1", "smtp_port": port}
    settings = configured(tmp_path, monkeypatch, team=team)
    async with server:
        async with Harness() as harness, following(harness, settings) as found:
            await found.look()
            await start(alert_breaks, "line\nbreak")
            await harness.until_blocked()
            await found.look()
            [told] = await alert_runs()
            await (await get_run(told.id)).result()
    assert "Subject: [holdfast] alert_breaks failed: FatalError: broken <!here> line break" in (
        mails[0].replace("\r\n ", " ")
    )
    assert "To: a@b.example" in mails[0]


async def test_a_budget_that_nears_its_end_is_told_once(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = configured(tmp_path, monkeypatch, ops={"kind": "webhook", "url": receiver.url})
    warning = Alert("team:search", Decimal("0.8"), Decimal(8), 5, Decimal(10), None)
    async with Harness() as harness, following(harness, settings) as found:
        for _ in range(2):
            await alerts._BudgetHook(found).alerted(warning)
        [told] = await alert_runs()
        await (await get_run(told.id)).result()
        await harness.until_blocked()
    [(_, body, _)] = receiver.got
    assert (body["type"], body["data"]["scope"], body["data"]["part"]) == (
        "budget.warning", "team:search", "0.8",
    )  # fmt: skip
    assert alerts.words(body) == "team:search has spent 80% of its budget"


def test_settings_that_lead_nowhere_are_refused() -> None:
    for fields, why in (
        ({"kind": "webhook"}, "either url or url_env"),
        ({"kind": "email"}, "needs addresses"),
        ({"kind": "slack", "url": "http://x", "events": ("run.exploded",)}, "is no event"),
    ):
        with pytest.raises(ConfigError, match=why):
            AlertTarget(**fields)


async def test_the_command_line_lists_and_tries_them(
    receiver: Receiver,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    configured(tmp_path, monkeypatch, ops={"kind": "webhook", "url": receiver.url})
    store = str(tmp_path / "store.db")
    assert await asyncio.to_thread(main, ["alerts", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["targets"][0]["name"] == "ops"
    assert await asyncio.to_thread(main, ["alerts", "test", "ops", "--store", store]) == 0
    assert capsys.readouterr().out == "delivered\n"
    assert receiver.got[0][1]["type"] == "test"
    assert await asyncio.to_thread(main, ["alerts", "test", "none", "--store", store]) == 3
