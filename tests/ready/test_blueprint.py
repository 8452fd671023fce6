"""The picture of a project: what it shows, when it is out of date, what a crash in it means."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, send_event, start, step, step_context, tool, wait_for_event, workflow
from holdfast.gateway import Say, ScriptedModel
from holdfast.ready import blueprint_page
from holdfast.ready.blueprint import before, crash_at
from holdfast.ready.body_graph import read_body
from holdfast.ready.project import Project
from holdfast.ready.project_settings import ProjectSettings
from holdfast.ready.source_code import Sources
from holdfast.testing import Harness
from ready.examining import HEALTHY

# --- what the command draws ---


def blueprint(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdfast.cli.main", "blueprint", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("blueprint") / "desk"
    shutil.copytree(HEALTHY, folder, ignore=shutil.ignore_patterns("__pycache__", ".holdfast"))
    return folder


@pytest.fixture(scope="module")
def told(project: Path) -> dict[str, Any]:
    return json.loads(blueprint(project, "--format", "json").stdout)


def test_it_shows_the_layers_and_what_each_uses(told: dict[str, Any]):
    answer = next(flow for flow in told["workflows"] if flow["name"] == "answer")
    kinds = [node["kind"] for node in answer["nodes"]]
    assert kinds == ["begin", "agent", "step", "wait", "end"]
    assert answer["nodes"][2]["about"] == "(text: str) → int"
    assert answer["on_failure"] == "report_failure"
    parts = {(part["band"], part["kind"], part["name"]) for part in told["parts"]}
    assert ("loop", "tool", "refund") in parts
    assert ("sandbox", "sandbox", "sandbox of check") in parts
    secret = [link for link in told["links"] if link["kind"] == "secret"]
    assert [link["label"] for link in secret] == ["ANTHROPIC_API_KEY"]
    assert not any(link["to"].startswith("sandbox") for link in secret)


def test_a_picture_is_out_of_date_when_the_project_has_changed_and_not_before(
    project: Path, tmp_path: Path
):
    folder = shutil.copytree(project, tmp_path / "desk")
    assert blueprint(folder, "--out", "picture.svg").returncode == 0
    source = (folder / "desk.py").read_text()
    (folder / "desk.py").write_text('"""Another word."""\n\n\n' + source)
    assert blueprint(folder, "--check", "picture.svg").returncode == 0
    (folder / "desk.py").write_text(source.replace('timeout="2m"', 'timeout="3m"'))
    checked = blueprint(folder, "--check", "picture.svg")
    assert checked.returncode == 1
    assert "out of date" in checked.stderr
    (folder / "picture.svg").write_text("<svg/>")
    assert blueprint(folder, "--check", "picture.svg").returncode == 3


def test_the_advice_names_the_layers_and_why(told: dict[str, Any], project: Path, tmp_path: Path):
    assert told["advice"]["is"] == told["advice"]["needs"] == "loop + runtime + sandbox"
    (tmp_path / "holdfast.toml").write_text('[project]\napp = ["little.py"]\n')
    (tmp_path / "little.py").write_text(
        "import subprocess\nfrom holdfast import Agent, tool\n\n"
        "@tool(idempotent=True)\nasync def shell(command: str) -> str:\n"
        '    """Run."""\n    return subprocess.run(command, shell=True).stdout\n\n'
        'helper = Agent("scripted/x", "You help.", [shell], name="helper")\n'
    )
    said = blueprint(tmp_path, "--advise").stdout
    assert "uses loop\n" in said
    assert "needs loop + runtime + sandbox" in said
    assert "the tool shell runs what a model gave it" in said
    assert "little.py:7" in said


def test_a_drawing_of_five_hundred_nodes_is_under_a_megabyte(told: dict[str, Any]):
    flow = told["workflows"][1]
    nodes = [{**flow["nodes"][2], "id": number} for number in range(500)]
    edges = [
        {"from": n, "to": n + 1, "kind": "control", "label": ""} for n in range(len(nodes) - 1)
    ]
    big = {**told, "workflows": [{**flow, "nodes": nodes, "edges": edges}]}
    page = blueprint_page.html(big)
    assert len(page.encode()) < 1_000_000
    assert page.count('role="button"') >= 500
    assert blueprint_page.mermaid(big).count("-->") >= 499


# --- crash mode: what is said is what happens ---

ACTED: list[str] = []
HANGS: set[str] = set()


async def _act(name: str) -> None:
    ACTED.append(name)
    if name in HANGS:
        HANGS.discard(name)
        await asyncio.Event().wait()  # until its worker is killed


@step(retries=0)
async def first(n: int) -> int:
    await _act("first")
    return n


@step(retries=0)
async def second(n: int) -> int:
    await _act("second")
    return n


@workflow
async def smaller(n: int) -> int:
    return await second(n)


@tool(idempotent=True)
async def reads() -> str:
    """Read."""
    await _act("reads")
    return "read"


@tool(idempotent=False)
async def pays() -> str:
    """Pay."""
    await _act("pays")
    return step_context().idempotency_key


careful = Agent("scripted/careful", tools=[reads], name="careful")
spender = Agent("scripted/spender", tools=[pays], name="spender")


@workflow
async def journey(n: int) -> int:
    await first(n)
    await careful.run("go")
    await spender.run("go")
    await wait_for_event("go", timeout="1d")
    await smaller(n)
    return await second(n)


def graph() -> Any:
    here = Path(__file__).parent
    module = sys.modules[__name__]
    loaded = Project(here, ProjectSettings(), "default", (module,), (), (), (), ())
    return read_body(Sources(loaded), journey)


async def killed_at(name: str) -> list[str]:
    """What acts after the kill, of a run that is killed while `name` acts (or waits)."""
    ACTED.clear()
    HANGS.clear()
    HANGS.add(name)
    scripts = {
        "careful": [Say(tools=[("reads", {})]), "done"],
        "spender": [Say(tools=[("pays", {})]), "done"],
    }
    with (
        ScriptedModel("careful", scripts["careful"]),
        ScriptedModel("spender", scripts["spender"]),
    ):
        async with Harness() as harness:
            run = await start(journey, 1)
            if name == "go":
                await harness.until_blocked()
            else:
                while name in HANGS:
                    await asyncio.sleep(0)
            seen = len(ACTED)
            await harness.crash()
            await send_event("go", {})
            assert await run.result() == 1
            return ACTED[seen:]


@pytest.mark.parametrize(
    ("node", "acts", "order"),
    [
        ("first", "first", ["first", "reads", "pays", "second", "second"]),
        ("careful", "reads", ["reads", "pays", "second", "second"]),
        ("spender", "pays", ["second", "second"]),
        ("go", "go", ["second", "second"]),
    ],
)
async def test_a_crash_does_what_the_picture_says(node: str, acts: str, order: list[str]):
    drawn = graph()
    place = next(each for each in drawn.nodes if each.name == node)
    outcome = crash_at(drawn, place)["outcome"]
    after = await killed_at(acts)
    assert after == order
    # Repeated means that it acts again; unknown and kept that it does not.
    assert outcome == {"first": "repeated", "reads": "repeated", "pays": "unknown"}.get(
        acts, "kept"
    )
    assert (acts in after) == (outcome == "repeated")
    # What is said to be replayed does not act again.
    names = {"careful": "reads", "spender": "pays", "first": "first"}
    for each in before(drawn, place.id):
        assert names.get(drawn.nodes[each].name) not in after
