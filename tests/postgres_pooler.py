"""A pgbouncer in transaction mode before a private PostgreSQL, unprivileged, on a socket of its own.

Few server connections for many clients, so that a transaction is hardly ever on the one before's.
"""

from __future__ import annotations

import shutil
import signal
import subprocess

import psycopg

from postgres_server import Server, as_user
from waiting import until

MISSING = "there is no pgbouncer here (scripts/setup.sh tests installs it)"
PORT = 6432
CONFIGURATION = """
[databases]
postgres = host={host} dbname=postgres
[pgbouncer]
listen_addr =
listen_port = {port}
unix_socket_dir = {folder}
auth_type = trust
auth_file = {folder}/users.txt
pool_mode = transaction
default_pool_size = {size}
max_client_conn = 400
logfile = {folder}/pooler.log
"""


def program() -> str | None:
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")


class Pooler:
    """A pgbouncer between clients and a server."""

    def __init__(self, server: Server, *, size: int = 2) -> None:
        self.server = server
        self._process: subprocess.Popen[bytes] | None = None
        folder = server.folder / "pooler"
        folder.mkdir()
        self.folder = folder
        text = CONFIGURATION.format(host=server.folder, folder=folder, port=PORT, size=size)
        (folder / "pgbouncer.ini").write_text(text)
        (folder / "users.txt").write_text('"holdfast" ""\n')
        server.give(folder)

    def url(self, namespace: str) -> str:
        return (
            f"postgresql:///postgres?host={self.folder}&port={PORT}&user=holdfast"
            f"&namespace={namespace}&listen=false&prepare=false"
        )

    def start(self) -> None:
        found = program()
        assert found is not None, MISSING
        (self.folder / f".s.PGSQL.{PORT}").unlink(missing_ok=True)  # of one that was killed
        command = [*as_user(), found, "-q", str(self.folder / "pgbouncer.ini")]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        until(self._answers, "the pooler")

    def _answers(self) -> bool:
        conninfo = f"host={self.folder} port={PORT} user=holdfast dbname=postgres"
        try:
            with psycopg.connect(conninfo, connect_timeout=5):
                return True
        except psycopg.OperationalError:
            return False

    def stop(self, how: signal.Signals = signal.SIGKILL) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None

    def log(self) -> str:
        return (self.folder / "pooler.log").read_text()
