"""Streams reach their reader piece by piece, while the provider is still speaking."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import anthropic
import openai
import pytest

from gateway.hostile import DONE, FINISH, SSE, chunk
from gateway.support import Service, fake_providers, make_gateway
from holdfast.gateway.calls import stream_text
from holdfast.testing.providers import FakeProvider, Raw
from waiting import LIMIT

HELLO = [{"role": "user", "content": "hi"}]


class Held:
    """A provider's stream that stops after its first piece until told to go on."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.waited = False

    def __call__(self) -> Iterator[bytes]:
        yield chunk("first ")
        self.waited = self.go_on.wait(LIMIT)
        yield chunk("second")
        yield FINISH
        yield DONE


@pytest.mark.parametrize("client", ["raw", "translated"])
def test_a_client_has_the_first_piece_before_the_provider_has_sent_the_second(client: str) -> None:
    held = Held()
    with FakeProvider([Raw(held, headers=SSE)]) as fake:
        config = fake_providers(fake.url, "chat")
        with Service(lambda: make_gateway(providers=config)) as service:
            pieces: list[str] = []
            if client == "raw":
                with openai.OpenAI(base_url=service.url, api_key=service.secret) as chat:
                    stream = chat.chat.completions.create(
                        model="fake-chat/m", messages=HELLO, stream=True
                    )
                    for event in stream:
                        if event.choices and event.choices[0].delta.content:
                            pieces.append(event.choices[0].delta.content)
                            held.go_on.set()
            else:
                with (
                    anthropic.Anthropic(
                        base_url=service.anthropic_url, api_key=service.secret
                    ) as other,
                    other.messages.stream(
                        model="fake-chat/m", messages=HELLO, max_tokens=9
                    ) as stream,
                ):
                    for text in stream.text_stream:
                        pieces.append(text)
                        held.go_on.set()
    assert held.waited and pieces == ["first ", "second"]


async def test_the_library_has_the_first_piece_before_the_provider_has_sent_the_second() -> None:
    held = Held()
    with FakeProvider([Raw(held, headers=SSE)]) as fake:
        gateway = make_gateway(providers=fake_providers(fake.url, "chat"))
        pieces: list[str] = []
        async for text in stream_text("fake-chat/m", prompt="hi", gateway=gateway):
            pieces.append(text)
            held.go_on.set()
        await gateway.close()
    assert held.waited and pieces == ["first ", "second"]
