"""Google's own SDK, loaded without its warnings: its source has escapes that Python warns of."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    genai: Any = importlib.import_module("google.genai")
    errors: Any = importlib.import_module("google.genai.errors")
    types: Any = importlib.import_module("google.genai.types")

__all__ = ["errors", "genai", "types"]
