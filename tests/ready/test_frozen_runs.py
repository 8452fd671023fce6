"""Recorded runs as tests: frozen, with live tools, with another model; and no secret in them."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    FatalError,
    HoldfastError,
    create_webhook,
    generate_text,
    send_event,
    start,
    step,
    uuid4,
    wait_for_event,
    workflow,
)
from holdfast.gateway import ScriptedModel
from holdfast.ready.frozen_runs import (
    FrozenRun,
    freeze,
    frozen_calls,
    known_redactor,
    replay_frozen,
    replay_live,
)
from holdfast.runtime.app import open_engine
from holdfast.runtime.definitions import Workflow, registered
from holdfast.testing import Harness
from ready.generated_workflows import source_of

RUNS = int(os.environ.get("HOLDFAST_FROZEN_RUNS", "5"))
CANARY = "canary-7f3a9c51-value"


@pytest.fixture(autouse=True)
def own_registry() -> Iterator[None]:
    before = dict(registered())
    yield
    registered().clear()
    registered().update(before)


@step
async def look_up(order: str) -> dict[str, str]:
    return {"order": order, "secret": os.environ.get("SHOP_TOKEN", "")}


@step(retries=0)
async def tell(text: str) -> str:
    if "broken" in text:
        raise FatalError("the printer is on fire")
    return text.upper()


@workflow
async def ticket(order: str) -> str:
    found = await look_up(order)
    hook = await create_webhook()
    await tell(f"{hook.path} {uuid4()}")
    reply = await generate_text("scripted/clerk", prompt=f"{order} {found['secret']}")
    agreed = await wait_for_event("agreed", timeout="1d")
    return await tell(f"{reply.text} {agreed.payload['by']}") if agreed else "nobody answered"


async def recorded(
    path: Path, order: str, model: Any = None, *, status: str = "completed"
) -> FrozenRun:
    with ScriptedModel("clerk", model or [f"done {order}"]):
        async with open_engine(path) as engine:
            run = await start(ticket, order)
            await send_event("agreed", {"by": "Ada"})
            with contextlib.suppress(HoldfastError):
                await run.result()
            record = await run.record()
            assert record.status == status
            journal = await engine.store.load(run.id)
            calls = await frozen_calls(path, journal)
    frozen = freeze(record, journal, calls, (), known_redactor())
    return FrozenRun.from_text(frozen.to_text())


async def test_a_run_replays_frozen_and_with_live_tools_and_its_models_are_not_asked(
    tmp_path: Path,
):
    frozen = await recorded(tmp_path / "store.db", "A-1")
    assert len(frozen.calls) == 1
    verdict = replay_frozen(frozen, ticket)
    assert (verdict.passed, verdict.difference) == (True, "")


def test_live_tools_are_carried_out_and_the_first_difference_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    frozen = asyncio.run(recorded(tmp_path / "store.db", "A-1"))
    verdict = replay_live(frozen, ticket)
    # The webhook's token is another one, in the first argument that has it.
    assert verdict.passed, verdict
    assert verdict.difference.startswith("0/3: step.started tell was")

    monkeypatch.setattr(tell, "function", _quieter)
    verdict = replay_live(frozen, ticket)
    assert not verdict.passed
    assert verdict.message == 'the result was "DONE A-1 ADA", and is now "done a-1 ada"'
    assert replay_frozen(frozen, ticket).passed, "frozen, no step is carried out"


async def _quieter(text: str) -> str:
    return text.lower()


def test_a_candidate_is_asked_in_place_of_the_recorded_model(tmp_path: Path):
    frozen = asyncio.run(recorded(tmp_path / "store.db", "A-1"))
    with ScriptedModel("rival", ["rivals say no"]) as rival:
        verdict = replay_live(frozen, ticket, candidate="scripted/clerk=scripted/rival")
        assert len(rival.requests) == 1
        assert verdict.passed
        assert "rivals say no" in verdict.difference or "tell" in verdict.difference
        other = replay_live(frozen, ticket, candidate="openai/gpt-5=scripted/rival")
        assert len(rival.requests) == 1, "only the model that is named is swapped"
        assert other.passed


def test_a_failed_run_is_red_until_the_code_no_longer_fails(tmp_path: Path):
    frozen = asyncio.run(recorded(tmp_path / "store.db", "broken", status="failed"))
    verdict = replay_frozen(frozen, ticket)
    assert not verdict.passed
    assert "the printer is on fire" in verdict.message

    @workflow(name="ticket")
    async def mended(order: str) -> str:
        found = await look_up(order)
        hook = await create_webhook()
        await tell(f"{hook.path} {uuid4()}")
        reply = await generate_text("scripted/clerk", prompt=f"{order} {found['secret']}")
        agreed = await wait_for_event("agreed", timeout="1d")
        try:
            return await tell(f"{reply.text} {agreed.payload['by']}")  # type: ignore[union-attr]
        except FatalError:
            return "printed later"

    assert replay_frozen(frozen, mended).passed


def test_no_secret_leaves_in_a_frozen_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SHOP_TOKEN", CANARY)
    store = tmp_path / "store.db"
    encoded = base64.b64encode(f"a {CANARY} b".encode()).decode()
    leaky = f"{CANARY} {CANARY.upper()} {CANARY.encode().hex()} {encoded} sk-abcdefghijklmnop1234"
    frozen = asyncio.run(recorded(store, "A-1", [leaky]))
    text = frozen.to_text()
    token = _webhook_token(store)
    for form in (CANARY, CANARY.upper(), CANARY.encode().hex(), "sk-abcdefghij", token):
        assert form not in text, form
    assert base64.b64encode(CANARY.encode()).decode()[4:-4] not in text
    assert "[redacted]" in text
    monkeypatch.delenv("SHOP_TOKEN")
    assert replay_frozen(frozen, ticket).passed, "masks are compared with masks"


def _webhook_token(store: Path) -> str:
    with contextlib.closing(sqlite3.connect(store)) as connection:
        rows = connection.execute("SELECT meta FROM events WHERE type = 'webhook.created'")
        return json.loads(rows.fetchone()[0])["token"]


def test_generated_runs_replay_in_both_ways_time_and_again(tmp_path: Path):
    slowest = 0.0
    for seed in range(RUNS):
        registered().clear()
        module = types.ModuleType("generated")
        exec(compile(source_of(seed), "<generated>", "exec"), vars(module))
        flow: Workflow[..., Any] = vars(module)["flow"]
        frozen = asyncio.run(_generated(flow, seed))
        for _ in range(20):
            began = time.thread_time()
            verdict = replay_frozen(frozen, flow)
            slowest = max(slowest, time.thread_time() - began)
            assert verdict.passed or "as recorded" in verdict.message, (seed, verdict)
        live = replay_live(frozen, flow)
        assert live.passed or frozen.status == "failed", (seed, live)
        assert live.difference == "", (seed, live)
    print(f"slowest frozen replay: {slowest * 1000:.1f} ms")


async def _generated(flow: Workflow[..., Any], seed: int) -> FrozenRun:
    async with Harness() as harness:
        run = await start(flow, seed % 9)
        await send_event("go", {"seed": seed})
        while not (await run.record()).ended:
            await harness.skip("1h")
        journal = await harness.engine.store.load(run.id)
        frozen = freeze(await run.record(), journal, [], (), known_redactor())
    return FrozenRun.from_text(frozen.to_text())


# --- as pytest sees them ---

APP = """
from holdfast import step, workflow


