"""A circuit breaker per provider: one that keeps failing is left alone for a while.

After the while, one call tries it; its success closes the circuit, its failure opens it again.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from holdfast.errors import ProviderUnavailable
from holdfast.gateway.config import Breaker


class Circuit:
    """The state of one provider."""

    def __init__(
        self, provider: str, config: Breaker, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._provider, self._config, self._now = provider, config, now
        self._failures = 0
        self._why = ""
        self._open_until: float | None = None
        self._trying = False

    @property
    def is_open(self) -> bool:
        return self._open_until is not None

    def enter(self) -> None:
        """Raise ProviderUnavailable while the circuit is open; let one call try it after."""
        if self._open_until is None:
            return
        left = self._open_until - self._now()
        if left > 0 or self._trying:
            raise ProviderUnavailable(
                f"{self._provider} failed {self._failures} times in a row and is left alone"
                f" for {max(left, 0):.0f} s more; the last time: {self._why}",
                retry_after=max(left, 0.0),
            )
        self._trying = True

    def succeeded(self) -> None:
        self._failures, self._open_until, self._trying = 0, None, False

    def failed(self, why: str) -> None:
        """The call failed by the provider's fault; `why` is told to those who come after."""
        self._why = why[:300]
        self._failures += 1
        self._trying = False
        if self._failures >= self._config.failures:
            self._open_until = self._now() + self._config.open_for

    def left(self) -> None:
        """The call ended without telling anything of the provider's health."""
        self._trying = False
