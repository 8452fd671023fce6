"""The core of the runtime and the store, on the other supported interpreters of this machine.

`make test-interpreters` runs much more of the suite on each of them.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
import interpreters  # noqa: E402

sys.path.pop(0)

OTHERS = [version for version in interpreters.SUPPORTED if version != interpreters.PRESENT]


def test_every_supported_version_is_in_the_packages_classifiers():
    text = (ROOT / "pyproject.toml").read_text()
    for version in interpreters.SUPPORTED:
        assert f"Programming Language :: Python :: {version}" in text


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", OTHERS)
def test_the_core_passes_on_another_interpreter(version: str):
    found = interpreters.find(version)
    if found is None:
        pytest.skip(f"there is no Python {version} on this machine")
    try:
        python = interpreters.environment(found, version)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no environment for Python {version} can be made: {error.stderr[-300:]}")
    ran = interpreters.run_tests(python, interpreters.CORE, capture_output=True)
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
    assert " passed" in ran.stdout
