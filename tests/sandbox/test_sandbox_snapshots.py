"""What an agent tells for a snapshot is written down, unless it tries to lead elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.errors import SandboxError
from holdfast.sandbox.inside import frames
from holdfast.sandbox.snapshots import Unpacker

Told = tuple[dict[str, object], bytes]


def entry(kind: str, name: str, **more: object) -> Told:
    return {"t": kind, "name": name, "mode": 0o755, "modified": 10**18, **more}, b""


def data(at: int, content: bytes) -> Told:
    return {"t": "data", "at": at}, content


ROOT = entry("dir", "workspace")


def unpack(layer: Path, *told: Told, most_bytes: int = 1000, most_entries: int = 20) -> int:
    layer.mkdir()
    unpacker = Unpacker(layer, owner=os.geteuid(), most_bytes=most_bytes, most_entries=most_entries)
    stream = b"".join(frames.encode(header, payload) for header, payload in told)
    try:
        for start in range(0, len(stream), 7):  # however it is cut
            unpacker.take(stream[start : start + 7])
        return unpacker.finish()
    finally:
        unpacker.close()


def test_what_is_told_is_written_down(tmp_path: Path) -> None:
    size = unpack(
        tmp_path / "layer",
        ROOT,
        entry("dir", "workspace/d", mode=0o500),
        entry("file", "workspace/d/f", size=20, mode=0o4640),
        data(15, b"hello"),
        entry("same", "workspace/again", first="workspace/d/f"),
        entry("link", "workspace/out", to="/etc/passwd"),
        entry("dir", "home/user"),
        entry("dir", "tmp"),
    )
    layer = tmp_path / "layer/workspace"
    assert size == 5
    assert (layer / "again").read_bytes() == bytes(15) + b"hello"
    assert (layer / "again").stat().st_ino == (layer / "d/f").stat().st_ino
    assert os.readlink(layer / "out") == "/etc/passwd"
    assert (layer / "d/f").stat().st_mode & 0o7777 == 0o640  # no set-uid bit gets out
    assert (layer / "d").stat().st_mode & 0o7777 == 0o500
    assert (layer / "d/f").stat().st_mtime_ns == 10**18


LINK = entry("link", "workspace/l", to="..")
FILE = entry("file", "workspace/f", size=3)

LIES: dict[str, list[Told]] = {
    "an absolute name": [ROOT, entry("file", "/etc/x", size=0)],
    "a root of its own": [entry("dir", "etc")],
    "a way up": [ROOT, entry("file", "workspace/../../x", size=0)],
    "a name that is a way up": [ROOT, entry("dir", "workspace/..")],
    "a name that is nothing": [ROOT, entry("file", "workspace/", size=0)],
    "a zero in a name": [ROOT, entry("file", "workspace/a\0b", size=0)],
    "a way through a link": [ROOT, LINK, entry("file", "workspace/l/x", size=0)],
    "a folder where a link is": [ROOT, LINK, entry("dir", "workspace/l")],
    "a file where a link is": [ROOT, LINK, entry("file", "workspace/l", size=0)],
    "a folder twice": [ROOT, ROOT],
    "a link to what was not told": [ROOT, entry("same", "workspace/x", first="../../secret")],
    "a hard link to a link": [ROOT, LINK, entry("same", "workspace/x", first="workspace/l")],
    "data of no file": [ROOT, data(0, b"x")],
    "data beyond its file": [ROOT, FILE, data(2, b"xx")],
    "data before its file": [ROOT, FILE, data(-1, b"x")],
    "data after a folder": [ROOT, FILE, entry("dir", "workspace/d"), data(0, b"x")],
    "another kind": [ROOT, entry("device", "workspace/x")],
    "a size that is none": [ROOT, entry("file", "workspace/x", size="big")],
    "a size below zero": [ROOT, entry("file", "workspace/x", size=-1)],
    "a size beyond any disk": [ROOT, entry("file", "workspace/x", size=1 << 62)],
    "too much data": [ROOT, *[told for n in range(3) for told in (
        entry("file", f"workspace/{n}", size=500), data(0, b"x" * 500))]],
    "too many entries": [ROOT, *[entry("dir", f"workspace/{n}") for n in range(30)]],
    "no name": [({"t": "dir"}, b"")],
    "too deep": [ROOT, *[entry("dir", "workspace" + "/d" * n) for n in range(1, 140)]],
}  # fmt: skip


@pytest.mark.parametrize("told", LIES.values(), ids=LIES)
def test_a_lie_ends_it_and_nothing_is_written_elsewhere(tmp_path: Path, told: list[Told]) -> None:
    (tmp_path / "secret").write_text("host")
    entries = 1000 if len(told) > 100 else 20
    with pytest.raises(SandboxError):
        unpack(tmp_path / "layer", *told, most_entries=entries)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["layer", "secret"]
    assert (tmp_path / "secret").stat().st_nlink == 1
    inside = [p for p in (tmp_path / "layer").iterdir() if p.name not in ("workspace", "home")]
    assert inside == []


def test_noise_is_refused(tmp_path: Path) -> None:
    (tmp_path / "layer").mkdir()
    unpacker = Unpacker(tmp_path / "layer", owner=0, most_bytes=10, most_entries=10)
    with pytest.raises(SandboxError):
        unpacker.take(b"\xff" * 64)
