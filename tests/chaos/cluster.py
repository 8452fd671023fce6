"""Two PostgreSQL servers, one following the other in step, and a pgbouncer before whichever leads.

On TCP, so that workers in other network namespaces reach them.
"""

from __future__ import annotations

import shutil
import socket

import psycopg

import postgres_pooler
import postgres_server
from waiting import until

SETTINGS = {"fsync": "on", "full_page_writes": "on", "max_connections": "200"}
STREAMING = b"SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
IN_STEP = b"ALTER SYSTEM SET synchronous_standby_names = '*'"


class Cluster:
    """A server, its synchronous standby, and a pooler."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.ports = [free_port(address) for _ in range(3)]
        self.servers = [self._server(port) for port in self.ports[:2]]
        self.pooler: postgres_pooler.Pooler | None = None

    def _server(self, port: int) -> postgres_server.Server:
        settings = {**SETTINGS, "listen_addresses": self.address, "port": str(port)}
        return postgres_server.Server(postgres_server.short_folder(), settings)

    @property
    def leader(self) -> postgres_server.Server:
        return self.servers[0]

    def start(self) -> None:
        leader, follower = self.servers
        leader.make()
        with (leader.data / "pg_hba.conf").open("a") as file:
            file.write("host all all 0.0.0.0/0 trust\n")
        leader.start()
        follower.follow(leader)
        self._keep_in_step()
        if postgres_pooler.program() is not None:
            self.pooler = postgres_pooler.Pooler(
                leader, size=8, address=self.address, port=self.ports[2]
            )
            self.pooler.start()

    def _keep_in_step(self) -> None:
        """Have commits wait for the standby, once it follows."""
        with psycopg.connect(self.leader.conninfo, autocommit=True) as session:
            until(lambda: session.execute(STREAMING).fetchone() != (0,), "the standby")
            session.execute(IN_STEP)
            session.execute(b"SELECT pg_reload_conf()")

    def url(self, namespace: str) -> str:
        """The address of whichever server leads."""
        hosts = f"{self.address},{self.address}"
        ports = ",".join(str(server.settings["port"]) for server in self.servers)
        return (
            f"postgresql:///postgres?host={hosts}&port={ports}&user=holdfast&namespace={namespace}"
        )

    def pooled_url(self, namespace: str) -> str:
        return self.url(namespace) if self.pooler is None else self.pooler.url(namespace)

    # --- what is done to it ---

    def restart_database(self) -> None:
        self.leader.stop()
        self.leader.start()

    def promote_standby(self) -> None:
        """The leader is lost; the standby leads, and a new standby follows it."""
        lost, standby = self.servers
        lost.stop()
        standby.promote()
        self.servers = [standby, lost]
        if self.pooler is not None:
            self.pooler.stop()
            self.pooler.go_to(standby)
            self.pooler.start()
        shutil.rmtree(lost.data)
        lost.follow(standby, guarded=True)

    def restart_pooler(self) -> None:
        if self.pooler is not None:
            self.pooler.stop()
            self.pooler.start()

    def stop(self) -> None:
        if self.pooler is not None:
            self.pooler.stop()
        for server in self.servers:
            server.stop_if_running()
            postgres_server.remove(server.folder)


def free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])
