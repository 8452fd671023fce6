"""Taking a snapshot: by the host, where it has the writable layer in hand, else by the agent."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from holdfast.errors import SandboxError
from holdfast.sandbox.base import Instance
from holdfast.sandbox.channel import Channel
from holdfast.sandbox.inside.packing import ROOTS
from holdfast.sandbox.namespace.backend import SANDBOX_UID
from holdfast.sandbox.namespace.view import UID
from holdfast.sandbox.packed import Unpacker
from holdfast.sandbox.snapshots import Draft, Snapshot, keep
from holdfast.sandbox.spec import Spec

_PACKING = ("gvisor",)
"""Backends whose files only the agent can reach, and that can start from what it tells."""


async def take(
    state: Path, backend: str, instance: Instance, channel: Channel, spec: Spec
) -> Snapshot:
    """Keep a sandbox's files as they are; its processes are paused meanwhile."""
    if instance.upper is None and backend not in _PACKING:
        raise SandboxError(
            f"backend {backend!r} can't take snapshots", hint="namespace and gvisor can"
        )
    await channel.request("pause")
    try:
        if instance.upper is None:
            return await _told(state, backend, instance.id, channel, spec)
        owner = SANDBOX_UID if os.geteuid() == 0 else None
        return await asyncio.to_thread(keep, state, instance.upper, spec.layers, instance.id, owner)
    finally:
        await asyncio.shield(channel.request("resume"))


async def _told(state: Path, backend: str, id: str, channel: Channel, spec: Spec) -> Snapshot:
    """Whole, not what differs from the one below: the agent sees only the whole."""
    limits = spec.limits
    with Draft(state, id) as draft:
        # Each of the roots may be filled, and started from a snapshot that was.
        most = 2 * len(ROOTS)
        unpacker = Unpacker(
            draft.layer,
            owner=UID,
            most_bytes=most * limits.disk,
            most_entries=most * max(limits.inodes, 1 << 20),
        )
        try:
            await channel.stream("pack", unpacker.take)
            size = await asyncio.to_thread(unpacker.finish)
        finally:
            unpacker.close()
        return draft.finish(backend, size)
