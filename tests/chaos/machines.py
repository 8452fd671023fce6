"""Workers as on machines of their own: each in a network namespace, with a clock that is wrong.

Namespaces need root and `ip` (iproute2), wrong clocks libfaketime; without them the workers are plain
processes, and `lacks` says what is not tried.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
SKEWS = ("", "+3700s", "-5400s", "+20s")
"""What is wrong with the clocks of the machines, by turns."""


class Network:
    """A bridge of this machine's, and namespaces on it."""

    def __init__(self) -> None:
        self._id = os.getpid() % 100_000
        self._subnet = f"10.{200 + self._id % 50}.{self._id % 250}"
        self._namespaces: list[str] = []
        self.apart = os.getuid() == 0 and shutil.which("ip") is not None
        self.address = f"{self._subnet}.1" if self.apart else "127.0.0.1"

    def __enter__(self) -> Network:
        if self.apart:
            bridge = f"hfb{self._id}"
            _ip("link", "add", bridge, "type", "bridge")
            _ip("addr", "add", f"{self.address}/24", "dev", bridge)
            _ip("link", "set", bridge, "up")
        return self

    def __exit__(self, *_: object) -> None:
        if self.apart:
            for place, name in enumerate(self._namespaces):
                _ip("link", "del", self._cable(place))
                _ip("netns", "del", name)
            _ip("link", "del", f"hfb{self._id}")

    def add(self) -> int:
        """A new namespace with a cable to the bridge; its number."""
        place = len(self._namespaces)
        if self.apart:
            name, inside = f"hf{self._id}n{place}", f"hfi{self._id}n{place}"
            _ip("netns", "add", name)
            _ip("link", "add", self._cable(place), "type", "veth", "peer", "name", inside)
            _ip("link", "set", inside, "netns", name)
            _ip("link", "set", self._cable(place), "master", f"hfb{self._id}", "up")
            address = f"{self._subnet}.{10 + place}/24"
            _ip("-n", name, "addr", "add", address, "dev", inside)
            _ip("-n", name, "link", "set", inside, "up")
            _ip("-n", name, "link", "set", "lo", "up")
        self._namespaces.append(f"hf{self._id}n{place}")
        return place

    def _cable(self, place: int) -> str:
        return f"hfc{self._id}n{place}"

    def cut(self, place: int, *, whole: bool) -> None:
        """Pull a machine's cable, or plug it in again."""
        _ip("link", "set", self._cable(place), "up" if whole else "down")

    def inside(self, place: int) -> list[str]:
        """What to put before a command for it to run in a namespace."""
        return ["ip", "netns", "exec", self._namespaces[place]] if self.apart else []


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


class Machine:
    """A worker, its cable, and its clock."""

    def __init__(self, network: Network, folder: Path, flows: Path) -> None:
        self._network, self._folder, self._flows = network, folder, flows
        self.place = network.add()
        self.skew = SKEWS[self.place % len(SKEWS)] if FAKETIME is not None else ""
        self._process: subprocess.Popen[bytes] | None = None
        self.url: Callable[[], str] = lambda: ""

    def start(self) -> None:
        holdfast = [sys.executable, "-m", "holdfast.cli.main"]
        command = [*holdfast, "worker", str(self._flows), "--quiet"]
        environment = {**os.environ, "HOLDFAST_STORE": self.url()}
        if self.skew:
            environment |= {
                "LD_PRELOAD": str(FAKETIME),
                "FAKETIME": self.skew,
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            }
        with (self._folder / f"worker-{self.place}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._network.inside(self.place), *command],
                cwd=self._folder,
                env=environment,
                stderr=log,
            )

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def cut(self, *, whole: bool) -> None:
        self._network.cut(self.place, whole=whole)


def lacks(network: Network) -> list[str]:
    """What this machine does not let us try."""
    found: list[str] = []
    if not network.apart:
        found.append("partitions (root and iproute2)")
    if FAKETIME is None:
        found.append("wrong clocks (libfaketime)")
    return found
