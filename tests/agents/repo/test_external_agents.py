"""A command-line coding agent of others: in the sandbox, with the gateway and nothing else."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

from agents.repo import repos
from agents.repo.conftest import Repairing
from agents.repo.repos import make
from holdfast.gateway import Gateway, Say, ScriptedModel
from holdfast.records.calls import NANO

AGENT = """
import json, os, subprocess, sys, urllib.error, urllib.request

def ask(base, path, body, headers):
    data = json.dumps(body).encode()
    request = urllib.request.Request(base + path, data, {"content-type": "application/json", **headers})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)

def told(url):
    try:
        return urllib.request.urlopen(url, timeout=5).status
    except Exception as error:
        return type(error).__name__

task = sys.argv[1] if len(sys.argv) > 1 else sys.stdin.read()
model, key = os.environ["HOLDFAST_MODEL"], os.environ["OPENAI_API_KEY"]
said = ask(os.environ["OPENAI_BASE_URL"], "/chat/completions",
           {"model": model, "messages": [{"role": "user", "content": task}]},
           {"authorization": "Bearer " + key})["choices"][0]["message"]["content"]
claude = ask(os.environ["ANTHROPIC_BASE_URL"], "/v1/messages",
             {"model": model, "max_tokens": 100, "messages": [{"role": "user", "content": task}]},
             {"x-api-key": os.environ["ANTHROPIC_API_KEY"]})["content"][0]["text"]
assert said == claude, (said, claude)
change = json.loads(said)
path = change["path"]
text = open(path).read()
open(path, "w").write(text.replace(change["old"], change["new"]))
environment = open("/proc/self/environ", "rb").read().decode()
names = sorted(pair.partition("=")[0] for pair in environment.split("\\0"))
print(json.dumps({"task": task[:30], "names": names, "key": key, "holds_one": "hf_gw_" in environment, "elsewhere": told("http://example.com"),
                  "loopback": told("http://127.0.0.1:7421/healthz")}))
"""
REPO = {**repos.SLUGS, "tools/agent.py": AGENT}
PATH, OLD, NEW = repos.SLUGS_FIX
RIGHT = json.dumps({"path": PATH, "old": OLD, "new": NEW})
WRONG = json.dumps({"path": PATH, "old": OLD, "new": OLD.replace("-", "_")})
AFTER_WRONG = json.dumps({"path": PATH, "old": OLD.replace("-", "_"), "new": NEW})


async def repaired(
    repair: Repairing, tmp_path: Path, command: str, answers: list[str], **more: Any
) -> Any:
    repo = make(tmp_path / "slugs", REPO)
    asked: list[str] = []

    def answer(request: Any) -> Say:
        asked.append(request.messages[-1].text)
        return Say(answers[(len(asked) - 1) // 2])

    return await repair(repo, answer, agent=command, **more), asked


async def test_another_agent_works_in_the_sandbox_through_the_gateway(
    repair: Repairing, gateway: Gateway, tmp_path: Path
) -> None:
    result, asked = await repaired(
        repair, tmp_path, "python tools/agent.py {task}", [RIGHT], task="It's `broken` $HOME"
    )
    assert result.passed, result
    assert result.verdict.summary == "4 passed"
    told = json.loads(result.summary)
    assert told["task"].startswith("It's `broken` $HOME") and asked[0].startswith(told["task"])

    keys = await gateway.ledger.keys()
    assert len(keys) == 1 and keys[0].revoked_at is not None
    assert told["key"] == "held-outside-the-sandbox" and not told["holds_one"]
    assert not [
        name
        for name in told["names"]
        if name.startswith("HOLDFAST_") and name not in ("HOLDFAST_MODEL", "HOLDFAST_TASK")
    ]
    assert told["elsewhere"] != 200 and told["loopback"] != 200
    calls = await gateway.ledger.calls(run_id=repair.handle.id)  # type: ignore[attr-defined]
    assert len(calls) == result.spent.calls == 2
    spent = await gateway.ledger.spend(f"run:{repair.handle.id}")  # type: ignore[attr-defined]
    assert result.spent.usd == Decimal(spent.usd) / NANO > 0


async def test_another_agent_is_told_what_failed_and_goes_on(
    repair: Repairing, tmp_path: Path
) -> None:
    result, asked = await repaired(repair, tmp_path, "python tools/agent.py", [WRONG, AFTER_WRONG])
    assert result.passed and result.tries[0].rounds == 2
    assert "It is not done yet" in asked[2] and "4 failed" not in asked[0]


async def test_the_spend_of_another_agent_is_capped(repair: Repairing, tmp_path: Path) -> None:
    result, asked = await repaired(
        repair, tmp_path, "python tools/agent.py", [RIGHT], budget=Decimal("0.0000001")
    )
    assert asked == []
    assert not result.passed
    assert "HTTP Error 402" in result.summary


async def test_an_agent_that_does_not_end_is_ended_and_judged(
    repair: Repairing, tmp_path: Path
) -> None:
    repo = make(tmp_path / "slugs", REPO)
    with ScriptedModel("unused", []):
        result = await repair(
            repo,
            [],
            agent=f'sed -i \'s/\\[^a-z0-9\\]"/[^a-z0-9]+"/; s/lower())/lower()).strip("-")/\' {PATH}; sleep 600',
            max_time=15,
        )
    assert result.passed, (result.verdict, result.summary)
    assert "timed out" in result.summary
