"""What Temporal is given can't be read there, with a key."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from dev_server import DevServer
from engine_flows import knows_itself
from test_engines import is_open, until

from holdfast import start
from holdfast.errors import ConfigError, UsageError


async def test_nothing_of_a_run_can_be_read_in_its_history(
    tmp_path: Path, server: DevServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast import open_engine

    key = base64.b64encode(bytes(range(32))).decode()
    monkeypatch.setenv("HOLDFAST_TEMPORAL_ENCRYPTION_KEY", key)
    engine: Any
    async with open_engine(tmp_path / "runs.db", engine=server.url()) as engine:
        handle = await start(knows_itself, "marker-4711")
        await until(lambda: is_open(handle, "@webhook/0/4"))
        history = await engine._client.get_workflow_handle(handle.id).fetch_history()
        await handle.cancel()
    written = b"".join(event.SerializeToString() for event in history.events)
    assert b"binary/encrypted" in written
    for plain in (b"marker-4711", b"customer", b"percent"):
        assert plain not in written


def test_a_wrong_key_or_address_is_named() -> None:
    from holdfast.temporal.payloads import converter
    from holdfast.temporal.server_address import ServerAddress

    with pytest.raises(ConfigError, match="no key"):
        converter("c2hvcnQ=")
    for wrong in ("http://a", "temporal://", "temporal://a/b/c", "temporal://a/b?x=1"):
        with pytest.raises(UsageError, match="no address"):
            ServerAddress.parse(wrong)
    assert (
        str(ServerAddress.parse("temporal://[::1]"))
        == "temporal://[::1]:7233/default?queue=holdfast"
    )
