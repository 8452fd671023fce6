"""How a forked child of the fork server becomes a sandbox. Read it from top to bottom.

Two processes: `enter` gives up root and takes new namespaces; its child, the first of the new
pid namespace, builds the root, gives up every capability and becomes the agent. Nothing
untrusted runs before the last line. Each failure is told on the setup socket, by name.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
from dataclasses import dataclass, field
from typing import Any

from holdfast.sandbox.inside.agent import Agent
from holdfast.sandbox.namespace import linux, packet_capture
from holdfast.sandbox.namespace.view import GID, UID, own_os_folders

_MASKED = (
    "acpi cmdline config.gz interrupts kallsyms kcore key-users keys kmsg kpagecount kpageflags "
    "kpagecgroup latency_stats modules mounts-host sched_debug slabinfo sysrq-trigger timer_list "
    "timer_stats vmallocinfo"
).split()
_MOST_TERMINALS = 64  # of some 3000 that the machine has for all sandboxes together
_READ_ONLY = ("sys", "bus", "fs", "irq")


@dataclass(frozen=True, slots=True)
class Request:
    """What the host asks of the fork server, with the descriptors it hands over."""

    name: str
    disk: int
    inodes: int
    rlimits: dict[str, int]
    uid: int | None
    """Who to be outside; None to stay who we are."""
    mapped_from: int | None = None
    """Whose the files are that it starts from, where that is not who it is."""
    users: int = -1
    """The user namespace that maps them."""
    ports: list[int] = field(default_factory=list[int])
    """TCP ports to listen on for the host; with any, UDP and TCP 53 too."""
    layers: list[str] = field(default_factory=list[str])
    """Snapshots to start from, by id, topmost first."""
    affinity: int | None = None
    memory: int | None = None
    """For the agent to watch over, where no cgroup does."""
    channel: int = -1
    setup: int = -1
    cgroups: list[int] = field(default_factory=list[int])


def tell(request: Request, message: dict[str, Any], fds: list[int] | None = None) -> None:
    """Send the host one message about the set-up."""
    with socket.socket(fileno=os.dup(request.setup)) as setup:
        socket.send_fds(setup, [json.dumps(message).encode()], fds or [])


def enter(request: Request, program: bytes, pythons: frozenset[str]) -> None:
    """Become a sandbox. Does not return in the first process; raises BecomeScript in scripts."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for fd in request.cgroups:
            os.write(fd, b"0")
            os.close(fd)
        uid, gid = os.geteuid(), os.getegid()
        if request.uid is not None:
            uid = gid = request.uid
            if request.mapped_from is not None:
                _own_layers(request)
            os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            linux.set_dumpable(True)  # giving up root cleared it, and /proc/self is root's then
        linux.unshare(
            linux.CLONE_NEWUSER
            | linux.CLONE_NEWNS
            | linux.CLONE_NEWPID
            | linux.CLONE_NEWNET
            | linux.CLONE_NEWIPC
            | linux.CLONE_NEWUTS
            | linux.CLONE_NEWCGROUP
        )
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{UID} {uid} 1")
        _write("/proc/self/gid_map", f"{GID} {gid} 1")
        pid = os.fork()
        if pid:
            tell(request, {"pid": pid})
            os._exit(0)
        upper, listeners = _build(request)
        # Opened while this process is still its own to open.
        oom_score = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        _give_up_everything(request, program)
        tell(request, {"ready": True}, [upper, *listeners])
        for fd in (upper, request.setup, *listeners):
            os.close(fd)
    except OSError as error:
        tell(request, {"error": str(error), "errno": error.errno})
        os._exit(1)
    agent = Agent(
        request.channel,
        request.channel,
        pythons=pythons,
        make_ordinary=_make_ordinary,
        oom_score_fd=oom_score,
        memory_limit=request.memory,
    )
    agent.run()


