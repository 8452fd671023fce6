"""A host worth attacking: a secret, processes, sockets and shared memory, all real."""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from abuse.attacks import PRELUDE
from sandbox.support import serving, shared_host

_libc = ctypes.CDLL(None, use_errno=True)
IPC_CREAT = 0o1000


class HostSide:
    """What attacks are aimed at, and a way to run them outside."""

    def __init__(self, folder: Path, values: dict[str, object], descriptor: int) -> None:
        self.folder, self.values, self._descriptor = folder, values, descriptor

    def code(self, attack: str) -> str:
        return PRELUDE + attack.format(**self.values)

    def run_outside(self, attack: str) -> str:
        """Run the attack as a plain program of ours; returns what it printed."""
        with tempfile.TemporaryDirectory(dir=self.folder) as cwd:
            done = subprocess.run(
                [sys.executable, "-c", self.code(attack)],
                cwd=cwd,
                env={**os.environ, "SECRET": str(self.values["token"])},
                pass_fds=(self._descriptor,),
                capture_output=True,
                text=True,
                timeout=30,
            )
        for name in ("hard", "left", "disk"):
            with contextlib.suppress(FileNotFoundError):
                (self.folder / name).unlink()
        return done.stdout + done.stderr


@contextlib.contextmanager
def host_side() -> Iterator[HostSide]:
    token, marker = secrets.token_hex(16), secrets.token_hex(8)
    key = int.from_bytes(os.urandom(3), "big") + 1
    shm = _libc.shmget(key, 4096, IPC_CREAT | 0o600)
    queue = _libc.msgget(key, IPC_CREAT | 0o600)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hf-abuse-")))
        (folder / "secret").write_text(token)
        (folder / "mountpoint").mkdir()
        shared = Path("/dev/shm", token)
        shared.write_text(token)
        stack.callback(shared.unlink)
        descriptor = os.open(folder / "secret", os.O_RDONLY)
        stack.callback(os.close, descriptor)
        process = subprocess.Popen([sys.executable, "-c", f"input() # {marker}"], stdin=-1)
        stack.callback(process.stdin.close)
        stack.callback(process.wait)
        stack.callback(process.kill)
        port = stack.enter_context(serving_everywhere())
        abstract, path = f"hf-{token}", str(folder / "socket")
        for name in (f"\0{abstract}", path):
            stack.enter_context(listening(name))
        cgroups = Path("/proc/self/cgroup").read_text()
        host = shared_host()
        values: dict[str, object] = {
            "secret": folder / "secret",
            "folder": folder,
            "mountpoint": folder / "mountpoint",
            "token": token,
            "marker": marker,
            "pid": process.pid,
            "port": port,
            "address": own_address(),
            "abstract": abstract,
            "socket": path,
            "shm": key,
            "here": Path(__file__),
            "state": host.state,
            "cgroup": next(
                (p for p in ("/sys/fs/cgroup/memory", "/sys/fs/cgroup") if Path(p).is_dir()), "/x"
            ),
            "cgroup_name": max((line.split(":")[2] for line in cgroups.splitlines()), key=len),
            "nodename": os.uname().nodename,
            "mounted": "/sys/fs/cgroup",
            "uid": os.getuid(),
        }
        yield HostSide(folder, values, descriptor)
    _libc.shmctl(shm, 0, None)
    _libc.msgctl(queue, 0, None)


@contextlib.contextmanager
def serving_everywhere() -> Iterator[int]:
    """A TCP listener on every address of the host."""
    listener = socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    with accepting(listener):
        yield listener.getsockname()[1]


@contextlib.contextmanager
def listening(name: str) -> Iterator[None]:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(name)
    listener.listen()
    with accepting(listener):
        yield


@contextlib.contextmanager
def accepting(listener: socket.socket) -> Iterator[None]:
    def loop() -> None:
        while True:
            try:
                listener.accept()[0].close()
            except OSError:
                return

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        listener.close()


def own_address() -> str:
    """An address of this host's other than the loopback, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return probe.getsockname()[0]


__all__ = ["HostSide", "host_side", "serving"]
