"""The system calls Python has no name for: namespaces, mounts, capabilities, seccomp.

Thin and literal: every function is one call into the kernel, and raises OSError with what it
was about to do. Standard library only, since the fork server runs on it.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct

_libc = ctypes.CDLL(None, use_errno=True)

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_SECCOMP = 22
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION_3 = 0x20080522
_LAST_CAPABILITY = 63

_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442  # the same number everywhere
_OPEN_TREE_CLONE = 1
_MOVE_MOUNT_F_EMPTY_PATH = 4
_AT_FDCWD, _AT_EMPTY_PATH = -100, 0x1000
_MOUNT_ATTR_IDMAP = 0x00100000

_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_CAPSET = {"x86_64": 126, "aarch64": 91}


def _check(result: int, doing: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{doing}: {os.strerror(number)}")
    return result


def unshare(flags: int) -> None:
    """Leave the namespaces named by `flags` for new ones."""
    _check(_libc.unshare(ctypes.c_int(flags)), f"unshare({flags:#x})")


def mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    """mount(2)."""
    result = _libc.mount(
        source.encode(),
        target.encode(),
        kind.encode() if kind is not None else None,
        ctypes.c_ulong(flags),
        data.encode() if data else None,
    )
    _check(result, f"mount {kind or 'bind'} {source} on {target}")


def bind(source: str, target: str, *, recursive: bool = False) -> None:
    """Make `source` appear at `target` too."""
    mount(source, target, None, MS_BIND | (MS_REC if recursive else 0))


def bind_read_only(source: str, target: str, *, flags: int = MS_NOSUID | MS_NODEV) -> None:
    """Make `source` appear at `target`, read-only."""
    bind(source, target)
    remount_read_only(target, flags=flags)


def remount_read_only(target: str, *, flags: int = MS_NOSUID | MS_NODEV) -> None:
    """Take the right to write from the mount at `target`.

    Flags a parent namespace has locked may not be cleared, so the mount's own are kept.
    """
    kept = 0
    current = os.statvfs(target).f_flag
    for flag in (MS_NOSUID, MS_NODEV, MS_NOEXEC):
        kept |= current & flag
    for bit, flag in ((1024, 1024), (2048, 2048), (4096, 1 << 21)):  # noatime, nodiratime, relatime
        if current & bit:
            kept |= flag
    mount("none", target, None, MS_BIND | MS_REMOUNT | MS_RDONLY | kept | flags)


def bind_mapped(source: str, target: str, users: int) -> None:
    """Make `source` appear at `target` with its owners as the user namespace `users` maps them."""
    tree = _check(
        _libc.syscall(
            ctypes.c_long(_OPEN_TREE),
            ctypes.c_int(_AT_FDCWD),
            source.encode(),
            ctypes.c_uint(_OPEN_TREE_CLONE | os.O_CLOEXEC),
        ),
        f"open_tree {source}",
    )
    try:
        attributes = struct.pack("QQQQ", _MOUNT_ATTR_IDMAP, 0, 0, users)
        result = _libc.syscall(
            ctypes.c_long(_MOUNT_SETATTR),
            ctypes.c_int(tree),
            b"",
            ctypes.c_uint(_AT_EMPTY_PATH),
            attributes,
            ctypes.c_size_t(len(attributes)),
        )
        _check(result, f"map the owners of {source}")
        result = _libc.syscall(
            ctypes.c_long(_MOVE_MOUNT),
            ctypes.c_int(tree),
            b"",
            ctypes.c_int(_AT_FDCWD),
            target.encode(),
            ctypes.c_uint(_MOVE_MOUNT_F_EMPTY_PATH),
        )
        _check(result, f"move_mount {target}")
    finally:
        os.close(tree)


def user_namespace(inside: int, outside: int) -> int:
    """A descriptor of a new user namespace that maps this one user and group. Needs root."""
    waiting, let_go = os.pipe()
    ready, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(let_go)
        try:
            unshare(CLONE_NEWUSER)
            os.write(tell, b".")
            os.read(waiting, 1)
        finally:
            os._exit(0)
    os.close(tell)
    try:
        if not os.read(ready, 1):
            raise OSError("a user namespace can't be made")
        for name in ("uid_map", "gid_map"):
            fd = os.open(f"/proc/{pid}/{name}", os.O_WRONLY)
            try:
                os.write(fd, f"{inside} {outside} 1".encode())
            finally:
                os.close(fd)
        return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        for fd in (waiting, let_go, ready):
            os.close(fd)


def umount(target: str, flags: int = MNT_DETACH) -> None:
    """umount2(2), lazily by default."""
    _check(_libc.umount2(target.encode(), ctypes.c_int(flags)), f"umount {target}")


def pivot_root(new_root: str, put_old: str) -> None:
    """Make `new_root` the root of this mount namespace."""
    number = _PIVOT_ROOT[os.uname().machine]
    result = _libc.syscall(ctypes.c_long(number), new_root.encode(), put_old.encode())
    _check(result, f"pivot_root {new_root}")


def _prctl(option: int, *values: int, doing: str) -> int:
    padded = [*values, 0, 0, 0, 0][:4]
    return _check(_libc.prctl(ctypes.c_int(option), *(ctypes.c_ulong(v) for v in padded)), doing)


def set_parent_death_signal(signal: int) -> None:
    """Have the kernel send us `signal` when the thread that forked us ends."""
    _prctl(_PR_SET_PDEATHSIG, signal, doing="prctl(PDEATHSIG)")


def set_dumpable(on: bool) -> None:
    """Let others of our uid look into this process (ptrace, /proc/<pid>/fd, mem), or not."""
    _prctl(_PR_SET_DUMPABLE, int(on), doing="prctl(DUMPABLE)")


def become_subreaper() -> None:
    """Adopt orphaned descendants."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1, doing="prctl(CHILD_SUBREAPER)")


