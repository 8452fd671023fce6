"""What is known of one provider attempt while it runs."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from holdfast.gateway.reply import FinishReason, Usage


class Race:
    """Two attempts at one call: the first to hand something on has won."""

    def __init__(self) -> None:
        self.winner: Meter | None = None
        self.decided = asyncio.Event()

    def win(self, meter: Meter) -> None:
        if self.winner is not None:
            raise asyncio.CancelledError
        self.winner = meter
        self.decided.set()


@dataclass(slots=True)
class Meter:
    """Filled in by whoever reads the reply; read when the attempt ends, however it ends."""

    started: float = field(default_factory=time.perf_counter)
    sent: bool = False
    """The request may have reached the provider: from here on it may cost."""
    status: int | None = None
    first_token: float | None = None
    """Seconds from the attempt's start to its first token."""
    emitted: bool = False
    """Something was handed on: there is no going back to another provider."""
    race: Race | None = None
    """Whom this attempt runs against, if it was hedged."""
    usage: Usage | None = None
    finish: FinishReason | None = None
    model: str | None = None
    thinks: bool = False
    """The model was asked to reason, which it may do out of sight."""
    text_bytes: int = 0
    """Bytes of answer received, for an estimate if the provider tells no usage."""

    def emit(self) -> None:
        """Say that something is about to be handed on; raises CancelledError if another
        attempt was first."""
        if self.race is not None and not self.emitted:
            self.race.win(self)
        self.emitted = True

    def token(self, size: int) -> None:
        """So many bytes of answer came in."""
        if self.first_token is None:
            self.first_token = time.perf_counter() - self.started
        self.text_bytes += size
