"""Installed as people do: the wheel and the sdist, in an environment that has nothing else."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
UV = Path(sys.executable).parent / "uv"


def package_name(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9_.-]+", requirement)
    assert found is not None, requirement
    return found[0].lower().replace("_", "-")


def call(*command: object, **options: object) -> str:
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, **options
    )  # type: ignore[call-overload]
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def build(project: Path, out: Path) -> None:
    call(sys.executable, "-m", "hatchling", "build", "-d", out, cwd=project)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist of what git would hand out."""
    folder = tmp_path_factory.mktemp("dist")
    build(ROOT, folder)
    return folder


def contents(wheel: Path) -> dict[str, str]:
    with zipfile.ZipFile(wheel) as opened:
        return {
            name: hashlib.sha256(opened.read(name)).hexdigest()
            for name in opened.namelist()
            if not name.endswith("RECORD")
        }


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    inside = {name for name in contents(wheel) if name.startswith("holdfast/")}
    package = ROOT / "src" / "holdfast"
    there = {
        f"holdfast/{path.relative_to(package)}"
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert inside == there


def test_a_wheel_built_from_the_sdist_is_the_wheel(built: Path, tmp_path: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as opened:
        opened.extractall(tmp_path, filter="data")
    (project,) = tmp_path.iterdir()
    build(project, tmp_path / "again")
    (again,) = (tmp_path / "again").glob("*.whl")
    (wheel,) = built.glob("*.whl")
    assert contents(again) == contents(wheel)


@pytest.fixture(scope="module")
def clean(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel and what it asks for; its folder of programs."""
    folder = tmp_path_factory.mktemp("clean") / "venv"
    settings = call(sys.executable, ROOT / "scripts" / "uv_settings.py")
    (wheel,) = built.glob("*.whl")
    script = f"""
        {settings}
        {UV} venv -q --python {sys.executable} {folder}
        {UV} pip install -q --python {folder} --require-hashes -r {ROOT / "requirements.lock"} || exit 69
        {UV} pip install -q --python {folder} --no-deps {wheel}
    """
    done = subprocess.run(["bash", "-ec", script], capture_output=True, text=True)
    if done.returncode == 69:
        pytest.skip(f"this machine's package index: {done.stderr.strip()[-300:]}")
    assert done.returncode == 0, done.stderr
    return folder / "bin"


def test_what_the_wheel_asks_for_is_what_is_locked(clean: Path) -> None:
    call(UV, "pip", "check", "--python", clean.parent)


def test_the_installed_command_runs_a_workflow_and_says_what_is_wrong(
    clean: Path, tmp_path: Path
) -> None:
    environment = {"PATH": f"{clean}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    (tmp_path / "jobs.py").write_text(
        "from holdfast import step, workflow\n\n\n"
        "@step\nasync def double(n: int) -> int:\n    return 2 * n\n\n\n"
        "@workflow\nasync def twice(n: int) -> int:\n    return await double(n)\n"
    )
    arguments = ["run", "jobs.py:twice", "--input", '{"n": 21}']
    assert call(clean / "holdfast", *arguments, cwd=tmp_path, env=environment).strip() == "42"
    assert "✓ store" in call(clean / "holdfast", "doctor", cwd=tmp_path, env=environment)
    shown = call(clean / "holdfast", "--version", cwd=tmp_path, env=environment)
    assert shown == f"holdfast {PROJECT['version']}\n"


def test_every_module_can_be_imported_without_any_extra(clean: Path) -> None:
    """But for those whose whole point is a package of an extra, which say which."""
    script = """
import importlib, pkgutil, holdfast
for found in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
    if ".inside." in found.name:
        continue  # runs in sandboxes, by itself
    if ".store_conformance" in found.name:
        continue  # a pytest suite, of the extra `conformance`
    if ".store.postgres." in found.name or found.name == "holdfast.testing.harness_server":
        continue  # of the extra `postgres`; who opens the store says so
    if found.name.startswith("holdfast.temporal.") and found.name != "holdfast.temporal.temporal_settings":
        continue  # of the extra `temporal`; who opens the engine says so
    try:
        importlib.import_module(found.name)
    except ModuleNotFoundError as error:
        print(found.name, error.name)
"""
    assert call(clean / "python", "-c", script) == ""


def resolved(built: Path, what: str) -> str:
    """What an installation of this would bring along, from the machine's own index."""
    settings = call(sys.executable, ROOT / "scripts" / "uv_settings.py")
    (wheel,) = built.glob("*.whl")
    target = built / "nothing"
    script = f"""
        {settings}
        {UV} venv -q --allow-existing --python {sys.executable} {target}
        {UV} pip install --dry-run --python {target} "holdfast[{what}] @ file://{wheel}" || exit 69
    """
    done = subprocess.run(["bash", "-ec", script], capture_output=True, text=True)
    if done.returncode == 69 and "client error" in done.stderr:
        pytest.skip(f"this machine's package index: {done.stderr.strip()[-300:]}")
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("extra", [name for name in EXTRAS if name != "dev"])
def test_an_extra_can_be_had_and_brings_what_it_names(built: Path, extra: str) -> None:
    brought = resolved(built, extra)
    for requirement in EXTRAS[extra]:
        assert f"+ {package_name(requirement)}==" in brought


def test_the_sdist_installs_by_itself(clean: Path, built: Path, tmp_path: Path) -> None:
    """As pip does it where there is no wheel: built in isolation, with the command in place."""
    (sdist,) = built.glob("*.tar.gz")
    settings = call(sys.executable, ROOT / "scripts" / "uv_settings.py")
    folder = tmp_path / "venv"
    script = f"""
        {settings}
        {UV} venv -q --python {sys.executable} {folder}
        {UV} pip install -q --python {folder} --no-deps {sdist}
    """
    call("bash", "-ec", script)
    # The packages that it needs are those of the environment beside it.
    (beside,) = clean.parent.glob("lib/python*/site-packages")
    environment = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(beside)}
    shown = call(folder / "bin" / "holdfast", "--version", cwd=tmp_path, env=environment)
    assert shown == f"holdfast {PROJECT['version']}\n"


def test_advice_names_only_what_can_be_installed() -> None:
    """No release is in any index yet: `holdfast[extra]` can't be had there, its packages can."""
    packages = {package_name(each) for extra in EXTRAS.values() for each in extra}
    packages |= {
        package_name(line)
        for line in (ROOT / "requirements-local.lock").read_text().splitlines()
        if line and line[0].isalpha()
    }
    places = [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs" / "guides").glob("*.md")]
    advice = [
        (place.name, word)
        for place in places
        for words in re.findall(
            r"pip install ((?:--?[a-z-]+ )*'?[A-Za-z][^\s&`\"')]*)", place.read_text()
        )
        if (word := words.split()[-1].strip("'")) not in ("put", "-r")
        and not words.startswith("-r")
    ]
    assert advice
    assert [(place, word) for place, word in advice if package_name(word) not in packages] == []
