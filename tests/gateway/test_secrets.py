"""Keys and secrets stay where they belong, and no client chooses where calls go."""

from __future__ import annotations

import json
import logging
import re
import urllib.error
import urllib.request
from decimal import Decimal
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.processes import GatewayProcess
from gateway.support import Service, fake_providers, make_gateway
from gateway.test_outliving import secret_for
from holdfast.errors import StoreError, UsageError
from holdfast.gateway import secrets
from holdfast.gateway.addresses import check_image_url
from holdfast.gateway.calls import generate_text
from holdfast.gateway.keys import create_key
from holdfast.gateway.messages import ImagePart, user
from holdfast.gateway.scripted import Fail, Say
from holdfast.gateway.secrets import Redactor, decrypt, encrypt, reply_key
from holdfast.testing.providers import FakeProvider
from waiting import LIMIT

PROVIDER_KEY = "provider-key-7f3a9c"
PROMPT_SECRET = "sk-live-0123456789abcdefghij"


def post(service: Any, path: str, body: Any, **headers: str) -> tuple[int, Any]:
    request = urllib.request.Request(
        service.url.removesuffix("/v1") + path,
        body if isinstance(body, bytes) else json.dumps(body).encode(),
        {"Content-Type": "application/json", **headers},
    )
    try:
        with urllib.request.urlopen(request, timeout=LIMIT) as reply:
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def chat(model: str = "fake-chat/m", text: str = "hi", **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}], **more}


# --- virtual keys --------------------------------------------------------------------------------


def test_only_a_valid_key_gets_an_answer() -> None:
    with (
        FakeProvider(lambda _: "x") as fake,
        Service(lambda: make_gateway(providers=fake_providers(fake.url))) as service,
    ):
        ledger = service.gateway.ledger
        expired = service.ask(create_key(ledger, expires_in=0))
        revoked = service.ask(create_key(ledger))
        service.ask(ledger.revoke_key(revoked.key.id, 1.0))
        for secret in ("", "wrong", expired.secret, revoked.secret, revoked.key.id):
            status, body = post(
                service, "/v1/chat/completions", chat(), Authorization=f"Bearer {secret}"
            )
            assert (status, body["error"]["code"]) == (401, "KeyRefused"), secret
        assert post(service, "/v1/chat/completions", chat())[0] == 401
        assert fake.hits == 0
        good = {"Authorization": f"Bearer {service.secret}"}
        assert post(service, "/v1/chat/completions", chat(), **good)[0] == 200
        assert (
            post(service, "/v1/messages", chat(max_tokens=5), **{"x-api-key": service.secret})[0]
            == 200
        )
        assert post(service, "/v1/elsewhere", {}, **good)[0] == 404


def test_a_key_reaches_its_models_only() -> None:
    aliases = {"fast": ["fake-anthropic/x", "fake-chat/y"]}
    with (
        FakeProvider(lambda r: r.model) as fake,
        Service(
            lambda: make_gateway(providers=fake_providers(fake.url), aliases=aliases)
        ) as service,
    ):
        made = service.ask(create_key(service.gateway.ledger, models=["fake-chat/*"]))
        auth = {"Authorization": f"Bearer {made.secret}"}
        assert post(service, "/v1/chat/completions", chat("fake-chat/a"), **auth)[0] == 200
        status, body = post(service, "/v1/chat/completions", chat("fake-anthropic/a"), **auth)
        assert (status, body["error"]["code"]) == (401, "KeyRefused")
        status, body = post(service, "/v1/chat/completions", chat("fast"), **auth)
        assert (status, body["choices"][0]["message"]["content"]) == (200, "y")


def test_a_keys_budget_is_hard() -> None:
    def make() -> Any:
        prices = {"fake-chat/*": {"input": 0, "output": 1000}}
        return make_gateway(providers=fake_providers(fake.url), prices=prices)

    with FakeProvider(lambda _: Say("x")) as fake, Service(make) as service:
        made = service.ask(create_key(service.gateway.ledger, usd=Decimal("0.15")))
        with (
            openai.OpenAI(base_url=service.url, api_key=made.secret, max_retries=0) as client,
            pytest.raises(openai.APIStatusError) as caught,
        ):
            client.chat.completions.create(**chat(max_tokens=200))
        assert caught.value.status_code == 402
        assert fake.hits == 0
        spend = service.ask(service.gateway.ledger.spend(f"key:{made.key.id}"))
        assert spend.usd == 0


