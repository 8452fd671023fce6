"""A gateway of the test's own, with its ledger in memory."""

from collections.abc import AsyncIterator

import pytest

from gateway.support import PRICE, make_gateway
from holdfast.gateway import Gateway, use_gateway


@pytest.fixture(autouse=True)
async def gateway() -> AsyncIterator[Gateway]:
    """Where every model call of the test goes."""
    made = make_gateway(prices={"scripted/*": PRICE})
    use_gateway(made)
    try:
        yield made
    finally:
        use_gateway(None)
        await made.close()
