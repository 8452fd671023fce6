"""The namespace backend as an ordinary user: no root, no cgroups, the same promises."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from waiting import LIMIT

NOBODY = pwd.getpwnam("nobody")
SOURCE = Path(__file__).parents[2] / "src"

PROGRAM = """
import asyncio, json, os, sys
from holdfast.sandbox import Ended, Host, Sandbox
async def main():
    host = Host(sys.argv[1], pool=0)
    found = await host.probe("namespace")
    out = {"works": found.probe.works, "reason": found.probe.reason, "warnings": found.probe.warnings}
    if found.probe.works:
        options = dict(backend="namespace", host=host, memory="128mb", pids=30, disk="20mb")
        async with await Sandbox.create(**options) as box:
            await box.write_files({"main.py": "print(6 * 7)"})
            out["ran"] = (await box.run("python", "main.py")).stdout
            out["id"] = (await box.run("id", "-u")).stdout
            out["who"] = (await box.shell("cat /proc/self/uid_map /proc/self/status")).stdout
            out["secret"] = (await box.shell("cat " + sys.argv[2])).exit_code
            out["memory"] = (await box.run("python", "-c", "import mmap; m = mmap.mmap(-1, 10**9)\\n"
                             "for i in range(0, 10**9, 4096): m[i] = 1", timeout=20)).ended
            out["forks"] = (await box.run("python", "-c", "import os, time\\nfor i in range(100):\\n"
                            " if os.fork() == 0: time.sleep(9); os._exit(0)", timeout=9)).exit_code
        async with await Sandbox.create(**options) as box:
            out["disk"] = (await box.shell("head -c 50m /dev/zero > f")).exit_code
            out["net"] = (await box.shell("curl -sS -m 3 http://127.0.0.1:1/")).exit_code
            await box.remove("f")
            await box.write_files({"kept": "x"})
            snapshot = await box.snapshot()
        async with await Sandbox.create(source=snapshot, **options) as box:
            out["kept"] = await box.read_text("kept")
        snapshot.delete()
    await host.aclose()
    out["left"] = os.listdir(sys.argv[1] + "/hosts")
    print(json.dumps(out))
asyncio.run(main())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="the whole suite runs unprivileged already")
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not here to drop root with")
def test_everything_holds_for_an_ordinary_user() -> None:
    import json

    python = "/usr/bin/python3"
    version = subprocess.run(
        [python, "-c", "import sys; print(sys.version_info >= (3, 11))"],
        capture_output=True,
        text=True,
    )
    if version.stdout.strip() != "True":
        pytest.skip("the system's python is too old, and root's own can't be reached by others")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        state = Path(folder, "state")
        state.mkdir()
        os.chown(state, NOBODY.pw_uid, NOBODY.pw_gid)
        secret = Path(folder, "secret")
        secret.write_text("x")
        secret.chmod(0o644)
        shutil.copytree(SOURCE, Path(folder, "src"), ignore=shutil.ignore_patterns("__pycache__"))
        packages = Path(sys.prefix, f"lib/python3.{sys.version_info.minor}/site-packages")
        done = subprocess.run(
            [
                "setpriv",
                f"--reuid={NOBODY.pw_uid}",
                f"--regid={NOBODY.pw_gid}",
                "--clear-groups",
                "--inh-caps=-all",
                python,
                "-c",
                PROGRAM,
                str(state),
                str(secret),
            ],
            env={"PYTHONPATH": f"{folder}/src:{packages}", "PATH": "/usr/bin:/bin", "HOME": folder},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    if not told["works"]:
        pytest.skip(f"user namespaces are not for everybody here: {told['reason']}")
    assert told["ran"] == "42\n" and told["id"] == "1000\n"
    assert (
        f"1000 {NOBODY.pw_uid:>10} " in told["who"].replace("\t", " ")
        or str(NOBODY.pw_uid) in told["who"]
    )
    assert "CapEff:\t0000000000000000" in told["who"] and "Seccomp:\t2" in told["who"]
    assert told["secret"] != 0 and told["memory"] == "out_of_memory" and told["forks"] != 0
    assert told["disk"] != 0 and told["net"] == 7 and told["kept"] == "x"
    assert any("no memory cgroup" in warning for warning in told["warnings"])
    assert told["left"] == []