def test_a_key_of_a_run_counts_against_the_run() -> None:
    with (
        FakeProvider(lambda _: "x") as fake,
        Service(lambda: make_gateway(providers=fake_providers(fake.url))) as service,
    ):
        made = service.ask(create_key(service.gateway.ledger, run_id="run_9", tags=["sandbox"]))
        auth = {"Authorization": f"Bearer {made.secret}"}
        post(service, "/v1/chat/completions", chat(), **auth)
        (call,) = service.calls(run_id="run_9")
        assert (call.start.api_key, call.start.tags) == (made.key.id, ("sandbox",))


def test_an_open_gateway_answers_no_web_page() -> None:
    with (
        FakeProvider(lambda _: "x") as fake,
        Service(
            lambda: make_gateway(providers=fake_providers(fake.url)), open_to_all=True
        ) as service,
    ):
        assert post(service, "/v1/chat/completions", chat())[0] == 200
        for header in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            assert post(service, "/v1/chat/completions", chat(), **header)[0] == 401


def test_an_open_gateway_stays_on_loopback() -> None:
    from holdfast.gateway.service.server import make_server

    gateway = make_gateway()
    with pytest.raises(UsageError, match="loopback only"):
        make_server(gateway, host="0.0.0.0", open_to_all=True)
    gateway.ledger.close()


# --- where calls go ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        "http://169.254.169.254/latest", "fake-chat/../../admin", "file:///etc/passwd",
        "nobody/m", "fake-chat//m", "@evil.example/m", "fake-chat/m\r\nHost: e", "127.0.0.1:80/m",
        "fake-chat/", "/", "fake-chat/%2e%2e", "fake-chat/m?x=1", "fake-chat/m#x", 5, None, ["a"],
    ],
)  # fmt: skip
def test_a_model_name_chooses_among_providers_nothing_more(model: Any) -> None:
    with (
        FakeProvider(lambda _: "x") as fake,
        Service(lambda: make_gateway(providers=fake_providers(fake.url))) as service,
    ):
        auth = {"Authorization": f"Bearer {service.secret}"}
        assert post(service, "/v1/chat/completions", chat(model), **auth)[0] in (400, 404)
        assert fake.hits == 0


@pytest.mark.parametrize(
    "field", ["base_url", "api_base", "api_key", "extra_headers", "custom_llm_provider"]
)
def test_a_body_cant_choose_the_upstream(field: str) -> None:
    with (
        FakeProvider(lambda _: "x") as fake,
        Service(lambda: make_gateway(providers=fake_providers(fake.url))) as service,
    ):
        auth = {"Authorization": f"Bearer {service.secret}"}
        body = chat(**{field: "http://evil.example"})
        status, said = post(service, "/v1/chat/completions", body, **auth)
        assert status == 400 and "choose the upstream" in said["error"]["message"]


def test_a_clients_headers_stay_with_us_but_for_a_few() -> None:
    def make() -> Any:
        providers = fake_providers(fake.url, key_env="FAKE_KEY")
        return make_gateway(environ={"FAKE_KEY": PROVIDER_KEY}, providers=providers)

    with FakeProvider(lambda _: "x", key=PROVIDER_KEY) as fake, Service(make) as service:
        with anthropic.Anthropic(
            base_url=service.anthropic_url, api_key=service.secret, max_retries=0,
            default_headers={
                "X-Forwarded-Host": "evil.example", "Forwarded": "host=evil", "Cookie": "a=b",
                "X-Upstream": "http://evil.example", "anthropic-beta": "some-beta",
                "Proxy-Authorization": "Basic x",
            },
        ) as client:  # fmt: skip
            client.messages.create(
                model="fake-anthropic/m", max_tokens=5, messages=[{"role": "user", "content": "x"}]
            )
        headers = {name.lower(): value for name, value in fake.received[0].headers.items()}
    assert headers["anthropic-beta"] == "some-beta"
    assert headers["host"].startswith("127.0.0.1:")
    assert service.secret not in json.dumps(headers)
    assert not {"x-forwarded-host", "forwarded", "cookie", "x-upstream", "proxy-authorization"} & {
        *headers
    }


