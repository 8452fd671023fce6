"""The AI SDK from npm, with its provider for each of our formats, against every upstream format.

Its packages are fetched when the test runs; where they can't be had it is skipped, with the reason.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gateway.support import Service, fake_providers, make_gateway
from holdfast.gateway.messages import Request, ToolResultPart
from holdfast.gateway.scripted import Say
from holdfast.testing.providers import FakeProvider
from waiting import LIMIT

SCRIPT = Path(__file__).parent / "node/ai_sdk.mjs"
PACKAGES = (
    "ai@^6", "@ai-sdk/openai@^3", "@ai-sdk/anthropic@^3", "@ai-sdk/google@^3",
    "@ai-sdk/amazon-bedrock@^4", "@ai-sdk/cohere@^3", "zod@^4",
)  # fmt: skip
UPSTREAMS = ["chat", "responses", "anthropic", "gemini", "bedrock", "cohere"]


def answer(request: Request) -> Any:
    if any(isinstance(part, ToolResultPart) for part in request.messages[-1].parts):
        [result] = [p for p in request.messages[-1].parts if isinstance(p, ToolResultPart)]
        return Say(f"It is {result.text}.")
    asked = request.messages[-1].text
    if asked == "tools":
        return Say("Let me look.", tools=[("weather", {"city": "Rome"})])
    return Say(
        json.dumps({"city": "Oslo"}) if request.output or "json" in asked else "Grüß Gott 🎉"
    )


def test_the_ai_sdk_works_with_every_upstream(tmp_path: Path) -> None:
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("no npm and node here")
    (tmp_path / "package.json").write_text('{"private": true, "type": "module"}')
    fetched = subprocess.run(
        [npm, "install", "--no-audit", "--no-fund", *PACKAGES],
        cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT,
    )  # fmt: skip
    if fetched.returncode:
        pytest.skip(f"the AI SDK can't be fetched: {fetched.stderr[-200:]}")
    shutil.copy(SCRIPT, tmp_path / "ai_sdk.mjs")
    with FakeProvider(answer) as fake:
        rooted = {
            f"fake-{name}": {"base_url": fake.anthropic_url, "formats": [name]}
            for name in ("bedrock", "cohere")
        }
        providers = fake_providers(fake.url, *UPSTREAMS) | rooted
        with Service(lambda: make_gateway(providers=providers)) as service:
            names = [f"fake-{name}" for name in UPSTREAMS]
            done = subprocess.run(
                [node, "ai_sdk.mjs", service.url, service.secret, *names],
                cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT,
            )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == 6 * len(UPSTREAMS)
    wanted = {"text": "Grüß Gott 🎉", "stream": "Grüß Gott 🎉", "tools": True,
              "steps": 2, "object": {"city": "Oslo"}}  # fmt: skip
    for said in found.values():  # its Google provider wraps what a tool answers in an object
        said["tools"] = "sunny in Rome" in said.get("tools", "")
    assert {pair: said for pair, said in found.items() if said != wanted} == {}
