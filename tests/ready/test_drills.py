"""Drills: everything on a throw-away store, nobody called, nothing left behind."""

import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from holdfast.ready.doctor import examine
from holdfast.ready.points import Report
from ready.broken import Edit, edit, make

BROKEN: dict[str, list[Edit]] = {
    "HF02": [("desk.py", "", """
from pydantic import BaseModel, field_validator

class Price(BaseModel):
    cents: int

    @field_validator("cents")
    @classmethod
    def in_cents(cls, value: int) -> int:
        return value * 100

@step(timeout="1s")
async def quote(price: Price) -> Price:
    return price
""")],
    "HF04": [("desk.py", "    length = await check(reply.text)\n", "    length = 0\n    for word in list({'a', 'b', 'c', 'd', 'e', 'f'}):\n        length += await check(word)\n        await tell_somebody(word)\n")],
    "HF07": [("desk.py", "    if not told:\n        return", "    if told and False:\n        return")],
    "HF13": [("desk.py", 'memory="256mb"', 'memory="900tb"')],
}  # fmt: skip


def _verdicts(report: Report) -> dict[str, str]:
    return {result.point.id: result.verdict for result in report.results}


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A provider that the project's models would be called at, and what was asked of it."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.send_error(500)

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("ANTHROPIC_BASE_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "any")
    yield asked
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_healthy_project_is_drilled_calls_nobody_and_leaves_nothing(
    tmp_path: Path, provider: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, scratch = make(tmp_path / "healthy", []), Path(tempfile.mkdtemp(prefix="d", dir="/tmp"))
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    mounts = Path("/proc/mounts").read_text().splitlines()
    report = examine(root, tiers="SD")
    verdicts = _verdicts(report)
    assert "fail" not in verdicts.values(), report.as_json()
    workflows = {
        "HF02",
        "HF04",
        "HF07",
        "HF08",
        "HF09",
        "HF18",
        "HF19",
        "HF20",
        "HF21",
        "HF22",
        "HF28",
    }
    assert {point for point in workflows if verdicts[point] == "pass"} == workflows, (
        report.as_json()
    )
    assert verdicts["HF27"] == "not exercised", "it is in no repository"
    assert provider == []
    assert list(scratch.iterdir()) == []
    scratch.rmdir()
    assert sorted(p.name for p in root.iterdir()) == ["desk.py", "holdfast.toml"]
    assert set(Path("/proc/mounts").read_text().splitlines()) <= set(mounts)
    assert not _children_named("holdfast-doctor")


def _children_named(word: str) -> list[str]:
    found: list[str] = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            said = entry.read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
        if word in said and str(os.getpid()) not in entry.parts:
            found.append(said)
    return found


@pytest.mark.parametrize("point", BROKEN)
def test_what_only_a_drill_finds_fails_in_that_point_alone(point: str, tmp_path: Path) -> None:
    root = make(tmp_path / point, BROKEN[point])
    alike = ["HF02", "HF07", "HF18", "HF20", "HF21"]
    report = examine(root, tiers="SD", only=[point, *alike])
    failed = {id for id, verdict in _verdicts(report).items() if verdict == "fail"}
    assert failed == {point}, report.as_json()


_ASKS_MORE: Edit = (
    "desk.py",
    "    length = await check",
    '    await tell_somebody("new")\n    length = await check',
)
_GUARDED: list[Edit] = [
    ("desk.py", "    step,\n", "    patched,\n    step,\n"),
    ("desk.py", "    length = await check", '    if patched("tell"):\n        await tell_somebody("new")\n    length = await check'),
]  # fmt: skip
_OWN: Edit = ("holdfast.toml", "step_timeout = 600", 'step_timeout = 600\nversions = "own"')
ROLLBACKS: dict[str, tuple[list[Edit], list[Edit], str, str]] = {
    "runs in flight do not fit": ([], [_ASKS_MORE], "fail", "is stuck on this code: "),
    "workers keep to their code": ([_OWN], _GUARDED, "pass", "none is stuck"),
}
"""What the deployed code has, how it was changed, the verdict and its words."""


def _examined(root: Path, before: list[Edit], after: list[Edit], only: list[str]) -> Report:
    """A project of which one state is committed, and another there."""
    make(root, before)
    for command in ("init -q", "add .", "-c user.name=a -c user.email=a@b commit -qm old"):
        subprocess.run(["git", *command.split()], cwd=root, check=True)
    edit(root, after)
    return examine(root, tiers="D", only=only)


@pytest.mark.parametrize("change", ROLLBACKS)
def test_a_rollback_is_tried_with_the_code_of_the_last_commit(change: str, tmp_path: Path) -> None:
    before, after, verdict, words = ROLLBACKS[change]
    report = _examined(tmp_path / "desk", before, after, ["HF27"])
    assert _verdicts(report) == {"HF27": verdict}, report.as_json()
    assert words in report.results[0].findings[0].message


def test_a_body_that_asks_for_more_can_not_be_rolled_back_and_fails_in_that_alone(
    tmp_path: Path,
) -> None:
    points = ["HF02", "HF07", "HF18", "HF20", "HF21", "HF27"]
    report = _examined(tmp_path / "desk", [], _GUARDED, points)
    assert {id for id, verdict in _verdicts(report).items() if verdict == "fail"} == {"HF27"}
    assert " is stuck when " in report.results[-1].findings[0].message


def test_a_point_without_an_example_to_drill_with_never_reads_pass(tmp_path: Path) -> None:
    root = make(tmp_path / "bare", [
        ("holdfast.toml", '[project.examples.answer]\nticket = { customer = "ada", text = "A-1 arrived broken: 40 back, please." }\n', ""),
    ])  # fmt: skip
    report = examine(root, tiers="D", only=["HF18", "HF20", "HF28"])
    assert set(_verdicts(report).values()) == {"not exercised"}
