"""The small parts: sizes and limits, seccomp programs, cgroups of both versions, records."""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import NotFound, SandboxUnavailable, UsageError
from holdfast.records.sandboxes import EgressRecord
from holdfast.sandbox import AllowedHost, Host, JsonLinesObserver, Network, Sandbox
from holdfast.sandbox.egress import dns, http, protocol_detection
from holdfast.sandbox.namespace import cgroups, seccomp
from holdfast.sandbox.sources import is_git
from holdfast.sandbox.spec import Limits, size


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [
        ("512mb", 512 << 20),
        ("2gb", 2 << 30),
        ("1.5 GiB", 3 << 29),
        ("64k", 65536),
        ("100", 100),
        (7, 7),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str | int, bytes_: int) -> None:
    assert size(text) == bytes_


@pytest.mark.parametrize("text", ["", "mb", "-1", "5 apples", "0", "1e9x", 0, -5])
def test_what_is_no_size_is_refused(text: str | int) -> None:
    with pytest.raises(UsageError, match="is no size"):
        size(text)


@pytest.mark.parametrize(
    "wrong",
    [{"disk": "2gb"}, {"memory": "1mb"}, {"cpus": 0}, {"pids": 1}, {"open_files": 3}],
)
def test_limits_that_make_no_sense_are_refused_before_anything_starts(wrong: dict) -> None:
    given_ = {
        "cpus": 1,
        "memory": "1gb",
        "disk": None,
        "inodes": None,
        "pids": 64,
        "open_files": 64,
    }
    with pytest.raises(UsageError):
        Limits.of(**{**given_, **wrong})


@pytest.mark.parametrize(
    "name", ["", "a b", "-x.test", "a..b", "http://a.test", "a.test/x", "x" * 300]
)
def test_what_is_no_host_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        Network(allow=[name])


def test_headers_with_line_breaks_are_refused() -> None:
    with pytest.raises(UsageError, match="no header"):
        AllowedHost("a.test", headers={"x": "a\r\nb: c"})
    with pytest.raises(UsageError, match="address:port"):
        AllowedHost("a.test", to="somewhere:80")


# --------------------------------------------------------------------------- seccomp


def judge(
    program: bytes, number: int, arguments: tuple[int, ...] = (), arch: int = 0xC000003E
) -> int:
    """Run a filter as the kernel would; returns its verdict."""
    padded = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("=iIQ6Q", number, arch, 0, *padded)
    code = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    place = value = 0
    while True:
        operation, yes, no, constant = code[place]
        place += 1
        if operation == 0x20:
            value = struct.unpack_from("=I", data, constant)[0]
        elif operation == 0x06:
            return constant
        else:
            test = {
                0x15: value == constant,
                0x25: value > constant,
                0x35: value >= constant,
                0x45: bool(value & constant),
            }[operation]
            place += yes if test else no


ALLOW, KILL = 0x7FFF0000, 0x80000000


@pytest.mark.parametrize("machine", seccomp.BY_MACHINE)
def test_the_filter_allows_what_is_listed_and_nothing_else(machine: str) -> None:
    arch, numbers = seccomp.BY_MACHINE[machine]
    program = seccomp.program(machine)
    assert len(program) // 8 <= 4096, "the kernel takes no longer one"
    special = {"clone", "clone3", "socket", "socketpair", "ioctl", "personality", "fcntl"}
    special |= {"io_setup", "prlimit64", "setpriority", "ioprio_set"}
    special |= {"sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler"}
    for name, number in numbers.items():
        if name in special:
            continue
        verdict = judge(program, number, arch=arch)
        assert verdict == (ALLOW if name in seccomp.ALLOWED else 0x50001), name
    assert judge(program, max(numbers.values()) + 1, arch=arch) == 0x50000 + 38
    assert judge(program, numbers["read"], arch=0x40000003) == KILL
    for refused in ("clone3", "io_setup"):
        assert judge(program, numbers[refused], arch=arch) == 0x50000 + 38


