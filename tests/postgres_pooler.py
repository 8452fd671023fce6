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
postgres = host={host} port={server_port} dbname=postgres
[pgbouncer]
listen_addr = {address}
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

    def __init__(
        self, server: Server, *, size: int = 2, address: str = "", port: int = PORT
    ) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._size, self._address, self._port = size, address, port
        self.folder = server.folder / "pooler"
        self.folder.mkdir()
        (self.folder / "users.txt").write_text('"holdfast" ""\n')
        server.give(self.folder)
        self.go_to(server)

    def go_to(self, server: Server) -> None:
        """Be before this server, from the next start on."""
        text = CONFIGURATION.format(
            host=server.folder,
            server_port=server.settings.get("port", "5432"),
            folder=self.folder,
            address=self._address,
            port=self._port,
            size=self._size,
        )
        (self.folder / "pgbouncer.ini").write_text(text)

    def url(self, namespace: str) -> str:
        return (
            f"postgresql:///postgres?host={self._address or self.folder}&port={self._port}&user=holdfast"
            f"&namespace={namespace}&listen=false&prepare=false"
        )

    def start(self) -> None:
        found = program()
        assert found is not None, MISSING
        (self.folder / f".s.PGSQL.{self._port}").unlink(missing_ok=True)  # of one that was killed
        command = [*as_user(), found, "-q", str(self.folder / "pgbouncer.ini")]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        until(self._answers, "the pooler")

    def _answers(self) -> bool:
        conninfo = f"host={self.folder} port={self._port} user=holdfast dbname=postgres"
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