BAD_URLS = [
    "http://169.254.169.254/latest/meta-data/", "http://localhost/x", "http://127.0.0.1/x",
    "http://[::1]/x", "http://10.0.0.1/x", "http://192.168.1.1/x", "http://172.16.0.9/x",
    "http://0.0.0.0/", "http://2130706433/", "http://0x7f000001/", "http://0177.0.0.1/",
    "http://127.1/", "http://[::ffff:127.0.0.1]/", "http://[fd00::1]/", "http://[fe80::1]/",
    "http://metadata.google.internal/", "http://printer.local/", "http://intranet/",
    "file:///etc/passwd", "gopher://x/", "ftp://example.com/x", "http://user@127.0.0.1/",
    "http://100.64.0.1/", "http://[64:ff9b::7f00:1]/", "http://LOCALHOST./", "//example.com/x", "",
    "http://[::ffff:a9fe:a9fe]/", "http://224.0.0.1/", "http://exa mple%00/", "http://127.0.0.1:80",
]  # fmt: skip


@pytest.mark.parametrize("url", BAD_URLS)
def test_an_image_url_may_not_point_inwards(url: str) -> None:
    with pytest.raises(UsageError):
        check_image_url(url)


@pytest.mark.parametrize(
    "url",
    ["https://example.com/a.png", "http://93.184.216.34/x", "https://sub.example.org:8443/i?q=1",
     "data:image/png;base64,AAAA", "https://[2606:2800:220:1:248:1893:25c8:1946]/x"],
)  # fmt: skip
def test_a_public_image_url_is_fine(url: str) -> None:
    check_image_url(url)


async def test_inward_image_urls_are_refused_on_every_way_in() -> None:
    url = "http://169.254.169.254/latest"
    bodies = [
        ("/v1/chat/completions", {"model": "fake-chat/m", "messages": [{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": url}}]}]}),
        ("/v1/responses", {"model": "fake-responses/m", "input": [{"role": "user", "content": [
            {"type": "input_image", "image_url": url}]}]}),
        ("/v1/messages", {"model": "fake-anthropic/m", "max_tokens": 5, "messages": [
            {"role": "user", "content": [
                {"type": "image", "source": {"type": "url", "url": url}}]}]}),
        ("/v1/messages", {"model": "fake-anthropic/m", "max_tokens": 5, "messages": [
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": [
                {"type": "document", "source": {"type": "url", "url": url}}]}]}]}),
    ]  # fmt: skip
    with (
        FakeProvider(lambda _: "x") as fake,
        Service(lambda: make_gateway(providers=fake_providers(fake.url))) as service,
    ):
        auth = {"Authorization": f"Bearer {service.secret}"}
        for path, body in bodies:
            status, said = post(service, path, body, **auth)
            assert status == 400 and "image URL was refused" in str(said), path
        gateway = make_gateway(providers=fake_providers(fake.url))
        with pytest.raises(UsageError):
            await generate_text(
                "fake-chat/m", messages=[user("look", ImagePart(url=url))], gateway=gateway
            )
        assert fake.hits == 0
        await gateway.close()


@pytest.mark.parametrize("body", [b"", b"null", b"[1]", b"{", b"\xff\xfe", b"[" * 100_000, b'"x"'])
def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    with Service(make_gateway) as service:
        auth = {"Authorization": f"Bearer {service.secret}"}
        for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages"):
            assert post(service, path, body, **auth)[0] == 400


# --- what is kept and shown ----------------------------------------------------------------------


