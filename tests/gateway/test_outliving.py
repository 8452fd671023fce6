"""Calls that outlive their caller, with real processes and kill -9."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from gateway.processes import GatewayProcess, client, end
from gateway.support import fake_providers
from holdfast.gateway.keys import create_key
from holdfast.gateway.scripted import Fail, Say
from holdfast.store.sqlite.ledger import SqliteLedger
from holdfast.testing.providers import FakeProvider
from waiting import LIMIT, until

SLOW = Say("a whole reply that takes its time to come", chunk=4, delay=0.12)
WHOLE = "a whole reply that takes its time to come"


def secret_for(store: Path) -> str:
    async def make() -> str:
        ledger = SqliteLedger(store)
        try:
            return (await create_key(ledger, name="worker")).secret
        finally:
            ledger.close()

    return asyncio.run(make())


def calls_in(store: Path) -> list[Any]:
    async def read() -> list[Any]:
        ledger = SqliteLedger(store)
        try:
            return await ledger.calls()
        finally:
            ledger.close()

    return asyncio.run(read())


def ask(url: str, secret: str, key: str, *, stream: bool = False, **more: Any) -> tuple[int, str]:
    """One keyed call from here: status and body."""
    headers = more.pop("headers", {})
    body = {"model": "fake-chat/m", "messages": [{"role": "user", "content": "hi"}], **more}
    if stream:
        body["stream"] = True
    request = urllib.request.Request(
        f"{url}/chat/completions",
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {secret}", "Content-Type": "application/json",
         "Idempotency-Key": key, **headers},
    )  # fmt: skip
    try:
        with urllib.request.urlopen(request, timeout=LIMIT) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def text_of(body: str) -> str:
    """The answer's text in a chat reply, streamed or not."""
    if not body.startswith("data:"):
        return json.loads(body)["choices"][0]["message"]["content"]
    events = [line[6:] for line in body.splitlines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    return "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"])


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streaming"])
def test_a_caller_killed_in_mid_call_comes_back_to_the_same_call(
    tmp_path: Path, stream: bool
) -> None:
    with (
        FakeProvider([SLOW]) as fake,
        GatewayProcess(tmp_path, providers=fake_providers(fake.url)) as gateway,
    ):
        secret = secret_for(gateway.store)
        caller = client(gateway.url, secret, "k1", stream=stream)
        if stream:
            assert caller.stdout is not None
            until(lambda: caller.stdout.readline())  # type: ignore[union-attr]
        else:
            until(lambda: fake.hits)
        end(caller)
        status, body = ask(gateway.url, secret, "k1", stream=stream)
        assert (status, text_of(body)) == (200, WHOLE)
        assert fake.hits == 1
        status, again = ask(gateway.url, secret, "k1", stream=stream)  # now a replay
        assert (status, text_of(again)) == (200, WHOLE)
        assert again == body
        assert fake.hits == 1
        statuses = [call.status for call in calls_in(gateway.store)]
        assert statuses == ["completed"]


WORKER = """
import asyncio
from holdfast.session import Caller, CurrentStep, set_caller
from holdfast.gateway import generate_text, stream_text

async def main():
    set_caller(Caller(step=CurrentStep("run_1", "w", "s", "0", 1, "the step's own key")))
    print((await generate_text("holdfast/fake-chat/m", prompt="hi")).text)

asyncio.run(main())
"""


def test_a_worker_killed_in_mid_call_takes_its_call_up_again(tmp_path: Path) -> None:
    """The library behind the service: the step is run again, the model is asked once."""
    (tmp_path / "service").mkdir()
    with (
        FakeProvider([SLOW]) as fake,
        GatewayProcess(tmp_path / "service", providers=fake_providers(fake.url)) as gateway,
    ):
        env = {
            **os.environ,
            "HOLDFAST_STORE": str(tmp_path / "worker.db"),
            "HOLDFAST_GATEWAY_URL": gateway.url,
            "HOLDFAST_GATEWAY_KEY": secret_for(gateway.store),
        }

        def worker() -> subprocess.Popen[str]:
            return subprocess.Popen(
                [sys.executable, "-c", WORKER], stdout=subprocess.PIPE, text=True, env=env
            )

        first = worker()
        until(lambda: fake.hits)
        end(first)
        assert worker().communicate()[0].strip() == WHOLE
        assert fake.hits == 1
        statuses = [call.status for call in calls_in(tmp_path / "worker.db")]
        assert statuses == ["completed", "unknown"]

        async def spent() -> int:
            ledger = SqliteLedger(tmp_path / "worker.db")
            try:
                return (await ledger.spend("run:run_1")).tokens
            finally:
                ledger.close()

        assert asyncio.run(spent()) < 100  # the lost try counts nothing: it is the same call


