"""Google's own SDK, loaded without its warnings: its source has escapes that Python warns of."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from google import genai
    from google.genai import errors, types

__all__ = ["errors", "genai", "types"]
