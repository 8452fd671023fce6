"""What is known of one provider attempt while it runs."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from holdfast.gateway.reply import FinishReason, Usage


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
    usage: Usage | None = None
    finish: FinishReason | None = None
    model: str | None = None
    text_bytes: int = 0
    """Bytes of answer received, for an estimate if the provider tells no usage."""

    def token(self, size: int) -> None:
        """So many bytes of answer came in."""
        if self.first_token is None:
            self.first_token = time.perf_counter() - self.started
        self.text_bytes += size
