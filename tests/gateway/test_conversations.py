"""Going on from an answer by its id, where the provider keeps no conversations."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from gateway.support import Service, fake_providers, make_gateway
from holdfast.gateway.keys import create_key
from holdfast.gateway.messages import Request, ToolCallPart
from holdfast.gateway.scripted import Say
from holdfast.testing.providers import FakeProvider


def answer(request: Request) -> Any:
    """All that was said before, so that the test sees what reached the model."""
    if request.messages[-1].text == "tools":
        return Say("", tools=[("f", {"x": 1})])
    said = [
        part.name if isinstance(part, ToolCallPart) else getattr(part, "text", "")
        for message in request.messages
        for part in message.parts
    ]
    return Say(" | ".join(said))


def client(service: Service, secret: str | None = None) -> openai.OpenAI:
    return openai.OpenAI(base_url=service.url, api_key=secret or service.secret, max_retries=0)


@pytest.mark.parametrize("upstream", ["chat", "anthropic", "gemini"])
def test_a_conversation_goes_on_by_the_id_of_an_answer(upstream: str) -> None:
    with FakeProvider(answer) as fake:
        make = lambda: make_gateway(providers=fake_providers(fake.url, upstream))  # noqa: E731
        with Service(make) as service, client(service) as asking:
            model = f"fake-{upstream}/m"
            first = asking.responses.create(model=model, input="one", instructions="be kind")
            assert first.output_text == "be kind | one" and first.store
            second = asking.responses.create(
                model=model, input="two", previous_response_id=first.id
            )
            assert second.output_text == "one | be kind | one | two"
            stream = asking.responses.create(
                model=model, input="three", previous_response_id=second.id, stream=True
            )
            last = list(stream)[-1]
            assert last.type == "response.completed"
            fourth = asking.responses.create(
                model=model, input="four", previous_response_id=last.response.id
            )
            assert fourth.output_text.startswith("one | be kind | one | two | ")
            assert fourth.output_text.endswith(
                " | three | " + last.response.output_text + " | four"
            )
            stored = [row for call in service.calls() for row in (call.start.prompt or "",)]
            assert all("previous_response_id" not in row for row in stored[:1])


def test_a_tools_answer_and_references_to_items_find_their_call() -> None:
    with FakeProvider(answer) as fake:
        make = lambda: make_gateway(providers=fake_providers(fake.url, "anthropic"))  # noqa: E731
        with Service(make) as service, client(service) as asking:
            tool: Any = {"type": "function", "name": "f", "parameters": {"type": "object"}}
            ask: dict[str, Any] = {"model": "fake-anthropic/m", "tools": [tool]}
            called = asking.responses.create(input="tools", **ask)
            [call] = [item for item in called.output if item.type == "function_call"]
            result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "42"}
            said = asking.responses.create(input=[result], previous_response_id=called.id, **ask)
            assert said.output_text.startswith("tools | f | ")
            reference: Any = {"type": "item_reference", "id": call.id}
            question: Any = {"role": "user", "content": "tools?"}
            said = asking.responses.create(input=[question, reference, result], **ask)
            assert said.output_text.startswith("tools? | f | ")


def test_what_is_not_kept_or_anothers_is_refused() -> None:
    with FakeProvider(answer) as fake:
        make = lambda: make_gateway(providers=fake_providers(fake.url, "chat"))  # noqa: E731
        with Service(make) as service, client(service) as asking:
            model = "fake-chat/m"
            kept = asking.responses.create(model=model, input="one")
            unkept = asking.responses.create(model=model, input="one", store=False)
            assert not unkept.store
            other = service.ask(create_key(service.gateway.ledger, name="other")).secret
            with client(service, other) as theirs:
                for one, identity in ((theirs, kept.id), (asking, unkept.id), (asking, "resp_x"),
                                      (asking, kept.id + "0")):  # fmt: skip
                    with pytest.raises(openai.BadRequestError):
                        one.responses.create(
                            model=model, input="two", previous_response_id=identity
                        )
            assert fake.hits == 2


def test_a_provider_with_conversations_of_its_own_keeps_them() -> None:
    with FakeProvider(answer) as fake:
        make = lambda: make_gateway(providers=fake_providers(fake.url, "responses"))  # noqa: E731
        with Service(make) as service, client(service) as asking:
            first = asking.responses.create(model="fake-responses/m", input="one")
            assert not first.id.startswith("resp_hf_")
