"""A program runs in a sandbox as it does outside: its own modules, its files as they are."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from holdfast.errors import UsageError
from holdfast.sandbox import Host, Sandbox
from holdfast.sandbox.host import Turns
from sandbox.support import create, require
from waiting import LIMIT

WRONG = {"statistics.py": "def mean(values):\n    return 'own'\n"}


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({**WRONG, "main.py": "import statistics; print(statistics.mean([1]))"}, ["main.py"]),
        ({**WRONG, "main.py": "import statistics; print(statistics.mean([1]))"}, ["-m", "main"]),
        (WRONG, ["-c", "import statistics; print(statistics.mean([1]))"]),
        (
            {"src/statistics.py": WRONG["statistics.py"]},
            ["-c", "import sys; sys.path[:0] = ['src']; import statistics as s; print(s.mean(1))"],
        ),
        (
            {"json/__init__.py": "dumps = lambda value: 'own'"},
            ["-c", "import json; print(json.dumps(1))"],
        ),
    ],
    ids=["file", "module", "code", "a folder below", "package"],
)
async def test_a_program_s_own_module_wins_over_one_that_was_loaded_ahead(
    backend: str, files: dict[str, str], words: list[str]
) -> None:
    async with await create(backend) as sandbox:
        await sandbox.write_files(files)
        result = await sandbox.run("python", *words)
        assert result.stdout == "own\n", result.stderr


async def test_a_test_of_a_module_named_like_one_of_the_library_tests_that_module(
    backend: str,
) -> None:
    tests = "from statistics import mean\n\ndef test_mean():\n    assert mean([1, 3]) == 2\n"
    async with await create(backend) as sandbox:
        await sandbox.write_files({**WRONG, "test_statistics.py": tests})
        assert (await sandbox.run("python", "-m", "pytest", "-q")).exit_code == 1
        await sandbox.remove("statistics.py")
        assert (await sandbox.run("python", "-m", "pytest", "-q")).exit_code == 0


async def test_large_read_only_files_come_in_with_a_source(backend: str, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(os.urandom(1 << 20))
    (tmp_path / "large").chmod(0o444)
    git = ("git", "-c", "user.name=t", "-c", "user.email=t@t")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "1"), ("gc", "-q")):
        subprocess.run([*git, *words], cwd=tmp_path, check=True, capture_output=True)
    async with await create(backend, source=str(tmp_path)) as sandbox:
        entries = {entry.path: entry for entry in await sandbox.list_files(recursive=True)}
        assert (entries["large"].size, entries["large"].mode & 0o777) == (1 << 20, 0o444)
        assert any(name.endswith(".pack") for name in entries)
        assert await sandbox.read_file("large") == (tmp_path / "large").read_bytes()


async def test_a_large_file_can_be_written_read_only(backend: str) -> None:
    content = os.urandom(1 << 20)
    async with await create(backend) as sandbox:
        await sandbox.write_files({"large": content}, mode=0o444)
        assert await sandbox.read_file("large") == content
        assert (await sandbox.list_files())[0].mode & 0o777 == 0o444


async def test_more_sandboxes_than_are_allowed_wait_for_their_turn(tmp_path: Path) -> None:
    require("namespace")
    host = Host(tmp_path, pool=0, max_sandboxes=2)
    order: list[int] = []

    async def one(number: int) -> None:
        async with await Sandbox.create(backend="namespace", host=host):
            order.append(number)
            assert len(host.sandboxes) <= 2

    try:
        first = [await Sandbox.create(backend="namespace", host=host) for _ in range(2)]
        rest = [asyncio.create_task(one(number)) for number in range(4)]
        while host.waiting < 4:
            await asyncio.sleep(0.01)
        rest[1].cancel()
        await asyncio.wait([rest[1]])
        assert not order
        await asyncio.gather(*(each.stop() for each in first))
        await asyncio.gather(rest[0], rest[2], rest[3])
        assert sorted(order) == [0, 2, 3] and host.waiting == 0
    finally:
        await host.aclose()
    with pytest.raises(UsageError):
        Host(tmp_path, max_sandboxes=0)


async def test_turns_are_taken_in_the_order_of_asking() -> None:
    turns, order = Turns(1), list[int]()

    async def one(number: int) -> None:
        await turns.take()
        order.append(number)
        await asyncio.sleep(0)
        turns.give_back()

    tasks = [asyncio.create_task(one(number)) for number in range(5)]
    await asyncio.sleep(0)
    tasks[2].cancel()
    await asyncio.wait(tasks)
    assert order == [0, 1, 3, 4]
    await asyncio.wait_for(turns.take(), LIMIT)
    assert turns.full and turns.waiting == 0
