"""A hostile provider costs bounded time and memory, and is never mistaken for an answer."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import openai
import pytest

from gateway.hostile import DONE, FINISH, MB, REPLIES, SSE, STREAMS, chunk, tool
from gateway.processes import GatewayProcess
from gateway.support import Service, fake_providers, make_gateway
from gateway.test_outliving import secret_for
from holdfast.errors import (
    BadReply,
    BudgetExceeded,
    ProviderError,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
)
from holdfast.gateway.calls import generate_text, stream_text
from holdfast.gateway.gateway import Gateway
from holdfast.gateway.messages import user
from holdfast.gateway.scripted import Fail
from holdfast.testing.providers import FakeProvider, Raw
from waiting import LIMIT

TIMEOUTS = {"connect": 0.5, "first_token": 0.6, "idle": 0.6, "total": 1.5}
PATIENT = {"connect": 60, "first_token": 60, "idle": 60, "total": 120}
"""Where attempts are counted: one that found no connection in time would be one of them."""
TIMED = {"slow drip", "silence", "never begins"}


def hostile_config(url: str, **more: Any) -> dict[str, Any]:
    return {
        "providers": fake_providers(url, "chat"),
        "timeouts": TIMEOUTS,
        "retries": {"attempts": 3, "base": 0.01, "cap": 1},
        "prices": {"fake-chat/*": {"input": 1, "output": 1}},
        "bounds": {"reply": MB, "event": MB // 2},
        **more,
    }


async def read_stream(gateway: Gateway) -> str:
    text = ""
    async with stream_text("fake-chat/m", prompt="hi", gateway=gateway) as stream:
        async for piece in stream:
            text += piece
    return text


@pytest.mark.parametrize("case", list(STREAMS))
async def test_a_hostile_stream_is_an_error(case: str) -> None:
    with FakeProvider([STREAMS[case]]) as fake:
        gateway = make_gateway(**hostile_config(fake.url))
        began = time.monotonic()
        with pytest.raises(ProviderTimeout if case in TIMED else ProviderError) as caught:
            await read_stream(gateway)
        assert time.monotonic() - began < 60
        if case == "error event":
            assert isinstance(caught.value, ProviderUnavailable)
            assert "overloaded" in caught.value.message
        elif case not in TIMED and case != "JSON error with 200":
            assert isinstance(caught.value, BadReply), caught.value
        assert fake.hits == 1  # something may have been bought: not again by itself
        (call,) = await gateway.ledger.calls()
        assert call.status == "failed" and call.end is not None
        assert call.end.error == caught.value.kind
        bought = case not in ("redirect", "JSON error with 200")
        assert (call.end.charge > 0) == bought
        if case in ("cut", "no terminal event", "endless", "silence", "error event"):
            assert call.end.output_tokens > 0 and call.end.estimated
        await gateway.close()


@pytest.mark.parametrize("case", list(REPLIES))
async def test_a_hostile_reply_is_an_error(case: str) -> None:
    with FakeProvider([REPLIES[case]]) as fake:
        gateway = make_gateway(**hostile_config(fake.url))
        began = time.monotonic()
        with pytest.raises(ProviderTimeout if case in TIMED else BadReply):
            await generate_text("fake-chat/m", prompt="hi", gateway=gateway)
        assert time.monotonic() - began < 60
        assert fake.hits == 1
        (call,) = await gateway.ledger.calls()
        assert call.status == "failed"
        await gateway.close()


@pytest.mark.parametrize("client_format", ["chat", "responses"], ids=["raw", "translated"])
@pytest.mark.parametrize("case", [c for c in STREAMS if c not in ("slow drip", "never begins")])
def test_a_hostile_stream_is_an_error_for_stock_clients(case: str, client_format: str) -> None:
    with (
        FakeProvider([STREAMS[case]]) as fake,
        Service(lambda: make_gateway(**hostile_config(fake.url))) as service,
        openai.OpenAI(base_url=service.url, api_key=service.secret, max_retries=0) as client,
    ):
        with pytest.raises(openai.APIError):
            if client_format == "chat":
                stream: Any = client.chat.completions.create(
                    model="fake-chat/m", messages=[{"role": "user", "content": "hi"}], stream=True
                )
            else:
                stream = client.responses.create(model="fake-chat/m", input="hi", stream=True)
            for _ in stream:
                pass
        (call,) = service.calls()
        assert call.status == "failed"


async def test_broken_tool_arguments_are_kept_and_named() -> None:
    script = [Raw([tool("", name="f"), tool('{"a": [1,'), FINISH, DONE], headers=SSE)]
    with FakeProvider(script) as fake:  # type: ignore[arg-type]
        gateway = make_gateway(**hostile_config(fake.url))
        stream = stream_text("fake-chat/m", messages=[user("hi")], gateway=gateway)
        reply = await stream.reply()
        assert reply.tool_calls[0].arguments == '{"a": [1,'
        with pytest.raises(BadReply, match="'f' are broken JSON"):
            _ = reply.tool_calls[0].input
        await gateway.close()


async def test_usage_missing_from_a_reply_is_estimated_and_marked() -> None:
    with FakeProvider([Raw([chunk("some words"), FINISH, DONE], headers=SSE)]) as fake:
        gateway = make_gateway(**hostile_config(fake.url))
        reply = await stream_text("fake-chat/m", prompt="hello there", gateway=gateway).reply()
        assert reply.usage.estimated
        assert reply.usage.input > 0 and reply.usage.output == 3
        assert reply.cost is not None and reply.cost > 0
        await gateway.close()


# --- storms ------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 529])
async def test_a_storm_is_weathered_where_nothing_was_bought(status: int) -> None:
    with FakeProvider([Fail(status), Fail(status), "at last"]) as fake:
        gateway = make_gateway(**hostile_config(fake.url, timeouts=PATIENT))
        reply = await generate_text("fake-chat/m", prompt="hi", gateway=gateway)
        assert reply.text == "at last"
        assert [attempt.status for attempt in reply.attempts] == [status, status, 200]
        keys = {request.headers.get("Idempotency-Key") for request in fake.received}
        assert len(keys) == 1
        await gateway.close()


async def test_an_endless_storm_ends_with_its_own_error() -> None:
    with FakeProvider(lambda _: Fail(429)) as fake:
        gateway = make_gateway(**hostile_config(fake.url, timeouts=PATIENT))
        with pytest.raises(RateLimited):
            await generate_text("fake-chat/m", prompt="hi", gateway=gateway)
        assert fake.hits == 3
        await gateway.close()


async def test_a_500_is_not_asked_again() -> None:
    with FakeProvider([Fail(500), "never"]) as fake:
        gateway = make_gateway(**hostile_config(fake.url))
        with pytest.raises(ProviderUnavailable):
            await generate_text("fake-chat/m", prompt="hi", gateway=gateway)
        assert fake.hits == 1
        await gateway.close()


@pytest.mark.parametrize("wait", ["99999999", "-5", "1e400", "soon", "nan", ""])
async def test_an_absurd_retry_after_is_not_obeyed(wait: str) -> None:
    limited = Raw([b"{}"], status=429, headers={"Content-Type": "application/json",
                                                "Retry-After": wait})  # fmt: skip
    with FakeProvider([limited, "fine"]) as fake:
        gateway = make_gateway(**hostile_config(fake.url))
        began = time.monotonic()
        if wait == "99999999":
            with pytest.raises(RateLimited):
                await generate_text("fake-chat/m", prompt="hi", gateway=gateway)
        else:
            reply = await generate_text("fake-chat/m", prompt="hi", gateway=gateway)
            assert reply.text == "fine"
        assert time.monotonic() - began < 60
        await gateway.close()


async def test_retry_after_is_obeyed() -> None:
    with FakeProvider([Fail(429, retry_after=0.4), "fine"]) as fake:
        gateway = make_gateway(**hostile_config(fake.url))
        began = time.monotonic()
        await generate_text("fake-chat/m", prompt="hi", gateway=gateway)
        assert time.monotonic() - began >= 0.4
        await gateway.close()


async def test_a_provider_out_of_reach() -> None:
    gateway = make_gateway(**hostile_config("http://127.0.0.1:9/v1"))
    with pytest.raises(ProviderUnavailable, match="out of reach"):
        await generate_text("fake-chat/m", prompt="hi", gateway=gateway)
    (call,) = await gateway.ledger.calls()
    assert call.end is not None
    assert (call.end.charge, call.end.cost, len(call.end.attempts)) == (0, 0, 3)
    await gateway.close()


async def test_a_cancelled_call_is_recorded_as_interrupted() -> None:
    with FakeProvider([Fail("hang")]) as fake:
        gateway = make_gateway(**{**hostile_config(fake.url), "timeouts": {}})
        task = asyncio.create_task(generate_text("fake-chat/m", prompt="hi", gateway=gateway))
        while not fake.hits:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (call,) = await gateway.ledger.calls()
        assert call.status == "interrupted" and call.end is not None
        assert call.end.charge > 0
        await gateway.close()


def test_budget_errors_reach_stock_clients() -> None:
    def make() -> Gateway:
        return make_gateway(
            **hostile_config("http://127.0.0.1:9/v1"), budgets=[{"per": "day", "usd": 0}]
        )

    with (
        Service(make) as service,
        openai.OpenAI(base_url=service.url, api_key=service.secret) as client,
        pytest.raises(openai.APIStatusError) as caught,
    ):
        client.responses.create(model="fake-chat/m", input="hi")
    assert caught.value.status_code == BudgetExceeded.http_status == 402


# --- memory ------------------------------------------------------------------------------------

LIBRARY = """
import asyncio, json, resource, sys
from holdfast.errors import ProviderError
from holdfast.gateway.calls import generate_text, stream_text
from holdfast.gateway.config import GatewayConfig
from holdfast.gateway.gateway import Gateway
from holdfast.store.sqlite.ledger import SqliteLedger

