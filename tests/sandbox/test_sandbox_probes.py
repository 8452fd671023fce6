"""Which backend `auto` takes: one trial for all who ask, and never less than was meant."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import SandboxUnavailable
from holdfast.sandbox import Host, Sandbox
from holdfast.sandbox.base import Instance, Isolation, Probe, Standing
from holdfast.sandbox.microvm import MicrovmBackend
from holdfast.sandbox.probes import Probes
from holdfast.sandbox.spec import Spec
from sandbox.support import require
from waiting import LIMIT


@pytest.fixture
def fresh_host(tmp_path: Path) -> Iterator[Host]:
    """A host nobody has asked for anything yet."""
    require("namespace")
    host = Host(tmp_path / "state", pool=0)
    yield host
    host.close()


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder before all others on the PATH, which otherwise has no runsc."""
    folder = tmp_path / "programs"
    folder.mkdir()
    places = os.environ["PATH"].split(":")
    kept = [place for place in places if not Path(place, "runsc").exists()]
    for place in set(places) - set(kept):
        for program in ("sh", "git"):
            if Path(place, program).exists() and not (folder / program).exists():
                (folder / program).symlink_to(Path(place, program))
    monkeypatch.setenv("PATH", ":".join([str(folder), *kept]))
    return folder


def _install(folder: Path, script: str) -> None:
    runsc = folder / "runsc"
    runsc.write_text(f"#!/bin/sh\n{script}\n")
    runsc.chmod(0o755)


async def test_the_first_sandboxes_made_at_once_all_get_the_strongest_backend(
    fresh_host: Host,
) -> None:
    require("gvisor")
    asked: list[dict[str, str]] = [{}, {"min_isolation": "gvisor"}, {"backend": "gvisor"}]
    made = await asyncio.gather(
        *(Sandbox.create(host=fresh_host, **each) for each in asked)  # pyright: ignore[reportArgumentType]
    )
    assert [sandbox.backend for sandbox in made] == ["gvisor"] * 3
    await fresh_host.aclose()


def test_processes_that_begin_at_once_over_one_folder_all_get_the_strongest(tmp_path: Path) -> None:
    require("gvisor")
    code = (
        "import asyncio, json, sys\n"
        "from holdfast.sandbox import Host, Sandbox\n"
        "async def main():\n"
        "    host = Host(sys.argv[1], pool=0)\n"
        "    sys.stdin.readline()\n"
        "    made = await asyncio.gather(*(Sandbox.create(host=host) for _ in range(2)))\n"
        "    print(json.dumps([each.backend for each in made]))\n"
        "    await host.aclose()\n"
        "asyncio.run(main())\n"
    )
    several = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "state")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    for process in several:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
    told = [process.communicate(timeout=LIMIT)[0] for process in several]
    assert [json.loads(each) for each in told] == [["gvisor", "gvisor"]] * 2


@pytest.mark.skipif(os.geteuid() != 0, reason="runsc is used as root only")
async def test_an_installed_backend_that_fails_is_an_error_and_no_reason_to_take_less(
    fresh_host: Host, programs: Path
) -> None:
    _install(programs, "echo 'no such luck' >&2; exit 1")
    with pytest.raises(SandboxUnavailable, match=r"gvisor is installed.*no such luck") as refused:
        await Sandbox.create(host=fresh_host)
    assert refused.value.hint is not None and "backend='namespace'" in refused.value.hint
    with pytest.raises(SandboxUnavailable, match="gvisor is installed") as refused:
        await Sandbox.create(host=fresh_host, min_isolation="gvisor")
    assert refused.value.hint is not None and "namespace" not in refused.value.hint
    async with await Sandbox.create(host=fresh_host, backend="namespace") as sandbox:
        assert sandbox.backend == "namespace"
    await fresh_host.aclose()


async def test_what_is_not_installed_is_passed_over_and_what_is_taken_is_said_once(
    fresh_host: Host, programs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="holdfast"):
        for _ in range(2):
            async with await Sandbox.create(host=fresh_host) as sandbox:
                assert sandbox.backend == "namespace"
    said = [record for record in caplog.records if "sandboxes are made with" in record.message]
    assert [record.levelname for record in said] == ["INFO"]
    assert "namespace: shares the host's kernel" in said[0].message
    await fresh_host.aclose()


async def test_taking_less_than_is_installed_is_a_warning(
    fresh_host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    fresh_host._make["microvm"] = lambda: _Trial(Standing.UNUSABLE, "no machine for it")
    fresh_host._make["gvisor"] = lambda: _Trial(Standing.ABSENT, "not installed")
    assert (await fresh_host.choose("auto", None)).name == "namespace"
    (said,) = [r for r in caplog.records if "sandboxes are made with" in r.message]
    assert said.levelname == "WARNING" and "no machine for it" in said.message
    assert "not installed" not in said.message
    await fresh_host.aclose()


class _Trial:
    """A backend whose probe says what it is told to, when it is told to."""

    name = "microvm"
    isolation = Isolation.MICROVM
    refill_after = 0.0

    def __init__(self, standing: Standing, reason: str = "as told") -> None:
        self.standing, self.reason = standing, reason
        self.tried = 0
        self.go = threading.Event()
        self.go.set()

    async def probe(self) -> Probe:
        self.tried += 1
        await asyncio.to_thread(self.go.wait, 60)
        return Probe(self.standing, self.reason)

    async def create(self, id: str, spec: Spec) -> Instance:
        raise NotImplementedError

    def close(self) -> None:
        pass


async def test_one_trial_serves_all_callers_and_survives_those_that_give_up() -> None:
    probes, backend = Probes(), _Trial(Standing.WORKS)
    backend.go.clear()
    first = asyncio.ensure_future(probes.of(backend))
    await asyncio.sleep(0)
    others = [asyncio.ensure_future(probes.of(backend)) for _ in range(3)]
    elsewhere = asyncio.ensure_future(asyncio.to_thread(asyncio.run, probes.of(backend)))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    backend.go.set()
    assert all(probe.works for probe in await asyncio.gather(*others, elsewhere))
    assert (await probes.of(backend)).works and backend.tried == 1
    probes.close()


async def test_a_trial_that_failed_is_made_again_by_the_next_who_asks() -> None:
    probes, backend = Probes(), _Trial(Standing.FAILED)
    assert not (await probes.of(backend)).works
    backend.standing = Standing.WORKS
    assert (await probes.of(backend)).works and backend.tried == 2


async def test_a_machine_that_never_booted_a_guest_can_not_while_one_that_did_has_failed(
    fresh_host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package alone must not stop `auto` on a machine without hardware for it."""
    monkeypatch.setattr(MicrovmBackend, "_missing", staticmethod(lambda: None))

    async def no_boot(*_: object) -> Instance:
        raise SandboxUnavailable("no guest today")

    monkeypatch.setattr(MicrovmBackend, "create", no_boot)
    backend = fresh_host.backend("microvm")
    for _ in range(2):  # the second time by what is on record
        found = await backend.probe()
        assert found.standing is Standing.UNUSABLE and "no guest today" in found.reason
    (fresh_host.state / "microvm.booted").touch()
    assert (await backend.probe()).standing is Standing.FAILED
