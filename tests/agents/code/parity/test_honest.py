"""Honest programs, right and with a bug: the same verdict and the same words at every level."""

from __future__ import annotations

import pytest

from agents.code.parity.comparing import compared
from agents.code.parity.honest import PROGRAMS


@pytest.mark.timeout(1200)
async def test_honest_programs_are_judged_apart_as_pytest_judges_them() -> None:
    cases: dict[str, dict[str, str]] = {}
    for name, (program, (right, wrong), tests) in PROGRAMS.items():
        assert right in program, name
        for kind, code in (("right", program), ("wrong", program.replace(right, wrong))):
            cases[f"{name}, {kind}"] = {"solution.py": code, "test_solution.py": tests}
    found = await compared(cases)
    wrong = [f"{name}: {each}" for name, pair in found.items() for each in pair.differences()]
    assert not wrong, "\n\n".join(wrong)
    for name, pair in found.items():
        assert pair.plain.passes == name.endswith("right"), name
    shared = {name: pair.why_shared for name, pair in found.items() if pair.apart is None}
    assert len(shared) < 0.1 * len(found), shared
