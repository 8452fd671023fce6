"""What is refused, in a form that whoever asked can read: a page for people, JSON for programs.

A page is for a browser that says it takes one, anywhere but under `/api`. Status and headers are
the same in both forms.
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import HoldfastError
from holdfast.server.inspector.pages import error_page
from holdfast.server.replies import error_headers, error_reply


def wants_page(request: Request) -> bool:
    """Whether a person is there to read a page."""
    path: str = request.scope["path"]
    if path == "/api" or path.startswith("/api/") or path.endswith(".json"):
        return False
    return "text/html" in request.headers.get("accept", "")


def refusal(
    request: Request,
    error: HoldfastError,
    headers: Mapping[str, str] | None = None,
    *,
    bare: bool = False,
) -> Response:
    """The answer that an error stands for. `bare`: to somebody who may not see the other pages."""
    if not wants_page(request):
        return error_reply(error, headers)
    return error_page(request, error, error_headers(error, headers), bare=bare)
