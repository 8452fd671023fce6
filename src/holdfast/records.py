"""What is stored and shown: the records every layer speaks of.

Plain frozen dataclasses; how they are kept is the store's business.
"""

from __future__ import annotations
