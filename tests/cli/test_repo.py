"""`holdfast repo`: progress, the patch, and what may be done with it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.repo import repos
from agents.repo.repos import git, make
from waiting import LIMIT, until

from .conftest import Holdfast

PATH, OLD, NEW = repos.SLUGS_FIX
SCRIPT = """
from agents.repo import repos
from agents.repo.conftest import as_say, edit, finish

TURNS = {"fix": [edit(repos.SLUGS_FIX), ("run", {"command": "python -m pytest -q"}), finish("One dash\\x1b[2J is enough.")],
         "half": [edit((*repos.SLUGS_FIX[:2], "    return title")), finish()],
         "slow": [("run", {"command": "sleep 60"})],
         "ci": [edit(repos.SLUGS_FIX), ("write_file", {"path": ".github/workflows/x.yml", "content": "on: push"}), finish()]}

def model(name):
    def play(request):
        turns = TURNS[name]
        return as_say(turns[sum(m.role == "tool" for m in request.messages) % len(turns)])
    return play

fix, half, slow, ci = (model(name) for name in TURNS)
"""


@pytest.fixture
def repo(holdfast: Holdfast) -> Iterator[Path]:
    folder = holdfast.folder
    (folder / "script.py").write_text(SCRIPT)
    models = "".join(f'{name} = "script:{name}"\n' for name in ("fix", "half", "slow", "ci"))
    (folder / "holdfast.toml").write_text(
        f'[gateway.scripted]\n{models}\n[repo]\nbackend = "namespace"\nattempts = 1\n'
    )
    tests = Path(__file__).parents[1]
    state = tempfile.mkdtemp(prefix="hf-")
    holdfast.environment |= {
        "PYTHONPATH": f"{folder}:{tests}",
        "HOLDFAST_SANDBOX_DIR": state,
        "GIT_CONFIG_GLOBAL": "/dev/null",
    }
    yield make(folder / "slugs", repos.SLUGS)
    holdfast.end()
    shutil.rmtree(state, ignore_errors=True)


def test_a_repo_is_repaired_and_its_patch_written(holdfast: Holdfast, repo: Path) -> None:
    done = holdfast("repo", "slugs", "Fix slugify", "--model", "scripted/fix")
    assert done.code == 0, done.err
    first, *lines = done.err.splitlines()
    run_id, _, where = first.partition("  in ")
    assert run_id.startswith("run_") and where.endswith(".db")
    told = [line.strip() for line in lines if "✓" not in line and "✗" not in line]
    assert told == ["by scripted/fix", "sandbox namespace"]
    lines = [line for line in lines if line.strip() not in told]
    words = [line[:18].strip() for line in lines]
    assert words == [
        "✓ take the repo", "✗ tests before", "✓ think", "✓ edit file", "✓ think", "✓ run", "✓ think", "✓ judge",
    ]  # fmt: skip
    assert done.out.startswith("passed: 4 passed · round 1 · 1 file, 2 lines · ")
    assert "One dash\\x1b[2J is enough." in done.out  # shown, not obeyed
    assert git(repo, "status", "--short") == ""
    patch = holdfast.folder / f"{run_id}.patch"
    git(repo, "apply", str(patch))
    assert NEW in (repo / PATH).read_text()


def test_the_patch_goes_where_it_is_asked_for(holdfast: Holdfast, repo: Path) -> None:
    head = git(repo, "rev-parse", "HEAD")
    done = holdfast(
        "repo", "slugs/src", "Fix slugify\nplease", "--model", "scripted/fix", "--apply", "--branch", "fix/it",
        "--out", "it.patch", "--json",
    )  # fmt: skip
    assert done.code == 0, done
    told = done.json
    assert told["result"]["passed"] and told["file"] == "it.patch" and told["branch"] == "fix/it"
    assert told["applied"] == str(repo)
    assert git(repo, "status", "--short") == f" M {PATH}\n"
    assert git(repo, "rev-parse", "HEAD") == head
    assert git(repo, "rev-parse", "--abbrev-ref", "HEAD") == "main\n"
    assert git(repo, "rev-parse", "fix/it").strip() == told["commit"]
    assert git(repo, "log", "-1", "--format=%s", "fix/it") == "Fix slugify\n"
    assert not list(holdfast.folder.glob("run_*.patch"))


def test_a_conflict_is_refused_and_the_patch_kept(holdfast: Holdfast, repo: Path) -> None:
    process = holdfast.spawn(
        "repo", "slugs", "Fix", "--model", "scripted/fix", "--apply", "--out", "it.patch"
    )
    assert process.stderr is not None
    while "tests before" not in process.stderr.readline():
        assert process.poll() is None
    (repo / PATH).write_text("changed meanwhile\n")
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 3
    assert "does not apply" in err and PATH in err and "merge by hand" in err
    assert (repo / PATH).read_text() == "changed meanwhile\n"
    assert NEW in (holdfast.folder / "it.patch").read_text()


def test_what_did_not_pass_is_written_but_not_applied(holdfast: Holdfast, repo: Path) -> None:
    done = holdfast(
        "repo",
        "slugs",
        "Fix",
        "--model",
        "scripted/half",
        "--apply",
        "--branch",
        "x",
        "--json",
        "--out",
        "it.patch",
    )
    assert done.code == 1
    assert done.json["result"]["passed"] is False and "applied" not in done.json
    assert (holdfast.folder / "it.patch").exists()
    assert git(repo, "status", "--short") == "" and git(repo, "branch", "--list", "x") == ""


def test_files_that_act_by_being_there_are_pointed_out(holdfast: Holdfast, repo: Path) -> None:
    done = holdfast("repo", "slugs", "Fix", "--model", "scripted/ci")
    assert (
        done.code == 0
        and "look twice at what acts by being there: .github/workflows/x.yml" in done.out
    )


def test_ctrl_c_detaches_and_a_worker_goes_on(holdfast: Holdfast, repo: Path) -> None:
    process = holdfast.spawn("repo", "slugs", "Fix", "--model", "scripted/fix")
    assert process.stderr is not None
    run_id = process.stderr.readline().split()[0]
    until(lambda: "take_repo" in str(holdfast.show(run_id)["steps"]), "it has begun")
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 130 and "detached" in err
    worker = holdfast.spawn("worker", "--json", "--quiet")
    until(lambda: holdfast.show(run_id)["status"] == "completed", "the worker did it", 60)
    worker.terminate()
    assert holdfast.show(run_id)["result"]["passed"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nowhere", "x"], 2, "is no folder here"),
        (["slugs", " "], 2, "the task is empty"),
        (["https://example.com/x.git", "x", "--apply"], 2, "need a folder of this machine"),
        (["slugs", "x", "--detach", "--apply"], 2, "--detach leaves the patch in the run"),
        (["slugs", "x", "--budget", "much"], 2, "is no amount"),
        (["slugs", "x", "--max-time", "long"], 2, "long"),
        (["slugs", "x", "--parallel", "99"], 1, None),
        (["slugs", "x", "--model", "scripted/nobody"], 1, None),
        (["slugs", "x"], 1, None),
    ],
)
def test_wrong_usage_is_said(
    holdfast: Holdfast, repo: Path, words: list[str], code: int, said: str | None
) -> None:
    for name in list(holdfast.environment):
        if name.endswith("_API_KEY"):
            del holdfast.environment[name]
    done = holdfast("repo", *words, "--json")
    assert done.code == code, done
    told = json.loads(done.out)
    if said is not None:
        assert said in told["error"]["message"]
    else:
        assert told["status"] == "failed"
