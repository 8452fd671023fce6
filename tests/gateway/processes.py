"""Real processes for tests that kill them: the gateway's service, and clients of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from waiting import LIMIT


def toml(data: dict[str, Any]) -> str:
    """A `[gateway]` section; JSON's values are TOML's for what tests need."""
    lines: list[str] = []

    def walk(table: dict[str, Any], path: str) -> None:
        lines.append(f"[{path}]")
        for name, value in table.items():
            if not isinstance(value, dict):
                lines.append(f"{name} = {json.dumps(value)}")
        for name, value in table.items():
            if isinstance(value, dict):
                walk(value, f'{path}."{name}"')

    walk(data, "gateway")
    return "\n".join(lines)


class GatewayProcess:
    """`holdfast gateway serve` in a process of its own."""

    def __init__(self, folder: Path, **config: Any) -> None:
        self.store = folder / "store.db"
        (folder / "holdfast.toml").write_text(toml(config))
        self._env = {
            **os.environ,
            "HOLDFAST_STORE": str(self.store),
            "HOLDFAST_CONFIG": str(folder / "holdfast.toml"),
        }
        self.log = folder / "gateway.log"

    def start(self) -> GatewayProcess:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "holdfast.cli.main", "gateway", "serve", "--port", "0",
                 "--json"],
                stdout=subprocess.PIPE, stderr=log, text=True, env=self._env,
            )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        self.url = json.loads(line)["openai_base_url"]
        return self

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self._reap()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self._reap()

    def _reap(self) -> None:
        self.process.wait(LIMIT)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def __enter__(self) -> GatewayProcess:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


CLIENT = """
import sys, urllib.request, json
url, secret, key, stream = sys.argv[1:]
body = {"model": "fake-chat/m", "messages": [{"role": "user", "content": "hi"}]}
if stream == "yes":
    body["stream"] = True
request = urllib.request.Request(url + "/chat/completions", json.dumps(body).encode(), {
    "Authorization": "Bearer " + secret, "Content-Type": "application/json",
    "Idempotency-Key": key})
with urllib.request.urlopen(request) as reply:
    for line in reply:
        print(line.decode().rstrip(), flush=True)
"""


def client(url: str, secret: str, key: str, *, stream: bool) -> subprocess.Popen[str]:
    """A client process that makes one keyed call and prints what it gets."""
    return subprocess.Popen(
        [sys.executable, "-c", CLIENT, url, secret, key, "yes" if stream else "no"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def end(process: subprocess.Popen[str]) -> None:
    """Kill a process with -9 and let go of it."""
    process.send_signal(signal.SIGKILL)
    process.communicate()
