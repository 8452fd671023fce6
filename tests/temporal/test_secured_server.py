"""Temporal behind TLS that asks for the client's certificate, as clusters have it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from dev_server import DevServer
from engine_flows import counts

from holdfast import open_engine, start
from holdfast.errors import ConfigError, StoreError


class Authority:
    """Signs certificates, into files of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
        (folder / "ca.pem").write_bytes(self._signed("authority", self._key, is_authority=True))

    def issue(self, name: str) -> None:
        """A certificate `NAME.pem` and its key `NAME.key`."""
        key = ec.generate_private_key(ec.SECP256R1())
        (self.folder / f"{name}.pem").write_bytes(self._signed(name, key, is_authority=False))
        (self.folder / f"{name}.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )

    def _signed(self, name: str, key: ec.EllipticCurvePrivateKey, *, is_authority: bool) -> bytes:
        now = datetime.now(UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return made.public_bytes(serialization.Encoding.PEM)


@asynccontextmanager
async def tls_before(server: DevServer, folder: Path) -> AsyncIterator[int]:
    """A port where the server is behind TLS; only clients with a certificate are let in."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "temporal.internal.pem", folder / "temporal.internal.key")
    context.load_verify_locations(folder / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2"])
    pumps: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except (ConnectionError, ssl.SSLError):
            pass  # one side has gone: so does the other
        finally:
            writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, here = await asyncio.open_connection("127.0.0.1", server.port)
        for pair in ((reader, here), (there, writer)):
            task = asyncio.create_task(pump(*pair))
            pumps.add(task)
            task.add_done_callback(pumps.discard)

    proxy = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=context)
    try:
        yield proxy.sockets[0].getsockname()[1]
    finally:
        proxy.close()
        for task in list(pumps):
            task.cancel()
        if pumps:
            await asyncio.wait(set(pumps))


async def test_runs_go_through_tls_with_a_certificate_and_not_without(
    tmp_path: Path, server: DevServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    authority.issue("temporal.internal")
    authority.issue("worker")
    queue = server.url().rpartition("=")[2]
    async with tls_before(server, tmp_path) as port:
        address = f"temporal://127.0.0.1:{port}/default?queue={queue}"
        with pytest.raises(StoreError, match="can't be reached"):
            async with open_engine(tmp_path / "runs.db", engine=address):
                pass
        monkeypatch.setenv("HOLDFAST_TEMPORAL_CA_FILE", str(tmp_path / "ca.pem"))
        monkeypatch.setenv("HOLDFAST_TEMPORAL_SERVER_NAME", "temporal.internal")
        with pytest.raises(StoreError, match="can't be reached"):
            async with open_engine(tmp_path / "runs.db", engine=address):
                pass
        monkeypatch.setenv("HOLDFAST_TEMPORAL_CERT_FILE", str(tmp_path / "worker.pem"))
        with pytest.raises(ConfigError, match="go together"):
            async with open_engine(tmp_path / "runs.db", engine=address):
                pass
        monkeypatch.setenv("HOLDFAST_TEMPORAL_KEY_FILE", str(tmp_path / "worker.key"))
        async with open_engine(tmp_path / "runs.db", engine=address):
            assert await (await start(counts, 2)).result() == [0, 1]
        monkeypatch.setenv("HOLDFAST_TEMPORAL_SERVER_NAME", "another.internal")
        with pytest.raises(StoreError, match="can't be reached"):
            async with open_engine(tmp_path / "runs.db", engine=address):
                pass


async def test_a_namespace_that_is_not_there_is_named(tmp_path: Path, server: DevServer) -> None:
    with pytest.raises(StoreError, match="namespace nowhere"):
        async with open_engine(tmp_path / "runs.db", engine=f"temporal://{server.host}/nowhere"):
            pass
