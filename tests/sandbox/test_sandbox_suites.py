"""A few of `make suites`: the tests of real packages come out the same inside as outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.code.parity import sources
from sandbox.package_suites import Comparison, Outside, run_inside, unpack
from sandbox.support import require, shared_host

SAMPLE = {"iniconfig": ("namespace", "gvisor"), "munch": ("namespace",), "parse": ("namespace",)}
"""Packages, and the backends on which their suites are run here."""
TELLING = "def test_where():\n    assert __file__.startswith('/workspace/')\n"


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Outside:
    return Outside(tmp_path_factory.mktemp("outside"))


@pytest.mark.parametrize(
    ("package", "backend"), [(p, backend) for p, backends in SAMPLE.items() for backend in backends]
)
async def test_the_suite_of_a_package_comes_out_the_same_inside(
    package: str, backend: str, outside: Outside, tmp_path: Path
) -> None:
    require(backend)
    try:
        suite = unpack(package, tmp_path)
    except sources.OutOfReach as error:
        pytest.skip(f"the package index is out of reach: {error}")
    beside = min(suite.rglob("test_*.py")).parent
    (beside / "test_holdfast_where.py").write_text(TELLING)  # so that a difference would be seen
    both = Comparison(outside.run(suite), await run_inside(suite, backend, shared_host()))
    assert both.passed > 30, both.outside.said
    where, exits = both.differing[:1], both.differing[1:]
    assert where[0].endswith("test_holdfast_where::test_where: failure outside, passed inside")
    assert exits == ["exit 1 outside, 0 inside"], both.inside.said
