"""Who may ask the server for what."""

from __future__ import annotations

import pytest

from .conftest import Server


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost@evil", ""])
async def test_a_strangers_name_that_points_at_us_gets_nothing(server: Server, host: str) -> None:
    answer = await server.get("/api/runs", headers={"host": host})
    assert (answer.status, answer.error["kind"]) == (421, "WrongHost")
