"""Code in a sandbox uses models through the gateway, and holds no key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.support import Service, make_gateway
from holdfast.sandbox import AllowedHost, Host, MemoryObserver, Sandbox
from holdfast.store.sqlite.ledger import SqliteLedger
from sandbox.support import require

STOCK_CLIENT = """
import openai, sys
client = openai.OpenAI(base_url="http://models.internal/v1", api_key="there is none")
reply = client.chat.completions.create(
    model="scripted/echo", messages=[{"role": "user", "content": "hello from inside"}])
print(reply.choices[0].message.content)
with client.chat.completions.create(
    model="scripted/echo", messages=[{"role": "user", "content": "in pieces"}], stream=True
) as stream:
    print("".join(c.choices[0].delta.content or "" for c in stream if c.choices))
"""
HTTPX = """
import httpx2 as httpx
with httpx.Client() as client:
    for _ in range(2):  # twice over one connection
        print(client.get("http://models.internal/v1/models").status_code)
    print(client.get("http://other.internal/").status_code)
"""
CURL = (
    "curl -sS http://models.internal/v1/chat/completions -H 'content-type: application/json'"
    """ -d '{"model": "scripted/echo", "messages": [{"role": "user", "content": "by curl"}]}'"""
)
LOOK = "env; cat /proc/*/environ /proc/*/cmdline; cat ~/.* ~/.holdfast/* /etc/hosts; ls -R ~"


@pytest.fixture
async def host(sandbox_state: str) -> AsyncIterator[Host]:
    """A host whose sandboxes can import the stock client."""
    require("namespace")
    host = Host(Path(sandbox_state), pool=0, packages=("openai", "httpx2"))
    host.observers.append(MemoryObserver())
    yield host
    await host.aclose()


@pytest.mark.parametrize("backend", ["namespace", "gvisor"])
async def test_stock_clients_inside_use_the_gateway_without_a_key(
    host: Host, tmp_path: Path, backend: str
) -> None:
    require(backend)
    store = tmp_path / "calls.db"
    with Service(lambda: make_gateway(store)) as service:
        rule = AllowedHost(
            "models.internal",
            ports=(80,),
            to=f"127.0.0.1:{service.port}",
            headers={"authorization": f"Bearer {service.secret}"},
        )
        async with await Sandbox.create(
            backend=backend, network=[rule], host=host, timeout=120
        ) as sandbox:
            stock = await sandbox.run("python", "-c", STOCK_CLIENT, timeout=60)
            assert stock.stdout == "hello from inside\nin pieces\n", stock.stderr
            curl = await sandbox.shell(CURL)
            assert "by curl" in curl.stdout, curl.stderr
            asked = await sandbox.run("python", "-c", HTTPX)
            assert asked.stdout == "200\n200\n" and "ConnectError" in asked.stderr
            seen = await sandbox.shell(LOOK)
            assert service.secret not in seen.stdout + seen.stderr
        calls = await asyncio.to_thread(service.calls)
        assert [call.start.api_key for call in calls] == [service.key.id] * 3
        assert {call.status for call in calls} == {"completed"}
        (observer,) = host.observers
        assert isinstance(observer, MemoryObserver)
        assert ("other.internal", False) in {(a.host, a.allowed) for a in observer.attempts}
        told = repr((observer.sandboxes, observer.commands, observer.attempts))
        assert service.secret not in told
    with pytest.raises(AssertionError):  # the same without the header: it is the key that counts
        with Service(lambda: make_gateway(tmp_path / "other.db")) as service:
            open_rule = AllowedHost("models.internal", ports=(80,), to=f"127.0.0.1:{service.port}")
            async with await Sandbox.create(
                backend=backend, network=[open_rule], host=host
            ) as sandbox:
                refused = await sandbox.shell(CURL)
                assert "by curl" in refused.stdout
    ledger = SqliteLedger(store)
    assert len(await ledger.calls()) == 3
    ledger.close()
