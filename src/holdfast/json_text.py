"""JSON, compact, read and written by pydantic's core: some four times as quick as `json`.

Where it can't, `json` does it: lone surrogates, which models do write, are read and written.
What is no JSON raises ValueError or RecursionError, as with `json`. Loaded when first used, so
that importing stays quick.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@cache
def _core() -> Any:
    import pydantic_core

    return pydantic_core


def dump(data: object) -> bytes:
    """Compact JSON as bytes; tuples become arrays."""
    try:
        return _core().to_json(data)
    except ValueError:
        return _encode(data).encode("utf-8", "surrogatepass")


def load(text: bytes | str) -> Any:
    """The data in a JSON text."""
    try:
        return _core().from_json(text)
    except ValueError:
        return json.loads(text)