def set_no_new_privileges() -> None:
    """From here on exec gives nobody more rights: set-uid bits are void."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1, doing="prctl(NO_NEW_PRIVS)")


def drop_all_capabilities() -> None:
    """Empty the bounding, ambient, inheritable, permitted and effective sets, for good."""
    empty_bounding_set()
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, doing="prctl(CAP_AMBIENT)")
    clear_capabilities()


def empty_bounding_set() -> None:
    """Let nothing we start ever gain a capability."""
    for capability in range(_LAST_CAPABILITY + 1):
        try:
            _prctl(_PR_CAPBSET_DROP, capability, doing="prctl(CAPBSET_DROP)")
        except OSError as error:
            if error.errno != 22:  # EINVAL: this kernel has no capability of that number
                raise
            break


def clear_capabilities() -> None:
    """Empty the inheritable, permitted and effective sets."""
    header = ctypes.create_string_buffer(struct.pack("Ii", _CAPABILITY_VERSION_3, 0))
    empty = ctypes.create_string_buffer(24)
    number = _CAPSET[os.uname().machine]
    _check(_libc.syscall(ctypes.c_long(number), header, empty), "capset")


def install_seccomp(program: bytes) -> None:
    """Install a BPF filter (8 bytes an instruction) for this process and all it starts."""
    buffer = ctypes.create_string_buffer(program, len(program))
    descriptor = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    holder = ctypes.create_string_buffer(descriptor)
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(holder), doing="prctl(SECCOMP)")


def set_hostname(name: str) -> None:
    """sethostname(2)."""
    encoded = name.encode()
    _check(_libc.sethostname(encoded, ctypes.c_size_t(len(encoded))), "sethostname")


def bring_up_loopback() -> None:
    """Switch on `lo` in this network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("16sH14x", b"lo", 1 | 64)  # IFF_UP | IFF_RUNNING
        fcntl.ioctl(probe.fileno(), 0x8914, request)  # SIOCSIFFLAGS


def claim_every_address(family: socket.AddressFamily) -> None:
    """Route every address to `lo`, so that each connection attempt is met there."""
    route = struct.pack("=BBBBBBBBI", family, 0, 0, 0, 255, 4, 254, 2, 0)
    # rtmsg: family, dst_len 0, table LOCAL(255), protocol STATIC(4), scope HOST(254), type LOCAL(2)
    interface = struct.pack("=HHI", 8, 4, socket.if_nametoindex("lo"))  # RTA_OIF
    _change(24, 0x405, route + interface, "route everything to lo")  # RTM_NEWROUTE; create, ack


def own_every_address(family: socket.AddressFamily) -> None:
    """The same for a kernel that routes by the addresses an interface has (gVisor's)."""
    any_of_them = "10.255.255.254" if family == socket.AF_INET else "fd00::1"
    address = socket.inet_pton(family, any_of_them)  # with no bit of it in the network's part
    attributes = b"".join(struct.pack("=HH", 4 + len(address), kind) + address for kind in (1, 2))
    body = struct.pack("=BBBBI", family, 0, 0, 0, socket.if_nametoindex("lo")) + attributes
    _change(20, 0x605, body, "own every address on lo")  # RTM_NEWADDR; create, ack


def _change(kind: int, flags: int, body: bytes, what: str) -> None:
    header = struct.pack("=IHHII", 16 + len(body), kind, flags, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as link:
        link.bind((0, 0))
        link.sendall(header + body)
        answer = link.recv(4096)
    error = struct.unpack_from("=i", answer, 16)[0]
    if error:
        raise OSError(-error, f"{what}: {os.strerror(-error)}")