@step
async def add(a: int, b: int) -> int:
    return a + b


@workflow
async def total(a: int) -> int:
    return await add(a, 2)
"""


def test_pytest_replays_frozen_files_and_leaves_other_json_alone(tmp_path: Path):
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "tests" / "runs").mkdir(parents=True)
    (tmp_path / "tests" / "runs" / "other.json").write_text('{"a": 1}')
    script = (
        "import asyncio, app\nfrom holdfast import start\n"
        "from holdfast.runtime.app import open_engine\n"
        "async def main():\n"
        "    async with open_engine('store.db'):\n"
        "        print(await (await start(app.total, 40)).result())\n"
        "asyncio.run(main())\n"
    )
    call(tmp_path, "-c", script)
    frozen = call(
        tmp_path, "-m", "holdfast.cli.main", "runs", "freeze", "latest", "app.py",
        "--store", "store.db",
    )  # fmt: skip
    (tmp_path / "tests" / "runs" / "total.json").write_text(frozen.stdout)
    run = ("-m", "pytest", "-q", "-p", "holdfast.ready.pytest_plugin", "-p", "no:cacheprovider")
    assert "1 passed" in call(tmp_path, *run).stdout
    assert "1 passed" in call(tmp_path, *run, "--live-tools").stdout
    (tmp_path / "app.py").write_text(APP.replace("add(a, 2)", "add(a, 3)"))
    red = call(tmp_path, *run, code=1).stdout
    assert "1 failed" in red
    assert 'the journal has step add({"a": 40, "b": 2}), but the code now calls' in red
    assert "app.py:12 in total" in red
    # Without the plugin nothing is collected.
    assert "no tests ran" in call(tmp_path, "-m", "pytest", "-q", code=5).stdout


def call(folder: Path, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done
