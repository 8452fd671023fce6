"""Watching folders, and files of any size: what every backend must do."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable

import pytest

from holdfast.errors import SandboxFileError
from holdfast.sandbox import Change, Host, Sandbox, Watch
from sandbox import support
from sandbox.fixtures import backend, sandbox_state
from sandbox.support import shared_host
from waiting import LIMIT

__all__ = ["backend", "sandbox_state"]


async def create(backend: str, **options: object) -> Sandbox:
    return await support.create(backend, timeout=LIMIT, **options)


async def told(watch: Watch, until: Callable[[list[Change]], bool]) -> list[Change]:
    seen: list[Change] = []
    async with asyncio.timeout(LIMIT):
        while not until(seen):
            seen.append(await anext(watch))
    return seen


def ends_with(change: Change) -> Callable[[list[Change]], bool]:
    return lambda seen: bool(seen) and seen[-1] == change


# ------------------------------------------------------------------------------ watching


async def test_what_changes_in_a_folder_is_told_as_it_happens(backend: str) -> None:
    async with await create(backend) as sandbox:
        await sandbox.write_files({"kept/old.txt": "x"})
        async with await sandbox.watch() as watch:
            await sandbox.shell("echo a > new.txt")
            seen = await told(watch, ends_with(Change("modified", "new.txt")))
            assert seen[0] == Change("created", "new.txt")
            await sandbox.shell("mv new.txt kept/moved.txt")
            await told(watch, ends_with(Change("renamed", "new.txt", "kept/moved.txt")))
            await sandbox.shell("chmod 600 kept/old.txt; rm kept/old.txt")
            seen = await told(watch, ends_with(Change("removed", "kept/old.txt")))
            assert Change("attributes", "kept/old.txt") in seen
            await sandbox.shell("mkdir -p a/b/c && echo x > a/b/c/deep.txt")
            seen = await told(
                watch, lambda seen: any(each.path == "a/b/c/deep.txt" for each in seen)
            )
            assert Change("created", "a") in seen
            await sandbox.shell("mv a z && echo y > z/b/c/later.txt")
            await told(watch, lambda seen: any(e.path == "z/b/c/later.txt" for e in seen))


async def test_a_watch_of_one_folder_alone_is_told_nothing_of_those_below(backend: str) -> None:
    async with await create(backend) as sandbox:
        await sandbox.mkdir("below")
        async with await sandbox.watch(".", recursive=False) as watch:
            await sandbox.shell("echo x > below/unseen; echo x > seen")
            seen = await told(watch, ends_with(Change("modified", "seen")))
            assert {each.path for each in seen} == {"seen"}


async def test_a_watcher_who_is_slow_is_told_less_often_and_of_what_was_lost(backend: str) -> None:
    async with await create(backend) as sandbox:
        watch = await sandbox.watch()
        line = "i=0; while [ $i -lt 3000 ]; do echo x >> log; i=$((i+1)); done; echo end > end"
        assert (await sandbox.shell(line)).ok
        seen = await told(watch, lambda seen: any(each.path == "end" for each in seen))
        assert len(seen) < 100  # the same change is not told twice before it was taken
        code = "for i in range(9000): open(f'f{i}', 'w').close()"
        assert (await sandbox.run("python", "-c", code)).ok
        seen = await told(watch, lambda seen: any(each.type == "lost" for each in seen))
        assert len(seen) <= 3 * 9000
        watch.close()
        with pytest.raises(StopAsyncIteration):
            while True:
                await anext(watch)


async def test_a_watch_ends_with_its_sandbox_and_what_can_not_be_watched_is_refused(
    backend: str,
) -> None:
    async with await create(backend) as sandbox:
        with pytest.raises(SandboxFileError, match="nowhere"):
            await sandbox.watch("nowhere")
        await sandbox.write_files({"file": "x"})
        with pytest.raises(SandboxFileError, match="file"):
            await sandbox.watch("file")
        watches = [await sandbox.watch() for _ in range(16)]
        with pytest.raises(SandboxFileError, match="16"):
            await sandbox.watch()
        for each in watches:
            each.close()
        last = await sandbox.watch()
    assert [change async for change in last] == []


async def test_a_folder_is_watched_from_another_process(backend: str) -> None:
    async with await create(backend) as sandbox:
        host = Host(shared_host().state, pool=0)
        try:
            handle = await Sandbox.get(sandbox.id, host=host)
            async with await handle.watch() as watch:
                await sandbox.write_files({"a.txt": "x"})
                await told(watch, ends_with(Change("modified", "a.txt")))
                await sandbox.remove("a.txt")
                await told(watch, ends_with(Change("removed", "a.txt")))
            handle.release()
        finally:
            await host.aclose()


# ----------------------------------------------------------------- files of any size


async def test_a_file_larger_than_can_be_read_at_once_streams_in_and_out(backend: str) -> None:
    """More than the 64 MB that `read_file` takes, and more than half of what the host holds."""
    piece, count = bytes(range(256)) * 4096, 66  # 66 MB

    async def pieces() -> AsyncIterator[bytes]:
        for number in range(count):
            yield bytes([number]) + piece

    expected = hashlib.sha256(b"".join([bytes([n]) + piece for n in range(count)])).hexdigest()
    async with await create(backend, memory="512mb", disk="200mb") as sandbox:
        assert await sandbox.write_stream("deep/big", pieces()) == count * (len(piece) + 1)
        told = await sandbox.run("sha256sum", "deep/big")
        assert told.stdout.split()[0] == expected
        assert [f.path for f in await sandbox.list_files("deep")] == ["big"]
        with pytest.raises(SandboxFileError):
            await sandbox.read_file("deep/big")
        digest = hashlib.sha256()
        async for part in sandbox.read_stream("deep/big"):
            assert len(part) <= 512 * 1024
            digest.update(part)
        assert digest.hexdigest() == expected


async def test_a_stream_that_breaks_off_leaves_the_file_as_it_was(backend: str) -> None:
    def broken() -> object:
        yield b"half"
        raise LookupError("the source failed")

    async with await create(backend) as sandbox:
        await sandbox.write_files({"a": "before"})
        with pytest.raises(LookupError):
            await sandbox.write_stream("a", broken())
        assert await sandbox.read_text("a") == "before"
        assert [f.path for f in await sandbox.list_files()] == ["a"]
        assert await sandbox.write_stream("a", [b"", b"after"], mode=0o444) == 5
        assert await sandbox.read_text("a") == "after"
        assert (await sandbox.stat("a")).mode == 0o444


async def test_a_file_that_is_replaced_while_it_is_read_is_said_to_be(backend: str) -> None:
    async with await create(backend) as sandbox:
        await sandbox.write_files({"a": b"x" * 2_000_000})
        with pytest.raises(SandboxFileError, match="replaced"):
            async for _ in sandbox.read_stream("a"):
                await sandbox.shell("head -c 2000000 /dev/zero > b && mv b a")
        with pytest.raises(SandboxFileError, match="nope"):
            async for _ in sandbox.read_stream("nope"):
                pass
