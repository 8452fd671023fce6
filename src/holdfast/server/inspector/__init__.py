"""The inspector: pages that show every run, step, model call and sandbox, live.

Server-rendered from the store by read-only questions; one small module of script makes them live.
What the pages do to runs goes through the same client as everyone else's. Who may see them is
`server.security`'s to say.
"""

from __future__ import annotations

from holdfast.server.inspector.routes import router

__all__ = ["router"]
