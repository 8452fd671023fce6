"""Secrets out of what is kept and shown: known key values, and what looks like a secret."""

from __future__ import annotations

import re
from collections.abc import Iterable

MASK = "[redacted]"
_SHAPES = (
    r"sk-[A-Za-z0-9_-]{16,}",
    r"hf_gw_[A-Za-z0-9_-]{16,}",
    r"gsk_[A-Za-z0-9]{16,}",
    r"xai-[A-Za-z0-9]{16,}",
    r"AIza[A-Za-z0-9_-]{30,}",
    r"gh[pousr]_[A-Za-z0-9]{30,}",
    r"github_pat_[A-Za-z0-9_]{30,}",
    r"glpat-[A-Za-z0-9_-]{18,}",
    r"(?:AKIA|ASIA)[A-Z0-9]{16}",
    r"xox[abprs]-[A-Za-z0-9-]{10,}",
    r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?-----END [A-Z ]*PRIVATE KEY-----",
    r"(?i:bearer\s+)[A-Za-z0-9._~+/=-]{16,}",
    r"(?<=://)[^\s/:@\"']+:[^\s/@\"']+(?=@)",
)


class Redactor:
    """Replaces secrets by a mask; the same text in, the same text out."""

    def __init__(self, values: Iterable[str] = (), patterns: Iterable[str] = ()) -> None:
        known = sorted({value for value in values if len(value) >= 6}, key=len, reverse=True)
        shapes = [*(re.escape(value) for value in known), *_SHAPES, *patterns]
        self._pattern = re.compile("|".join(f"(?:{shape})" for shape in shapes))

    def __call__(self, text: str) -> str:
        return self._pattern.sub(MASK, text)