def test_the_filter_looks_at_arguments() -> None:
    program, n = seccomp.program("x86_64"), seccomp.X86_64
    assert judge(program, n["read"] | 0x40000000) == KILL
    assert judge(program, n["clone"], (0x1200011,)) == ALLOW
    for flag in (
        0x10000000,
        0x20000,
        0x40000000,
        0x20000000,
        0x8000000,
        0x4000000,
        0x2000000,
        0x80,
    ):
        assert judge(program, n["clone"], (flag | 17,)) == 0x50001
    for family, verdict in (
        (1, ALLOW),
        (2, ALLOW),
        (10, ALLOW),
        (17, 0x50061),
        (38, 0x50061),
        (40, 0x50061),
    ):
        assert judge(program, n["socket"], (family, 1, 0)) == verdict
    assert judge(program, n["socket"], (16, 3, 0)) == ALLOW
    assert judge(program, n["socket"], (16, 3, 9)) == 0x50061
    assert judge(program, n["ioctl"], (0, 0x5401)) == ALLOW
    assert judge(program, n["ioctl"], (0, 0x5412)) == 0x50001
    assert judge(program, n["ioctl"], (0, 0xFFFFFFFF00005412)) == 0x50001
    for target, verdict in ((0, ALLOW), (1, 0x50001), (2, ALLOW), (1 << 32 | 1, 0x50001)):
        assert judge(program, n["prlimit64"], (target, 7)) == verdict
        assert judge(program, n["sched_setscheduler"], (target, 0)) == verdict
        assert judge(program, n["setpriority"], (0, target)) == verdict
        assert judge(program, n["setpriority"], (2, target)) == 0x50001
        assert judge(program, n["ioprio_set"], (3, target)) == 0x50001
    assert judge(program, n["fcntl"], (3, 3)) == ALLOW
    assert judge(program, n["fcntl"], (3, 1024)) == 0x50001
    stricter = seccomp.program("x86_64", without=frozenset({"memfd_create"}))
    assert (
        judge(stricter, n["memfd_create"]) == 0x50001 and judge(program, n["memfd_create"]) == ALLOW
    )


# --------------------------------------------------------------------------- cgroups