async def main():
    config = json.loads(sys.argv[1])
    gateway = Gateway(GatewayConfig.from_dict(config), ledger=SqliteLedger(":memory:"))
    await generate_text("fake-chat/m", prompt="hi", gateway=gateway)
    await stream_text("fake-chat/m", prompt="hi", gateway=gateway).reply()
    peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    before = peak()
    for stream in (True,) * 3 + (False,) * 2:
        try:
            if stream:
                await stream_text("fake-chat/m", prompt="hi", gateway=gateway).reply()
            else:
                await generate_text("fake-chat/m", prompt="hi", gateway=gateway)
            raise SystemExit("that was no answer")
        except ProviderError:
            pass
    await gateway.close()
    print((peak() - before) // 1024)

asyncio.run(main())
"""
HUNGRY: list[Any] = [
    "hi", "hi",
    STREAMS["300 MB line"], STREAMS["endless"], STREAMS["gzip bomb"],
    REPLIES["endless"], REPLIES["gzip bomb"],
]  # fmt: skip


def test_the_library_grows_by_64_mb_at_most() -> None:
    with FakeProvider(HUNGRY) as fake:
        config = hostile_config(fake.url, timeouts={"total": 60}, bounds={})
        done = subprocess.run(
            [sys.executable, "-c", LIBRARY, json.dumps(config)],
            capture_output=True, text=True, check=True, timeout=LIMIT,
            env={**os.environ, "HOLDFAST_STORE": ":memory:"},
        )  # fmt: skip
    assert int(done.stdout) <= 64, f"grew by {done.stdout} MB"


def _peak_mb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) // 1024
    raise AssertionError


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_the_service_grows_by_64_mb_at_most(tmp_path: Path) -> None:
    config = {"timeouts": {"total": 60}, "bounds": {}}
    with (
        FakeProvider(HUNGRY) as fake,
        GatewayProcess(tmp_path, **hostile_config(fake.url, **config)) as gateway,
        openai.OpenAI(
            base_url=gateway.url, api_key=secret_for(gateway.store), max_retries=0
        ) as client,
    ):

        def ask(*, stream: bool) -> None:
            reply: Any = client.chat.completions.create(
                model="fake-chat/m", messages=[{"role": "user", "content": "x"}], stream=stream
            )
            if stream:
                for _ in reply:
                    pass

        ask(stream=False)
        ask(stream=True)
        before = _peak_mb(gateway.process.pid)
        for stream in (True, True, True, False, False):
            with pytest.raises(openai.APIError):
                ask(stream=stream)
        grown = _peak_mb(gateway.process.pid) - before
    assert grown <= 64, f"grew by {grown} MB"
