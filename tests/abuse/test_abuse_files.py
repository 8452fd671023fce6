"""Tricks with files that are read back, copied in or kept: nothing of the host's is touched."""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import subprocess
from pathlib import Path

import pytest

from holdfast.errors import Refused, SandboxError, SandboxFileError
from holdfast.sandbox.snapshots import get_snapshot, keep
from holdfast.sandbox.spec import Limits
from sandbox.support import create, shared_host


@pytest.fixture
def secret(tmp_path: Path) -> tuple[Path, str]:
    token = secrets.token_hex(16)
    path = tmp_path / "secret"
    path.write_text(token)
    assert token in path.read_text()
    return path, token


LINKS = {
    "a link to the file": "ln -s {path} out",
    "a link to its folder": "ln -s {folder} d; ln -s d/secret out",
    "a link through proc": "ln -s /proc/self/root{path} out",
    "a link through the agent's root": "ln -s /proc/1/root{path} out",
    "a link to the agent's descriptors": "ln -s /proc/1/fd/3 out",
    "a loop": "ln -s out out",
}


@pytest.mark.parametrize("trick", LINKS, ids=lambda name: name.replace(" ", "-"))
async def test_reading_back_a_link_reads_the_sandbox(
    trick: str, backend: str, secret: tuple[Path, str], tmp_path: Path
) -> None:
    path, token = secret
    line = LINKS[trick].format(path=path, folder=path.parent)
    if str(path.parent) in line and "/proc/1/" not in line:
        # Whoever follows it on the host reads the secret.
        outside = tmp_path / "outside"
        outside.mkdir()
        subprocess.run(["sh", "-c", line], cwd=outside, check=True)
        assert (outside / "out").read_text() == token, "void: it leads nowhere"
    async with await create(backend) as sandbox:
        assert (await sandbox.shell(line)).ok
        try:
            data = await sandbox.read_file("out", limit=10_000)
        except SandboxFileError:
            data = b""
    assert token.encode() not in data


async def test_writing_over_a_link_replaces_the_link(backend: str) -> None:
    async with await create(backend) as sandbox:
        await sandbox.shell("echo kept > target; ln -s target link")
        await sandbox.write_files({"link": "new"})
        assert await sandbox.read_text("target") == "kept\n"
        assert await sandbox.read_text("link") == "new"


@pytest.mark.parametrize("path", ["/dev/zero", "fifo", "/proc/kmsg", "/dev/stdin", "sock"])
async def test_what_is_no_file_is_refused_at_once(path: str, backend: str) -> None:
    make = "mkfifo fifo; python -c \"import socket; socket.socket(1).bind('sock')\""
    async with await create(backend) as sandbox:
        await sandbox.shell(make)
        if path in ("/dev/zero", "fifo"):
            plain = await sandbox.shell(f"timeout 0.5 cat {path} >/dev/null")
            assert plain.exit_code == 124, "void: reading it plainly ends by itself"
        async with asyncio.timeout(15):
            try:
                assert await sandbox.read_file(path, limit=1000) == b""
            except SandboxFileError as refused:
                assert refused.errno


async def test_a_file_that_grows_while_it_is_read_is_cut_off(backend: str) -> None:
    async with await create(backend) as sandbox:
        await sandbox.start("sh", "-c", "while :; do head -c 100000 /dev/zero >> f; done")
        for _ in range(5):
            try:
                assert len(await sandbox.read_file("f", limit=300_000)) <= 300_000
            except SandboxFileError as refused:
                assert refused.errno in (errno.EFBIG, errno.ENOENT)


async def test_strange_names_come_back_as_they_are(backend: str) -> None:
    names = ["a\nb", "\x1b[31mred", "-rf", " ", "ü", "…" * 80, "\udcff\udcfe", "..."]
    code = "import os, sys\nfor n in sys.argv[1:]: open(n, 'w').close()"
    async with await create(backend) as sandbox:
        assert (await sandbox.run("python", "-c", code, *names)).ok
        found = sorted(f.path for f in await sandbox.list_files())
    assert found == sorted(names)


async def test_a_very_deep_folder_can_be_removed_with_its_sandbox(backend: str) -> None:
    code = "import os\nfor i in range(3000):\n os.mkdir('d'); os.chdir('d')"
    async with await create(backend) as sandbox:
        assert (await sandbox.run("python", "-c", code)).ok
        with pytest.raises(SandboxFileError):
            await sandbox.list_files(recursive=True)
        assert (await sandbox.run("echo", "alive")).stdout == "alive\n"


async def test_more_entries_than_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "for i in range(3001): open(f'{i}' * 20, 'w').close()"
    async with await create() as sandbox:
        assert (await sandbox.run("python", "-c", code)).ok
        assert len(await sandbox.list_files()) == 3001
        monkeypatch.setattr("holdfast.sandbox.files._MOST_ENTRIES", 3000)
        with pytest.raises(SandboxFileError, match="more than 3000 entries"):
            await sandbox.list_files()


# ------------------------------------------------------------------------ sources (zip slip)


async def test_a_source_whose_link_leads_out_does_not_copy_what_it_leads_to(
    tmp_path: Path, secret: tuple[Path, str], backend: str
) -> None:
    path, token = secret
    source = tmp_path / "source"
    (source / "real").mkdir(parents=True)
    (source / "folder").symlink_to(path.parent)
    (source / "file").symlink_to(path)
    for followed in ("file", "folder/secret"):
        assert (source / followed).read_text() == token, "void: they lead nowhere"
    async with await create(backend, source=source) as sandbox:
        everything = await sandbox.shell("cat file folder/secret; grep -r . . 2>&1")
    assert token not in everything.stdout