def _tree(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_cgroups_of_version_2_are_made_beside_our_own_with_limits_handed_down(
    tmp_path: Path,
) -> None:
    _tree(
        tmp_path,
        {
            "cg/system.slice/cgroup.subtree_control": "cpu memory pids",
            "cg/cgroup.subtree_control": "",
            "cg/system.slice/holdfast-x/cgroup.subtree_control": "",
            "cg/system.slice/holdfast-x/sbx_1/memory.swap.max": "max",
            "mountinfo": f"30 1 0:1 / {tmp_path}/cg rw - cgroup2 cgroup2 rw\n",
            "own": "0::/system.slice/app.service\n",
        },
    )
    found = cgroups.find(
        "holdfast-x", mountinfo=str(tmp_path / "mountinfo"), own=str(tmp_path / "own")
    )
    parent = tmp_path / "cg/system.slice/holdfast-x"
    assert found.version == 2 and found.roots == [str(parent)] and not found.missing
    assert (parent / "cgroup.subtree_control").read_text() == "+memory +pids +cpu"
    group = found.make("sbx_1", Limits(cpus=0.5, memory=64 << 20, pids=10))
    inside = parent / "sbx_1"
    assert (inside / "memory.max").read_text() == str(64 << 20)
    assert (inside / "memory.swap.max").read_text() == "0"
    assert (inside / "pids.max").read_text() == "13" and (  # and our three
        inside / "cpu.max"
    ).read_text() == "50000 100000"
    (inside / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
    (inside / "pids.events").write_text("max 5\n")
    assert (group.usage().memory_kills, group.usage().process_refusals) == (2, 5)


def test_where_version_2_gives_nothing_the_reason_is_told(tmp_path: Path) -> None:
    _tree(
        tmp_path,
        {
            "mountinfo": f"30 1 0:1 / {tmp_path}/none rw - cgroup2 cgroup2 rw\n",
            "own": "0::/user.slice/me\n",
        },
    )
    found = cgroups.find("x", mountinfo=str(tmp_path / "mountinfo"), own=str(tmp_path / "own"))
    assert found.parents == {} and set(found.missing) == {"memory", "pids", "cpu"}
    assert "No such file" in found.missing["memory"]


def test_cgroups_of_version_1_are_made_below_our_own(tmp_path: Path) -> None:
    for name in ("memory/ours", "pids"):
        (tmp_path / name).mkdir(parents=True)
    _tree(
        tmp_path,
        {
            "mountinfo": f"30 1 0:1 / {tmp_path}/memory rw - cgroup cgroup rw,memory\n"
            f"31 1 0:1 / {tmp_path}/pids rw - cgroup cgroup rw,pids\n",
            "own": "4:memory:/ours\n3:pids:/\n0::/\n",
        },
    )
    found = cgroups.find("x", mountinfo=str(tmp_path / "mountinfo"), own=str(tmp_path / "own"))
    assert found.parents == {"memory": f"{tmp_path}/memory/ours/x", "pids": f"{tmp_path}/pids/x"}
    assert found.missing == {"cpu": "the controller is not mounted"}
    found.make("sbx_1", Limits(memory=64 << 20))
    assert (tmp_path / "memory/ours/x/sbx_1/memory.limit_in_bytes").read_text() == str(64 << 20)


# ------------------------------------------------------------------- names, TLS, requests


@given(st.binary(max_size=600))
def test_any_bytes_are_a_question_or_none(data: bytes) -> None:
    question = dns.parse_question(data)
    if question is not None:
        assert dns.answer(question, dns.REFUSED)[2:4]


@given(st.binary(max_size=400))
def test_any_bytes_are_a_client_hello_or_not(data: bytes) -> None:
    try:
        protocol_detection.parse_hello(b"\x16\x03\x01" + data)
    except (protocol_detection.Incomplete, protocol_detection.Malformed):
        pass


@given(st.binary(max_size=400))
def test_any_bytes_are_a_request_or_refused(data: bytes) -> None:
    try:
        head = http.prepare(data, "a.test", 80, {"x-key": "k"})
    except http.Refused:
        return
    assert head.data.count(b"x-key: k") == 1


@pytest.mark.parametrize(
    ("source", "git"),
    [
        ("https://x.test/a.git", True),
        ("git@x.test:a/b.git", True),
        ("ssh://x/y", True),
        ("/tmp", False),
        ("file:///tmp/x", True),
        ("./here", False),
        ("repo.git#main", True),
        ("snap_1", False),
    ],
)
def test_a_repository_is_told_from_a_folder(source: str, git: bool) -> None:
    assert is_git(source) is git


# ------------------------------------------------------------------------ host, records


def test_records_are_written_a_line_each(tmp_path: Path) -> None:
    observer = JsonLinesObserver(tmp_path / "log")
    now = datetime.now(UTC)
    observer.egress(EgressRecord("sbx_1", now, "a.test", 443, False, "not on the list"))
    observer.close()
    line = json.loads((tmp_path / "log").read_text())
    assert line["event"] == "egress" and line["host"] == "a.test" and line["at"] == now.isoformat()


async def test_a_weaker_backend_than_asked_is_refused(tmp_path: Path) -> None:
    host = Host(tmp_path, pool=0)
    try:
        with pytest.raises(SandboxUnavailable, match="weaker than"):
            await Sandbox.create(backend="namespace", min_isolation="gvisor", host=host)
        with pytest.raises(SandboxUnavailable, match="at least microvm"):
            await Sandbox.create(min_isolation="microvm", host=host)
        with pytest.raises(UsageError, match="no backend"):
            await Sandbox.create(backend="docker", host=host)  # type: ignore[arg-type]
        with pytest.raises(NotFound):
            await Sandbox.get("sbx_none", host=host)
        with pytest.raises(NotFound, match="no snapshot"):
            await Sandbox.create(source="snap_none", backend="namespace", host=host)
    finally:
        host.close()
    assert not list(tmp_path.glob("hosts/*"))
