"""`holdfast serve` as its users run it: a process of its own."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from waiting import LIMIT

JOBS = str(Path(__file__).parent / "jobs_process.py")
COMMAND = [sys.executable, "-m", "holdfast.cli.main"]


class Process:
    """A server that is up, on any free port."""

    def __init__(self, folder: Path, *arguments: str, **environ: str) -> None:
        self.folder = folder
        self.errors = folder / "serve.log"
        self.environment = {
            **{n: v for n, v in os.environ.items() if not n.startswith("HOLDFAST_")},
            "HOLDFAST_STORE": str(folder / "store.db"),
            "EFFECTS": str(folder / "effects"),
            "PYTHONUNBUFFERED": "1",
            **environ,
        }
        with self.errors.open("w") as log:
            self.popen = subprocess.Popen(
                [*COMMAND, "serve", "--port", "0", "--json", "--quiet", *arguments],
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.DEVNULL,
                text=True,
                env=self.environment,
                cwd=folder,
                start_new_session=True,
            )
        assert self.popen.stdout is not None
        line = self.popen.stdout.readline()
        assert line, self.errors.read_text()
        self.facts: dict[str, Any] = json.loads(line)

    @property
    def url(self) -> str:
        return str(self.facts["url"])

    def connection(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        assert parts.hostname and parts.port
        return http.client.HTTPConnection(parts.hostname, parts.port, timeout=LIMIT)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body)
        if data is not None:
            headers.setdefault("content-type", "application/json")
        connection = self.connection()
        try:
            connection.request(method, path, data, headers)
            reply = connection.getresponse()
            return reply.status, json.loads(reply.read() or b"null")
        finally:
            connection.close()

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Another `holdfast`, on the same store."""
        return subprocess.run(
            [*COMMAND, *arguments],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )

    def effects(self) -> list[str]:
        file = Path(self.environment["EFFECTS"])
        return file.read_text().split() if file.exists() else []

    def end(self) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.communicate()