def test_a_finished_call_is_replayed_by_a_restarted_gateway(tmp_path: Path) -> None:
    with FakeProvider(["once"]) as fake:
        gateway = GatewayProcess(tmp_path, providers=fake_providers(fake.url)).start()
        secret = secret_for(gateway.store)
        first = ask(gateway.url, secret, "k1")
        gateway.kill()
        with gateway:
            assert ask(gateway.url, secret, "k1") == first
        assert fake.hits == 1


def test_the_same_key_for_another_request_is_refused(tmp_path: Path) -> None:
    with (
        FakeProvider([SLOW, "two"]) as fake,
        GatewayProcess(tmp_path, providers=fake_providers(fake.url)) as gateway,
    ):
        secret, other = secret_for(gateway.store), secret_for(gateway.store)
        caller = client(gateway.url, secret, "k1", stream=True)
        until(lambda: fake.hits)
        assert ask(gateway.url, secret, "k1", temperature=0.5)[0] == 422  # in flight
        caller.communicate()
        assert ask(gateway.url, secret, "k1", temperature=0.5)[0] == 422  # finished
        assert ask(gateway.url, other, "k1", temperature=0.5)[0] == 200  # another client's key
        assert fake.hits == 2


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streaming"])
def test_a_gateway_killed_in_mid_call_says_outcome_unknown(tmp_path: Path, stream: bool) -> None:
    with FakeProvider([SLOW, "anew"]) as fake:
        gateway = GatewayProcess(tmp_path, providers=fake_providers(fake.url)).start()
        secret = secret_for(gateway.store)
        caller = client(gateway.url, secret, "k1", stream=stream)
        until(lambda: fake.hits)
        gateway.kill()
        caller.communicate()
        with gateway:
            for _ in range(2):
                status, body = ask(gateway.url, secret, "k1", stream=stream)
                assert status == 409
                assert json.loads(body)["error"]["code"] == "OutcomeUnknown"
            assert fake.hits == 1
            unknown = calls_in(gateway.store)[-1]
            assert unknown.status == "unknown"
            assert unknown.end is not None and unknown.end.charge_tokens > 0
            # The caller's policy decides.
            again = {"X-Holdfast-On-Unknown": "again"}
            status, body = ask(gateway.url, secret, "k1", stream=stream, headers=again)
            assert (status, text_of(body)) == (200, "anew")
        assert fake.hits == 2


def test_a_failed_call_may_be_made_again_under_its_key(tmp_path: Path) -> None:
    with (
        FakeProvider([Fail(500), "second"]) as fake,
        GatewayProcess(tmp_path, providers=fake_providers(fake.url)) as gateway,
    ):
        secret = secret_for(gateway.store)
        assert ask(gateway.url, secret, "k1")[0] == 503
        status, body = ask(gateway.url, secret, "k1")
        assert (status, text_of(body)) == (200, "second")


def test_many_callers_with_one_key_make_one_call(tmp_path: Path) -> None:
    with (
        FakeProvider([SLOW]) as fake,
        GatewayProcess(tmp_path, providers=fake_providers(fake.url)) as gateway,
    ):
        secret = secret_for(gateway.store)
        callers = [client(gateway.url, secret, "k1", stream=True) for _ in range(4)]
        bodies = [caller.communicate()[0] for caller in callers]
        assert {text_of(body) for body in bodies} == {WHOLE}
        assert fake.hits == 1


def test_a_call_without_a_key_is_stopped_when_its_client_goes(tmp_path: Path) -> None:
    forever = Say("x" * 4000, chunk=1, delay=0.05)
    with (
        FakeProvider([forever]) as fake,
        GatewayProcess(tmp_path, providers=fake_providers(fake.url)) as gateway,
    ):
        secret = secret_for(gateway.store)
        body = {"model": "fake-chat/m", "stream": True,
                "messages": [{"role": "user", "content": "hi"}]}  # fmt: skip
        request = urllib.request.Request(
            f"{gateway.url}/chat/completions", json.dumps(body).encode(),
            {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"},
        )  # fmt: skip
        reply = urllib.request.urlopen(request, timeout=LIMIT)
        while b'"content":"x"' not in reply.readline():
            pass
        reply.close()
        call = until(
            lambda: next((c for c in calls_in(gateway.store) if c.status != "started"), None)
        )
        assert call.status == "interrupted"
        assert call.end.estimated and call.end.output_tokens > 0
        assert fake.hits == 1