@pytest.mark.parametrize(
    "name", ["../evil", "/tmp/evil", "a/../../evil", "..", "link/evil", "a\0b", "a/./../../evil"]
)
async def test_a_name_that_leaves_its_folder_is_refused(
    name: str, backend: str, tmp_path: Path
) -> None:
    if "\0" not in name:  # joined without a thought, it does leave
        box = tmp_path / "box"
        (box / "a").mkdir(parents=True)
        (box / "link").symlink_to(tmp_path)
        joined = os.path.realpath(os.path.join(box, name))
        assert not joined.startswith(f"{box}/"), "void: it stays inside by itself"
    async with await create(backend) as sandbox:
        await sandbox.shell("mkdir box; ln -s /tmp box/link")
        entries = [{"path": name, "type": "file", "mode": 0o644, "size": 1}]
        with pytest.raises(SandboxFileError):
            await sandbox.channel.request("unpack", b"x", path="/workspace/box", entries=entries)
        good = [{"path": "a/good", "type": "file", "mode": 0o644, "size": 1}]
        await sandbox.channel.request("unpack", b"x", path="/workspace/box", entries=good)
        assert await sandbox.read_text("box/a/good") == "x"
        left = await sandbox.shell("ls /tmp/evil evil ../evil 2>/dev/null")
    assert left.stdout == ""


async def test_special_files_in_a_source_are_left_out(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    os.mkfifo(source / "pipe")
    (source / "plain").write_text("x")
    async with await create(source=source) as sandbox:
        assert [f.path for f in await sandbox.list_files()] == ["plain"]


# ------------------------------------------------------------------------------- snapshots


async def test_a_snapshot_of_hostile_files_stays_small_and_inside(
    backend: str,
    secret: tuple[Path, str],
) -> None:
    path, token = secret
    # gVisor can't tell where a file's holes are: they are read, which takes a while.
    sparse = "200G" if backend == "namespace" else "4G"
    hostile = f"""
    truncate -s {sparse} sparse
    head -c 1000000 /dev/urandom > one; i=0; while [ $i -lt 500 ]; do ln one l$i; i=$((i+1)); done
    ln -s {path} link; ln -s {path.parent} folder; mkfifo pipe
    chmod 4777 one; mkdir locked; echo x > locked/in; chmod 000 locked/in
    """
    host = shared_host()
    async with await create(backend) as sandbox:
        assert (await sandbox.shell(hostile)).ok
        snapshot = await sandbox.snapshot()
    try:
        assert snapshot.size < 3_000_000
        layer = snapshot.folder / "layer/workspace"
        used = sum(f.lstat().st_blocks * 512 for f in layer.iterdir() if f.name != "folder")
        assert used < 3_000_000 * 501
        assert (layer / "l3").stat().st_ino == (layer / "one").stat().st_ino
        assert (layer / "link").is_symlink() and not (layer / "one").stat().st_mode & 0o4000
        assert not (layer / "pipe").exists()
        async with await create(backend, source=snapshot.id) as again:
            seen = await again.shell("stat -c %s sparse; cat link folder/secret; ls l1 l499")
        assert seen.stdout.splitlines() == [str(int(sparse[:-1]) << 30), "l1", "l499"]
        assert token not in seen.stdout
    finally:
        get_snapshot(host.state, snapshot.id).delete()


async def test_what_was_removed_stays_removed_in_what_starts_from_it(backend: str) -> None:
    async with await create(backend) as first:
        await first.shell("mkdir d; echo 1 > d/a; echo 2 > b")
        one = await first.snapshot()
        assert (await first.run("echo", "on")).stdout == "on\n"
    async with await create(backend, source=one) as second:
        await second.shell("rm b; rm -r d; mkdir d; echo 3 > d/c")
        two = await second.snapshot()
    try:
        async with await create(backend, source=two) as third:
            assert (await third.shell("ls -R . ; cat d/c")).stdout.split() == [
                ".:",
                "d",
                "./d:",
                "c",
                "3",
            ]
        if backend == "namespace":  # where a snapshot is what differs from the one below
            with pytest.raises(Refused, match="builds on"):
                one.delete()
    finally:
        two.delete()
        one.delete()


@pytest.mark.parametrize("depth", [300, 1500])
async def test_a_tree_too_deep_to_keep_is_refused_and_leaves_nothing(
    backend: str, depth: int
) -> None:
    host = shared_host()
    code = f"import os\nfor i in range({depth}):\n os.mkdir('d'); os.chdir('d')"
    async with await create(backend) as sandbox:
        await sandbox.run("python", "-c", code)
        before = sorted(os.listdir(host.state / "snapshots"))
        with pytest.raises(SandboxError, match=r"deep|long"):
            await sandbox.snapshot()
        assert sorted(os.listdir(host.state / "snapshots")) == before
        assert (await sandbox.run("echo", "on")).stdout == "on\n"


def test_a_layer_is_copied_without_following_links(
    tmp_path: Path, secret: tuple[Path, str]
) -> None:
    path, _ = secret
    upper = tmp_path / "upper"
    (upper / "workspace").mkdir(parents=True)
    (upper / "workspace/out").symlink_to(path)
    fd = os.open(upper, os.O_RDONLY)
    try:
        kept = keep(tmp_path, fd, (), "sbx_x", None, Limits())
    finally:
        os.close(fd)
    assert (kept.folder / "layer/workspace/out").is_symlink()
    assert kept.size == 0
