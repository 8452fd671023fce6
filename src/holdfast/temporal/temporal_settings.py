"""The section `[temporal]` of `holdfast.toml`; what reads it need not have Temporal's client."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TemporalSettings:
    """The section `[temporal]`: how to connect, and how patient to be."""

    tls: bool = False
    """Whether to speak TLS. An API key or a certificate imply it."""
    ca_file: str | None = None
    """The certificates to check the server's with, instead of the system's."""
    cert_file: str | None = None
    key_file: str | None = None
    """This client's certificate and its key, for servers that ask for one (mTLS)."""
    server_name: str | None = None
    """The name in the server's certificate, if it is not the host's."""
    api_key: str | None = None
    """For Temporal Cloud and others that take one."""
    encryption_key: str | None = None
    """32 bytes in base64: encrypts what Temporal is given. Every worker needs the same one."""
    cached_runs: int = 1000
    """Runs kept in memory between two events; 0: every event replays its run."""
    sticky_seconds: float = 2.0
    """How long a run waits for the worker that has it in memory, before any other may go on."""
    heartbeat_seconds: float = 15.0
    """A step whose worker was not heard of for so long is begun again by another."""
    history_events: int = 8000
    """At so many events of Temporal's, a run goes on with a new history as soon as no step is
    under way; at four times as many nothing more is begun until then. (Temporal ends a workflow
    at 51,200.)"""
    history_megabytes: float = 8.0
    """The same for the size of the history. (Temporal ends a workflow at 50 MB.)"""
    payload_kilobytes: int = 64
    """Larger payloads are kept in the store, and Temporal is given their names."""
    concurrent_steps: int = 1000
    """Steps that one worker carries out at once."""
    search_attributes: bool = True
    """Whether runs can be searched for by key, version, parent and attributes on Temporal. They
    are registered there if need be. With an encryption key, key and attributes are left out."""