def _own_layers(request: Request) -> None:
    """As root still: let the sandbox's user own the files it starts from, here and nowhere else."""
    linux.unshare(linux.CLONE_NEWNS)
    for layer in ("/skeleton", *(f"/snapshots/{id}/layer" for id in request.layers)):
        linux.bind_mapped(layer, layer, request.users)
    os.close(request.users)


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _build(request: Request) -> tuple[int, list[int]]:
    """Mount the root and move into it; returns its writable layer and the network's sockets."""
    # The mounts were made by others: nothing of ours may spread to theirs.
    linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
    options = f"size={request.disk},nr_inodes={request.inodes},mode=755"
    linux.mount("tmpfs", "/upper", "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, options)
    for name, mode in (("files", 0o755), ("work", 0o755), ("shm", 0o1777)):
        os.mkdir(f"/upper/{name}")
        os.chmod(f"/upper/{name}", mode)
    lower = ":".join([*(f"/snapshots/{id}/layer" for id in request.layers), "/skeleton"])
    linux.mount(
        "overlay",
        "/newroot",
        "overlay",
        linux.MS_NOSUID | linux.MS_NODEV,
        f"lowerdir={lower},upperdir=/upper/files,workdir=/upper/work,userxattr",
    )
    for folder in ("usr", "opt/holdfast", "dev"):
        linux.bind(f"/{folder}", f"/newroot/{folder}", recursive=True)
    for folder in ("opt/holdfast", "dev"):
        linux.remount_read_only(f"/newroot/{folder}", flags=linux.MS_NOSUID)
    for name in own_os_folders():
        linux.bind(f"/{name}", f"/newroot/{name}", recursive=True)
    linux.bind("/upper/shm", "/newroot/dev/shm")
    linux.mount(
        "devpts",
        "/newroot/dev/pts",
        "devpts",
        linux.MS_NOSUID | linux.MS_NOEXEC,
        f"newinstance,ptmxmode=0666,mode=620,max={_MOST_TERMINALS}",
    )
    _process_list()
    # Kept open, not mounted: the host takes snapshots through it, the sandbox never sees it.
    upper = os.open("/upper/files", os.O_RDONLY | os.O_DIRECTORY)
    os.chdir("/newroot")
    linux.pivot_root(".", ".")
    linux.umount(".")
    os.chdir("/workspace")
    linux.set_hostname(request.name)
    linux.bring_up_loopback()
    return upper, _listen(request.ports) if request.ports else _only_watch()


def _process_list() -> None:
    """A /proc of our own, without what tells of the host or lets one act on it."""
    flags = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
    linux.mount("proc", "/newroot/proc", "proc", flags)
    for name in _MASKED:
        path = f"/newroot/proc/{name}"
        if os.path.isfile(path):
            linux.bind("/dev/null", path)
    for name in _READ_ONLY:
        path = f"/newroot/proc/{name}"
        if os.path.isdir(path):
            linux.bind(path, path)
            linux.remount_read_only(path, flags=flags)


def _listen(ports: list[int]) -> list[int]:
    """Sockets in this network that the host will serve: names on 53, connections elsewhere."""
    linux.claim_every_address(socket.AF_INET)
    _claim_ipv6()
    names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    names.bind(("127.0.0.1", 53))
    fds = [names.detach()]
    for port in ports:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("0.0.0.0", port))  # noqa: S104 - a network with nobody else in it
        listener.listen(128)
        fds.append(listener.detach())
    return [*fds, *packet_capture.open_sockets(questions=False)]


def _only_watch() -> list[int]:
    """Without a network: sockets that see what is tried. Nobody answers, and nothing listens."""
    try:
        linux.claim_every_address(socket.AF_INET)
    except OSError:
        return []  # it is refused one way or the other; here unseen
    _claim_ipv6()
    return packet_capture.open_sockets(questions=True)


def _claim_ipv6() -> None:
    """Nobody listens there, so that all is refused as it is without; but it can be seen."""
    try:
        linux.claim_every_address(socket.AF_INET6)
    except OSError:
        pass  # a host without IPv6: there is nothing to see


def _give_up_everything(request: Request, program: bytes) -> None:
    os.umask(0o022)
    if request.affinity is not None:
        allowed = sorted(os.sched_getaffinity(0))[: request.affinity]
        os.sched_setaffinity(0, allowed)
    for name, value in request.rlimits.items():
        limit = getattr(resource, f"RLIMIT_{name}")
        _, hard = resource.getrlimit(limit)
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (most, most))
    linux.set_dumpable(False)
    linux.set_no_new_privileges()
    linux.drop_all_capabilities()
    linux.install_seccomp(program)


def _make_ordinary() -> None:
    """In a script's process: others in the sandbox may look at it, as at any."""
    linux.set_dumpable(True)
