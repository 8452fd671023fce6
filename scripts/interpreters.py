"""Test on every supported interpreter that this machine has: interpreters.py [test …]

Each gets an environment of its own, with the locked dependencies, beneath `.venv`. What is tied to
one interpreter (the sandbox's agent, generated code, the browser) is not run again. Interpreters
are looked for on PATH, among pyenv's, and by uv, which also knows those it has installed itself.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
SUPPORTED = ("3.11", "3.12", "3.13")
PRESENT = f"{sys.version_info.major}.{sys.version_info.minor}"

CORE = (
    "tests/runtime/test_loop.py",
    "tests/runtime/test_replay.py",
    "tests/runtime/test_steps.py",
    "tests/runtime/test_codec.py",
    "tests/runtime/test_failures.py",
    "tests/runtime/test_deadlines.py",
    "tests/runtime/test_watchdog.py",
    "tests/runtime/test_steering.py",
    "tests/store/test_statements.py",
    "tests/store/test_mailbox.py",
)
"""What differs between interpreters if anything does: bodies, tasks, errors, threads, SQLite."""
WHOLE = (
    "tests/runtime",
    "tests/store",
    "tests/simulation",
    "tests/conformance",
    "tests/loop",
    "tests/gateway",
)


def find(version: str) -> Path | None:
    """An interpreter of this version that starts."""
    for candidate in _candidates(version):
        said = _version_of(candidate)
        if said == version:
            return candidate
    return None


def _candidates(version: str) -> Iterator[Path]:
    found = shutil.which(f"python{version}")
    if found is not None:
        yield Path(found)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for place in sorted(pyenv.glob(f"{version}*"), reverse=True):
        yield place / "bin" / f"python{version}"
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if uv is not None:
        command = [uv, "python", "find", "--no-python-downloads", version]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
        if said.returncode == 0:
            yield Path(said.stdout.strip())


def _version_of(python: Path) -> str | None:
    command = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return said.stdout.strip() if said.returncode == 0 else None  # pyenv's shims may not start


def environment(python: Path, version: str) -> Path:
    """A virtual environment with the locked dependencies: its interpreter. Made if need be."""
    place = ROOT / ".venv" / "interpreters" / version
    locked = hashlib.blake2b((ROOT / "requirements-dev.lock").read_bytes()).hexdigest()
    stamp = place / ".locked"
    if not stamp.exists() or stamp.read_text() != locked:
        place.parent.mkdir(parents=True, exist_ok=True)
        settings = {**os.environ, "PYTHON": str(python), "VENV": str(place)}
        command = ["bash", str(ROOT / "scripts" / "setup.sh")]
        subprocess.run(command, env=settings, check=True, capture_output=True)
        stamp.write_text(locked)
    return place / "bin" / "python"


def run_tests(
    python: Path, tests: Sequence[str], **options: bool
) -> subprocess.CompletedProcess[str]:
    """Run tests with another interpreter."""
    command = [str(python), "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *tests]
    own = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "COV_"))}
    return subprocess.run(command, cwd=ROOT, env=own, text=True, check=False, **options)


def main(tests: Sequence[str]) -> int:
    results: dict[str, str] = {}
    failed = False
    for version in SUPPORTED:
        python = Path(sys.executable) if version == PRESENT else find(version)
        if python is None:
            results[version] = "NOT TESTED: there is none on this machine"
            continue
        used = python if version == PRESENT else environment(python, version)
        code = run_tests(used, tests or WHOLE).returncode
        failed = failed or code != 0
        results[version] = f"{'passed' if code == 0 else 'FAILED'} ({python})"
    for version, result in results.items():
        print(f"python {version}: {result}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
