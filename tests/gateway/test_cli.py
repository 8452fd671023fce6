"""The gateway's commands, as people run them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import openai
import pytest

from gateway.processes import GatewayProcess
from gateway.support import fake_providers
from gateway.test_outliving import secret_for
from holdfast.testing.providers import FakeProvider
from waiting import until


def holdfast(folder: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    # Neither this machine's providers nor what another test has set for its own.
    own = ("_API_KEY", "_BASE_URL")
    env = {k: v for k, v in os.environ.items() if not k.endswith(own)}
    return subprocess.run(
        [sys.executable, "-m", "holdfast.cli.main", *arguments],
        capture_output=True, text=True, cwd=folder, env={**env, **environ}, check=False,
    )  # fmt: skip


def test_models_list_shows_what_is_usable_and_why_not(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text('[gateway.aliases]\nbest = "openai/gpt-4o"\n')
    done = holdfast(tmp_path, "models", "list", "--offline", OPENAI_API_KEY="k")
    assert done.returncode == 0
    assert "best" in done.stdout and "openai/gpt-4o" in done.stdout
    assert "ANTHROPIC_API_KEY is not set" in done.stdout
    assert "anthropic/claude" not in done.stdout
    listed = holdfast(tmp_path, "models", "list", "--json", "--offline", OPENAI_API_KEY="k")
    told = json.loads(listed.stdout)
    usable = {one["name"]: one["why_not"] for one in told["providers"]}
    assert usable["openai"] is None
    assert usable["ollama"] is not None and "nothing listens" in usable["ollama"]
    (gpt,) = [one for one in told["models"] if one["name"] == "openai/gpt-4o"]
    assert gpt["input_price"] == "2.5"
    assert not any(one["name"].startswith("openai/text-embedding") for one in told["models"])
    every = json.loads(holdfast(tmp_path, "models", "list", "--json", "--all", "--offline").stdout)
    assert any(one["name"].startswith("anthropic/claude") for one in every["models"])
    chats = {one["name"]: one["chat"] for one in every["models"]}
    assert chats["openai/gpt-4o"] and not chats["openai/text-embedding-3-small"]


def test_models_list_asks_the_providers(tmp_path: Path) -> None:
    with FakeProvider([], key="lab-key-1") as fake:
        fake.models = ["house-chat", "house-embed"]
        (tmp_path / "holdfast.toml").write_text(
            f'[gateway.providers.lab]\nbase_url = "{fake.url}"\nkey_env = "LAB_KEY"\n'
            '[gateway.providers.gone]\nbase_url = "http://127.0.0.1:9/v1"\n'
        )
        told = json.loads(
            holdfast(tmp_path, "models", "list", "--json", LAB_KEY="lab-key-1").stdout
        )
        every = json.loads(
            holdfast(tmp_path, "models", "list", "--json", "--all", LAB_KEY="lab-key-1").stdout
        )
        shown = holdfast(tmp_path, "models", "list", LAB_KEY="lab-key-1").stdout
    names = [one["name"] for one in told["models"]]
    assert "lab/house-chat" in names and "lab/house-embed" not in names
    assert {one["name"]: one["chat"] for one in every["models"]}["lab/house-embed"] is False
    providers = {one["name"]: one for one in told["providers"]}
    assert providers["lab"]["asked"] and providers["lab"]["why_not_asked"] is None
    assert not providers["gone"]["asked"]
    assert "told by the provider" in shown and "lab-key-1" not in shown


def test_a_wrong_config_is_named(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text("[gateway]\nalias = 1\n")
    done = holdfast(tmp_path, "models", "list", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["hint"] == "did you mean 'aliases'?"


def test_keys_are_made_listed_and_revoked(tmp_path: Path) -> None:
    made = json.loads(
        holdfast(
            tmp_path, "keys", "create", "--json", "--name", "ci", "--usd", "2.50", "--expires",
            "24h", "--model", "anthropic/*",
        ).stdout
    )  # fmt: skip
    assert made["secret"].startswith("hf_gw_") and made["models"] == ["anthropic/*"]
    plain = holdfast(tmp_path, "keys", "create")
    assert plain.stdout.startswith("hf_gw_") and "shown once" in plain.stderr
    listed = holdfast(tmp_path, "keys", "list")
    assert "ci" in listed.stdout and "$2.5" in listed.stdout
    assert made["secret"] not in listed.stdout
    assert holdfast(tmp_path, "keys", "revoke", made["id"]).returncode == 0
    states = json.loads(holdfast(tmp_path, "keys", "list", "--json").stdout)["keys"]
    assert [one["state"] for one in states] == ["revoked", "valid"]
    gone = holdfast(tmp_path, "keys", "revoke", "key_none", "--json")
    assert gone.returncode == 3 and json.loads(gone.stdout)["error"]["kind"] == "NotFound"
    assert holdfast(tmp_path, "keys", "create", "--usd", "lots").returncode == 2


def test_a_gateway_told_to_stop_finishes_what_is_in_flight(tmp_path: Path) -> None:
    from holdfast.gateway.scripted import Say

    slow = Say("finished all the same", chunk=4, delay=0.1)
    with FakeProvider([slow]) as fake:
        gateway = GatewayProcess(tmp_path, providers=fake_providers(fake.url)).start()
        with openai.OpenAI(base_url=gateway.url, api_key=secret_for(gateway.store)) as client:
            stream: Any = client.chat.completions.create(
                model="fake-chat/m", messages=[{"role": "user", "content": "x"}], stream=True
            )
            first = next(stream)
            gateway.process.send_signal(signal.SIGTERM)
            chunks = [first, *stream]
        until(lambda: gateway.process.poll() is not None)
        assert gateway.process.returncode in (0, -signal.SIGTERM)
        gateway.stop()
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == "finished all the same"


@pytest.mark.parametrize("arguments", [["gateway", "serve", "--host", "0.0.0.0", "--open"]])
def test_a_gateway_open_to_the_world_is_refused(tmp_path: Path, arguments: list[str]) -> None:
    done = holdfast(tmp_path, *arguments, "--port", "0")
    assert done.returncode == 2 and "loopback only" in done.stderr