def test_secrets_are_in_no_file_log_or_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompts with secrets, replies that echo them, keyed and not, a provider that complains."""
    monkeypatch.setenv("FAKE_KEY", PROVIDER_KEY)

    def echo(request: Any) -> Any:
        said = request.messages[-1].text
        return Fail(400, f"bad key {PROVIDER_KEY}: {said}") if "fail" in said else Say(said)

    with (
        FakeProvider(echo, key=PROVIDER_KEY) as fake,
        GatewayProcess(tmp_path, providers=fake_providers(fake.url, key_env="FAKE_KEY")) as gateway,
    ):
        secret = secret_for(gateway.store)
        with openai.OpenAI(base_url=gateway.url, api_key=secret, max_retries=0) as client:
            for model in ("fake-chat/m", "fake-anthropic/m"):
                reply = client.chat.completions.create(**chat(model, PROMPT_SECRET))
                assert reply.choices[0].message.content == PROMPT_SECRET  # the caller gets it
                keyed = client.chat.completions.create(
                    **chat(model, f"keyed {PROMPT_SECRET}"),
                    extra_headers={"Idempotency-Key": f"k-{model}"},
                )
                again = client.chat.completions.create(
                    **chat(model, f"keyed {PROMPT_SECRET}"),
                    extra_headers={"Idempotency-Key": f"k-{model}"},
                )
                assert keyed == again and fake.hits % 2 == 0
                stream = client.chat.completions.create(
                    **chat(model, f"streamed {PROMPT_SECRET}"), stream=True
                )
                list(stream)
                with pytest.raises(openai.BadRequestError) as caught:
                    client.chat.completions.create(**chat(model, f"fail {PROMPT_SECRET}"))
                assert PROVIDER_KEY not in str(caught.value)
                assert PROMPT_SECRET not in str(caught.value)
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"[redacted]" in kept
    for word in (PROVIDER_KEY, PROMPT_SECRET, secret):
        assert word.encode() not in kept
    assert b"sk-live" not in kept  # nor in the pieces a stream cut it into


async def test_content_need_not_be_kept() -> None:
    gateway = make_gateway(keep_content=False)
    await generate_text("scripted/echo", prompt="private words", gateway=gateway)
    (call,) = await gateway.ledger.calls()
    assert call.end is not None
    assert (call.start.prompt, call.end.reply) == (None, None)
    await gateway.close()


async def test_own_patterns_are_redacted() -> None:
    gateway = make_gateway(redact=[r"patient-\d+"])
    reply = await generate_text("scripted/echo", prompt="see patient-1234 today", gateway=gateway)
    assert reply.text == "see patient-1234 today"
    (call,) = await gateway.ledger.calls()
    assert call.end is not None
    assert "patient-1234" not in f"{call.start.prompt}{call.end.reply}"
    assert "see [redacted] today" in (call.end.reply or "")
    await gateway.close()


@pytest.mark.parametrize(
    "secret",
    ["sk-ant-" + "a1B2" * 8, "ghp_" + "a" * 36, "AKIAIOSFODNN7EXAMPLE", "xoxb-1234567890-abc",
     "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcdefghijk", "Bearer abcdefghijklmnop1234",
     "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----", "gsk_" + "b" * 20],
)  # fmt: skip
def test_what_looks_like_a_secret_is_masked(secret: str) -> None:
    shown = Redactor()(f"before {secret} after")
    assert secret.removeprefix("Bearer ") not in shown
    assert shown.startswith("before ") and shown.endswith(" after")


PIECES = ["sk-", "hf_gw_", "gsk_", "xai-", "AIza", "ghp_", "ghr_", "github_pat_", "glpat-", "AKIA",
          "ASIA", "xoxb-", "eyJ", ".", "-----BEGIN ", "RSA ", "PRIVATE KEY-----", "-----END ",
          "BeaRer ", "bearer\n", "://", "me:pw", "@", " ", "own-42", "the-key-of-a-provider",
          "a1B2c3D4e5", "A1B2C3D4E5", "é"]  # fmt: skip


@settings(deadline=None)  # how long it takes is the machine's business
@given(st.lists(st.sampled_from(PIECES)).map("".join))
def test_looking_for_words_first_misses_nothing(text: str) -> None:
    own = r"own-\d+"
    every = [re.escape("the-key-of-a-provider"), *(shape for shape, _ in secrets._SHAPES), own]
    at_once = re.compile("|".join(f"(?:{shape})" for shape in every))
    expected = at_once.sub(secrets.MASK, text)
    assert Redactor(["the-key-of-a-provider"], [own])(text) == expected


def test_passwords_in_addresses_are_masked() -> None:
    assert Redactor()("postgres://me:hunter22@db/x") == "postgres://[redacted]@db/x"
    assert Redactor()("https://example.com/a?b=c") == "https://example.com/a?b=c"


def test_an_encrypted_reply_opens_for_the_same_key_and_request_only() -> None:
    secret = reply_key("k", b"request")
    kept = encrypt(secret, b"the reply" * 100)
    assert b"the reply" not in kept
    assert decrypt(secret, kept) == b"the reply" * 100
    assert decrypt(secret, encrypt(secret, b"")) == b""
    for other in (reply_key("k2", b"request"), reply_key("k", b"request2")):
        with pytest.raises(StoreError):
            decrypt(other, kept)
    with pytest.raises(StoreError):
        decrypt(secret, kept[:-1] + bytes([kept[-1] ^ 1]))
    with pytest.raises(StoreError):
        decrypt(secret, kept[:10])
    with pytest.raises(StoreError, match="an earlier version"):
        decrypt(secret, b"\x07" * 60)


async def test_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="holdfast")
    gateway = make_gateway()
    await generate_text("scripted/echo", prompt=PROMPT_SECRET, gateway=gateway)
    assert [r for r in caplog.records if r.name.startswith("holdfast")] == []
    await gateway.close()
