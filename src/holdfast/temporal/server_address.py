"""Which Temporal server to work on: `temporal://host:7233/namespace?queue=holdfast`.

The address names the server, the namespace and the task queue. What is secret, or a file, is
configured: the section `[temporal]` of `holdfast.toml`, or HOLDFAST_TEMPORAL_… variables.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.converter import ExternalStorage, StorageDriver
from temporalio.service import RPCError, TLSConfig

from holdfast import config
from holdfast.errors import ConfigError, StoreError, UsageError
from holdfast.temporal.payloads import converter
from holdfast.temporal.temporal_settings import TemporalSettings

SCHEME = "temporal"
QUEUE = "holdfast"
EXAMPLE = "temporal://127.0.0.1:7233/default?queue=holdfast"


@dataclass(frozen=True)
class ServerAddress:
    """A server, a namespace and a task queue."""

    host: str
    namespace: str = "default"
    queue: str = QUEUE

    @classmethod
    def parse(cls, text: str) -> ServerAddress:
        """Read an address; raises UsageError for one that is none."""
        parts = urlsplit(text)
        try:
            port = parts.port or 7233
        except ValueError as error:
            raise _invalid(text, str(error)) from error
        if parts.scheme != SCHEME or not parts.hostname:
            raise _invalid(text, "it does not begin with temporal://HOST")
        if parts.username is not None or parts.password is not None:
            raise _invalid(text, "it has a user name; an API key is configured instead")
        options = parse_qs(parts.query, strict_parsing=bool(parts.query))
        unknown = options.keys() - {"queue"}
        if unknown:
            raise _invalid(text, f"{', '.join(sorted(unknown))} is no option of it")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        namespace = parts.path.strip("/") or "default"
        if "/" in namespace:
            raise _invalid(text, "its path should be a namespace alone")
        return cls(f"{host}:{port}", namespace, options.get("queue", [QUEUE])[0])

    def __str__(self) -> str:
        return f"{SCHEME}://{self.host}/{self.namespace}?queue={self.queue}"

    @property
    def owner(self) -> str:
        """Who has the runs in the store that are carried out there: the same for all workers."""
        return f"{SCHEME}:{self.namespace}/{self.queue}"


def _invalid(text: str, why: str) -> UsageError:
    return UsageError(f"{text} is no address of a Temporal server: {why}", hint=f"as {EXAMPLE}")


def configured() -> TemporalSettings:
    """The section `[temporal]`, with variables laid over it."""
    return config.section("temporal", TemporalSettings)


async def connect(
    address: ServerAddress, settings: TemporalSettings, payloads: StorageDriver | None = None
) -> Client:
    """A client of the server; raises StoreError if it can't be reached.

    `payloads`: where large ones are kept.
    """
    large = None
    if payloads is not None:
        limit = settings.payload_kilobytes * 1024
        large = ExternalStorage([payloads], payload_size_threshold=limit)
    try:
        client = await Client.connect(
            address.host,
            namespace=address.namespace,
            api_key=settings.api_key,
            tls=_tls(settings),
            data_converter=converter(settings.encryption_key, large),
        )
        # Asked for now: else it is the first run that finds out.
        asked = DescribeNamespaceRequest(namespace=address.namespace)
        await client.workflow_service.describe_namespace(asked)
        return client
    except (RPCError, RuntimeError, OSError) as error:
        raise StoreError(
            f"the namespace {address.namespace} of the Temporal server at {address.host} can't be "
            f"reached: {error}",
            hint="is it up, and are TLS and the API key as it wants them? See [temporal]",
        ) from error


def _tls(settings: TemporalSettings) -> TLSConfig | bool:
    if (settings.cert_file is None) != (settings.key_file is None):
        raise ConfigError("temporal.cert_file and temporal.key_file go together")
    if settings.ca_file is None and settings.cert_file is None and settings.server_name is None:
        return settings.tls or settings.api_key is not None
    return TLSConfig(
        server_root_ca_cert=_file("ca_file", settings.ca_file),
        client_cert=_file("cert_file", settings.cert_file),
        client_private_key=_file("key_file", settings.key_file),
        domain=settings.server_name,
    )


def _file(name: str, path: str | None) -> bytes | None:
    if path is None:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"temporal.{name} can't be read: {error}") from error
