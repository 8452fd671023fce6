"""Attempts to get at the host: each works outside, and none in a sandbox of any backend."""

from __future__ import annotations

import os

import pytest

from abuse.attacks import ATTACKS, Attack
from abuse.host_side import HostSide, host_side
from sandbox.support import create

pytestmark = pytest.mark.skipif(
    os.uname().machine != "x86_64", reason="the attacks name system calls by x86-64 numbers"
)


@pytest.fixture(scope="module")
def host(sandbox_state: str):
    with host_side() as host:
        yield host


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name.replace(" ", "-"))
async def test_an_attack_that_works_outside_fails_inside(
    attack: Attack, backend: str, host: HostSide
) -> None:
    if attack.root and os.geteuid() != 0:
        pytest.skip("works outside for root only")
    if attack.not_gvisor and backend == "gvisor":
        pytest.skip("answered by gVisor's own kernel, where it reaches nothing of the host's")
    outside = host.run_outside(attack.code)
    if attack.lacking and "won" not in outside.splitlines():
        pytest.skip("this host's kernel, or this root, can't do it either")
    assert "won" in outside.splitlines(), f"void: it does not even work outside\n{outside}"
    async with await create(backend, memory="128mb") as sandbox:
        inside = await sandbox.run("python", "-c", host.code(attack.code), timeout=20)
    assert "won" not in inside.stdout.splitlines(), inside.stdout


def test_there_are_at_least_a_hundred_attacks() -> None:
    names = [attack.name for attack in ATTACKS]
    assert len(set(names)) == len(names)
    assert len(names) >= 100
