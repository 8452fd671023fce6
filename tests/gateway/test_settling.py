"""A call ends on record whatever its provider sent, and whatever becomes of our account of it."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

import pytest

from gateway.hostile import DONE, FINISH, JSON, SSE, chunk
from gateway.support import fake_providers, make_gateway
from holdfast.errors import StoreError
from holdfast.gateway.calls import generate_text, stream_text
from holdfast.gateway.gateway import LibraryCall
from holdfast.records.calls import Call, CallEnd
from holdfast.testing.providers import FakeProvider, Raw

FIRST, SECOND = "\ud83d", "\ude00"


def whole(content: Any = "fine", **usage: int) -> Raw:
    body = {
        "id": "x", "object": "chat.completion", "model": "m", "usage": usage or None,
        "choices": [{"index": 0, "finish_reason": "stop",
                     "message": {"role": "assistant", "content": content}}],
    }  # fmt: skip
    return Raw([json.dumps(body).encode()], headers=JSON)


async def ask(raw: Raw, *, stream: bool = False, **options: Any) -> tuple[str, Call]:
    with FakeProvider([raw]) as fake:
        gateway = make_gateway(
            providers=fake_providers(fake.url, "chat"),
            prices={"fake-chat/*": {"input": 1, "output": 2}},
            budgets=[{"per": "day", "tokens": 10**6}],
        )
        try:
            if stream:
                async with stream_text(
                    "fake-chat/m", prompt="hi", gateway=gateway, **options
                ) as reply:
                    text = "".join([piece async for piece in reply])
            else:
                text = (await generate_text("fake-chat/m", prompt="hi", gateway=gateway)).text
        finally:
            (call,) = await gateway.ledger.calls()
            assert (call.reserved, call.reserved_tokens) == (0, 0)
            await gateway.close()
        return text, call


async def test_a_character_cut_in_two_deltas_comes_whole() -> None:
    raw = Raw([chunk("a"), chunk(FIRST), chunk(SECOND + "b"), FINISH, DONE], headers=SSE)
    text, call = await ask(raw, stream=True)
    assert text == "a\U0001f600b"
    assert call.status == "completed" and call.end is not None
    assert "\U0001f600" in (call.end.reply or "")


@pytest.mark.parametrize("pieces", [[FIRST], [FIRST, "b"], [SECOND], ["a" + FIRST, FIRST + SECOND]])
async def test_half_a_character_alone_is_replaced_and_the_call_ends(pieces: list[str]) -> None:
    raw = Raw([*map(chunk, pieces), FINISH, DONE], headers=SSE)
    text, call = await ask(raw, stream=True)
    assert text == "".join(pieces).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert call.status == "completed"
    text, call = await ask(whole("".join(pieces)))
    assert "�" in text and call.status == "completed"


@pytest.mark.parametrize("number", [2**63, 2**64, 10**30])
async def test_a_usage_that_no_call_can_have_is_estimated_instead(number: int) -> None:
    _, call = await ask(whole(prompt_tokens=number, completion_tokens=1))
    assert call.status == "completed" and call.end is not None
    assert call.end.estimated
    assert 0 < call.end.input_tokens < 1000
    assert call.end.charge_tokens < 1000


async def test_a_reply_that_cannot_be_kept_does_not_keep_its_call_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_: LibraryCall) -> str:
        raise RuntimeError("no way to write this")

    monkeypatch.setattr(LibraryCall, "reply", fail)
    text, call = await ask(whole(prompt_tokens=5, completion_tokens=3))
    assert text == "fine"
    assert call.status == "completed" and call.end is not None
    assert call.end.charge_tokens == 8
    assert "no way to write this" in (call.end.message or "")


async def test_values_no_column_can_hold_are_stored_as_near_as_they_can_be() -> None:
    gateway = make_gateway()
    await start(gateway, "call_1")
    end = CallEnd(
        "completed", 1.0, served=["m"], message=FIRST, reply=f"a{FIRST}", input_tokens=2**70,  # type: ignore[arg-type]
        charge=1, charge_tokens=2,
    )  # fmt: skip
    await gateway.ledger.finish("call_1", end)
    call = await gateway.ledger.call("call_1")
    assert call is not None and call.status == "completed" and call.end is not None
    assert (call.end.reply, call.end.served, call.end.message) == ("a�", "['m']", "�")
    spend = await gateway.ledger.spend("tag:a")
    assert (spend.tokens, spend.reserved_tokens) == (2, 0)
    await gateway.close()


@pytest.mark.parametrize("soon", [True, False])
async def test_an_end_that_the_disk_refused_is_recorded_when_it_can_be(
    tmp_path: Any, soon: bool
) -> None:
    gateway = make_gateway(tmp_path / "store.db")
    await start(gateway, "call_1")
    other = sqlite3.connect(tmp_path / "store.db")
    other.execute("CREATE TRIGGER full BEFORE UPDATE ON calls BEGIN SELECT RAISE(FAIL, 'x'); END")
    # A trigger's word is an IntegrityError; a full disk's an OperationalError: both are StoreErrors.
    with pytest.raises(StoreError):
        if soon:
            gateway.ledger.finish_soon("call_1", CallEnd("completed", 1.0)).result()
        else:
            await gateway.ledger.finish("call_1", CallEnd("completed", 1.0))
    other.execute("DROP TRIGGER full")
    other.close()
    await start(gateway, "call_2")
    first = await gateway.ledger.call("call_1")
    assert first is not None and first.status == "completed"
    await gateway.close()


async def start(gateway: Any, call_id: str) -> None:
    from holdfast.records.calls import CallStart

    begun = CallStart(call_id, "m", "chat", 1.0, prompt=f"half {FIRST}")
    await gateway.ledger.begin(begun, scopes=["tag:a"], usd=0, tokens=10)
