"""How a repo's tests are run, told from its files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, cast

from holdfast.agents.repo.records import TestPlan
from holdfast.agents.repo.workspace import ROOT, Workspace
from holdfast.errors import SandboxFileError
from holdfast.sandbox.spec import Runtime

_PYTHON_TEST = re.compile(r"(^|/)(test_[^/]*|[^/]*_test)\.py$")
_NODE_TEST = re.compile(
    r"(^|/)[^/]*[.-](test|spec)\.[cm]?js$|(^|/)(test|tests|__tests__)/.*\.[cm]?js$"
)
_PLACEHOLDER = "no test specified"
_CONFIGS = ("package.json", "pyproject.toml", "setup.cfg", "pytest.ini", "tox.ini", "Makefile")
_MOST_READ = 200
_MOST_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Found:
    """What was found out about a repo."""

    tests: TestPlan | None
    runtime: Runtime
    env: tuple[tuple[str, str], ...]


async def look(workspace: Workspace, files: Sequence[str]) -> Found:
    """Look at a workspace's files; `files` are those of its state."""
    known = set(files)
    wanted = [name for name in _CONFIGS if name in known]
    wanted += [name for name in files if _PYTHON_TEST.search(name)][:_MOST_READ]
    texts: dict[str, str] = {}
    for name in wanted:
        try:
            raw = await workspace.sandbox.read_file(f"{ROOT}/{name}", limit=_MOST_BYTES)
        except SandboxFileError:
            continue  # a link that leads nowhere, or too long to be looked at
        texts[name] = raw.decode("utf-8", "replace")
    plan = plan_for(files, texts)
    runtime: Runtime = "python"
    if plan is not None and set(plan.kinds) <= {"npm", "node"}:
        runtime = "node"
    return Found(plan, runtime, await _env(workspace, known))


def plan_for(files: Sequence[str], texts: Mapping[str, str]) -> TestPlan | None:
    """How the tests are run, by the names of all files and the texts of some."""
    parts = [part for part in (_python(files, texts), _node(files, texts)) if part is not None]
    if not parts:
        return _make(texts)
    return TestPlan(
        " && ".join(part.command for part in parts),
        tuple(kind for part in parts for kind in part.kinds),
        "; ".join(part.because for part in parts),
    )


def _python(files: Sequence[str], texts: Mapping[str, str]) -> TestPlan | None:
    tests = [name for name in files if _PYTHON_TEST.search(name)]
    if not tests:
        return None
    configured = _pytest_config(texts)
    if configured is not None:
        return TestPlan("python -m pytest -q", ("pytest",), f"{configured} configures pytest")
    known = [texts[name] for name in tests if name in texts]
    if known and all(_only_unittest(text) for text in known):
        return TestPlan(_unittest(files, tests), ("unittest",), f"{tests[0]} uses unittest")
    return TestPlan("python -m pytest -q", ("pytest",), f"there is {tests[0]}")


def _pytest_config(texts: Mapping[str, str]) -> str | None:
    signs = {
        "pytest.ini": "[pytest]",
        "pyproject.toml": "[tool.pytest",
        "setup.cfg": "[tool:pytest]",
        "tox.ini": "[pytest]",
    }
    return next((name for name, sign in signs.items() if sign in texts.get(name, "")), None)


def _only_unittest(text: str) -> bool:
    uses = re.search(r"^\s*(import unittest|from unittest)", text, re.MULTILINE)
    plain = re.search(r"^(async )?def test_|^import pytest|^from pytest", text, re.MULTILINE)
    return bool(uses) and not plain


def _unittest(files: Sequence[str], tests: Sequence[str]) -> str:
    folders = {str(PurePosixPath(name).parent) for name in tests}
    if len(folders) == 1 and folders != {"."}:
        folder = folders.pop()
        top = " -t ." if f"{folder}/__init__.py" in files else ""
        pattern = " -p '*test*.py'"
        return f"python -m unittest discover -s {folder}{top}{pattern}"
    return "python -m unittest discover -p '*test*.py'"


def _node(files: Sequence[str], texts: Mapping[str, str]) -> TestPlan | None:
    script = test_script(texts.get("package.json", ""))
    if script is not None:
        return TestPlan("npm test --silent", ("npm",), f"package.json's test script is {script!r}")
    tests = [name for name in files if _NODE_TEST.search(name)]
    if tests:
        return TestPlan("node --test", ("node",), f"there is {tests[0]}")
    return None


def test_script(package: str) -> str | None:
    """The test script of a package.json, if it has a real one."""
    try:
        data: Any = json.loads(package or "{}")
    except ValueError:
        return None
    scripts: Any = cast("dict[str, Any]", data).get("scripts") if isinstance(data, dict) else None
    found: Any = cast("dict[str, Any]", scripts).get("test") if isinstance(scripts, dict) else None
    return found if isinstance(found, str) and found and _PLACEHOLDER not in found else None


def _make(texts: Mapping[str, str]) -> TestPlan | None:
    targets = re.findall(r"^(test|check)\s*:(?!=)", texts.get("Makefile", ""), re.MULTILINE)
    if not targets:
        return None
    target = "test" if "test" in targets else targets[0]
    return TestPlan(f"make {target}", ("make",), f"the Makefile has a target {target!r}")


async def _env(workspace: Workspace, files: set[str]) -> tuple[tuple[str, str], ...]:
    """Where Python finds the repo's own packages and those that came with it."""
    paths: list[str] = []
    if any(name.startswith("src/") and name.endswith(".py") for name in files):
        paths.append(f"{ROOT}/src")
    for venv in (".venv", "venv"):
        result = await workspace.sandbox.shell(
            f"v=$(python -c \"import sys; print(*sys.version_info[:2], sep='.')\"); "
            f'p="{ROOT}/{venv}/lib/python$v/site-packages"; test -d "$p" && echo "$p"',
            timeout=30,
        )
        if result.ok:
            paths.append(result.stdout.strip())
            break
    return (("PYTHONPATH", ":".join(paths)),) if paths else ()
