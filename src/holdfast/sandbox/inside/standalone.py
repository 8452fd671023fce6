"""The agent as a program of its own, for backends that start it rather than fork it.

Its channel is its standard input, a socket, or its standard streams. It starts as the sandbox's
root, which is nobody on the host, takes the ports it needs, and becomes the sandbox's user before
anything else runs.
"""

from __future__ import annotations

import os
import socket
import stat
import sys

from holdfast.sandbox.inside import archive, relay, zygote
from holdfast.sandbox.inside.agent import Agent
from holdfast.sandbox.inside.relay import Relay
from holdfast.sandbox.namespace import linux

_USER = 1000


def start() -> None:
    """Entry point: arguments are the ports to relay (comma-separated, or empty), whether there is
    a snapshot to start from, whether to watch what leaves, and our names."""
    ports = [int(port) for port in sys.argv[1].split(",") if port]
    layered = sys.argv[2] == archive.LAYERED
    watched = sys.argv[3] == relay.WATCHED
    pythons = frozenset(sys.argv[4:])
    # A socket goes both ways; where the two streams are pipes, each has its own.
    reader = os.dup(0)
    writer = reader if stat.S_ISSOCK(os.fstat(0).st_mode) else os.dup(1)
    silence = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(silence, fd)
    os.close(silence)
    leaving = relay.AttemptSender() if watched else None
    listeners = _listen(ports) if ports else None
    if layered:
        _lay_over()
    linux.empty_bounding_set()
    os.setgroups([])
    os.setresgid(_USER, _USER, _USER)
    # Acting as the user, but not the user's to signal: this kernel does not shield its first
    # process as Linux does. Commands become the user for good.
    os.setresuid(0, _USER, 0)
    linux.clear_capabilities()
    linux.set_no_new_privileges()
    linux.set_dumpable(False)
    os.umask(0o022)
    os.chdir("/workspace")
    try:
        agent = Agent(
            reader,
            writer,
            pythons=pythons,
            make_ordinary=lambda: linux.set_dumpable(True),
            commands_are=_USER,
            forks_ahead=True,
        )
        if listeners is not None:
            agent.relay = Relay(agent, *listeners)
        if leaving is not None:
            leaving.begin(agent)
        agent.ahead.make()  # the first command would have to wait for it
        agent.send({"id": 0, "ev": "ready"})
        agent.run()
    except zygote.BecomeScript as become:
        script = become.script
    else:
        return
    zygote.run(script)


def _lay_over() -> None:
    """Make the snapshot's folders writable, each change in the limited space above it."""
    for number, root in enumerate(archive.ROOTS):
        upper, work = f"{archive.UPPER}/{number}", f"{archive.UPPER}/{number}.work"
        info = os.stat(f"{archive.LAYER}/{root}")
        for folder in (upper, work):
            os.mkdir(folder)
        os.chmod(upper, stat.S_IMODE(info.st_mode))
        os.chown(upper, _USER, _USER)
        options = f"lowerdir={archive.LAYER}/{root},upperdir={upper},workdir={work}"
        linux.mount("overlay", f"/{root}", "overlay", linux.MS_NOSUID | linux.MS_NODEV, options)
    for place in (archive.LAYER, archive.UPPER):
        linux.umount(place)


def _listen(ports: list[int]) -> tuple[int, dict[int, int]]:
    names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    names.bind(("127.0.0.1", 53))
    listeners: dict[int, int] = {}
    for port in ports:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.bind(("0.0.0.0", port))  # noqa: S104 - a network with nobody else in it
        listener.listen(128)
        listeners[listener.detach()] = port
    return names.detach(), listeners
