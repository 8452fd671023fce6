"""The OpenAPI document: what FastAPI knows, and how to come in."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

DESCRIPTION = """Durable runs over HTTP: start them, follow them, steer them.

Errors are `{"error": {"kind", "message", "hint"}}`. Times are seconds since 1970, UTC; money is
US dollars as text. Where the server has a token, send it as `Authorization: Bearer …`.
"""


def use_document(app: FastAPI) -> None:
    """Have the application give its document, made once, at its `openapi_url`."""
    made: list[dict[str, Any]] = []

    def document() -> dict[str, Any]:
        if not made:
            made.append(_document(app))
        return made[0]

    app.openapi = document  # type: ignore[method-assign]


def _document(app: FastAPI) -> dict[str, Any]:
    found = get_openapi(
        title=app.title, version=app.version, description=DESCRIPTION, routes=app.routes
    )
    found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    found["security"] = [{"token": []}, {}]
    for path, operations in found["paths"].items():
        for operation in operations.values():
            if not path.startswith("/api/"):
                operation["security"] = []
    return found
