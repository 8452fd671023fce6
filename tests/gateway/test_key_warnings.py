"""`holdfast keys limit --warn-at`: a warning for the limit of a team, a user, a key or a tag."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from gateway.support import fake_providers
from holdfast.cli.main import main
from holdfast.gateway import Alert, Gateway, GatewayConfig, Hook, generate_text, tagged
from holdfast.gateway.reply import Usage
from holdfast.gateway.scripted import Say
from holdfast.store import opener
from holdfast.testing.providers import FakeProvider


class Listener(Hook):
    def __init__(self) -> None:
        self.alerts: list[Alert] = []

    async def alerted(self, alert: Alert) -> None:
        self.alerts.append(alert)


def limit(store: Path, *words: str) -> int:
    return main(["keys", "limit", "team:search", *words, "--store", str(store)])


async def spend(store: Path) -> list[Alert]:
    """What is warned of when the team makes six calls of 350 tokens."""
    listener = Listener()
    with FakeProvider(lambda request: Say("x", usage=Usage(300, 50))) as fake:
        config = GatewayConfig.from_dict({"providers": fake_providers(fake.url, "chat")})
        gateway = Gateway(config, ledger=opener.ledger(store), environ={}, hooks=[listener])
        for _ in range(6):
            with tagged("team:search"):
                await generate_text("fake-chat/m", prompt="x", max_tokens=50, gateway=gateway)
        await gateway.close()
    return listener.alerts


def test_a_part_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "s.db"
    assert limit(store, "--tokens", "10", "--warn-at", "80") == 2
    assert limit(store, "--warn-at", "0.8") == 2
    assert "--warn-at" in capsys.readouterr().err


async def test_the_warning_is_given_once_for_a_limit(tmp_path: Path) -> None:
    import asyncio

    store = tmp_path / "s.db"
    words = ("--tokens", "10000", "--warn-at", "0.1")
    assert await asyncio.to_thread(limit, store, *words) == 0
    [alert] = await spend(store)
    assert (alert.scope, alert.part) == ("team:search", Decimal("0.1"))
    assert (alert.limit_tokens, alert.limit_usd) == (10_000, None) and alert.tokens >= 1000
    assert await spend(store) == [], "another process does not warn again"
    assert await asyncio.to_thread(limit, store, "--tokens", "20000") == 0  # without a warning
    assert await spend(store) == []
    assert await asyncio.to_thread(limit, store, "--tokens", "20000", "--warn-at", "0.2") == 0
    assert [one.limit_tokens for one in await spend(store)] == [20_000]
