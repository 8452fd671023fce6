"""What the gateway's tests share: a gateway on a fake provider, and the service in a thread."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.gateway.config import GatewayConfig
from holdfast.gateway.gateway import Gateway
from holdfast.gateway.keys import create_key
from holdfast.gateway.service import server
from holdfast.store import opener
from waiting import LIMIT

PRICE = {"input": 1, "output": 2}


def make_gateway(
    store: Path | str = ":memory:", environ: dict[str, str] | None = None, **config: Any
) -> Gateway:
    """A gateway with this configuration, and a ledger at `store`."""
    built = GatewayConfig.from_dict(config)
    ledger = opener.ledger(store, replays_for=built.replays_for)
    return Gateway(built, ledger=ledger, environ=environ or {})


def fake_providers(url: str, *formats: str, **more: Any) -> dict[str, Any]:
    """Configuration of one provider per format at this address: `fake-chat`, …"""
    names = formats or ("chat", "responses", "anthropic")
    return {f"fake-{name}": {"base_url": url, "formats": [name], **more} for name in names}


class Service:
    """The gateway's HTTP service in a thread, for sync clients."""

    def __init__(self, make: Callable[[], Gateway], *, open_to_all: bool = False) -> None:
        self._make, self._open = make, open_to_all
        self._listener: socket.socket = server.bind("127.0.0.1", 0)
        self.port = self._listener.getsockname()[1]
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self.gateway: Gateway
        self.secret = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def anthropic_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _run(self) -> None:
        self.gateway = self._make()
        self._loop = asyncio.get_running_loop()
        made = await create_key(self.gateway.ledger, name="test")
        self.secret, self.key = made.secret, made.key
        self._server = server.make_server(self.gateway, host="127.0.0.1", open_to_all=self._open)
        self._ready.set()
        try:
            await self._server.serve(sockets=[self._listener])
        finally:
            await self.gateway.close()

    def ask(self, coroutine: Any) -> Any:
        """Run something on the service's own loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(LIMIT)

    def calls(self, **which: Any) -> list[Any]:
        """The recorded calls, once all of them have ended: a client may be done before that."""
        deadline = time.monotonic() + LIMIT
        while True:
            found = self.ask(self.gateway.ledger.calls(**which))
            if all(call.status != "started" for call in found) or time.monotonic() > deadline:
                return found
            time.sleep(0.01)

    def __enter__(self) -> Service:
        self._thread.start()
        self._ready.wait(LIMIT)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join()
