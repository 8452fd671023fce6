"""Being told to stop: the first signal asks, the second does not wait."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable


def stopped_by_signals() -> asyncio.Future[str]:
    """Done at the first SIGINT or SIGTERM; a second one does not wait for anything."""
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[str] = loop.create_future()

    def handler(number: signal.Signals) -> Callable[[], None]:
        def received() -> None:
            if stop.done():
                # Being killed is something every run survives: no need for ceremony.
                os._exit(128 + number)
            stop.set_result(number.name)

        return received

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, handler(number))
    return stop
