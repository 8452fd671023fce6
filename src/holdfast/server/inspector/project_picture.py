"""The page with the picture of the project that the server was started with.

The project is loaded by a process of its own whenever the picture is asked for, so that it shows
the code as it is now; what was drawn a moment ago is shown again.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, cast

from markupsafe import Markup
from starlette.requests import Request

from holdfast.errors import NotFound, UsageError
from holdfast.ready import doctor, project
from holdfast.ready.blueprint_page import drawing
from holdfast.ready.user_modules import is_file_name
from holdfast.server.inspector.pages import Page

REUSE_SECONDS = 15.0
"""A picture costs a second or two of processor time."""


class ProjectPicture:
    """The picture of a project, drawn when somebody asks and not more often than it may change."""

    def __init__(self, root: Path, app: tuple[str, ...], store: str) -> None:
        self._root, self._app, self._store = root, app, store
        self._drawn: dict[str, Any] | None = None
        self._at = 0.0
        self._one = asyncio.Lock()

    @classmethod
    def of_this_folder(cls, modules: tuple[str, ...], store: str) -> ProjectPicture | None:
        """Of what the server was given to carry out, or of the folder's `[project]`."""
        root = _folder_of(modules) if modules else project.find(None)
        return None if root is None else cls(root, modules, store)

    async def told(self) -> tuple[dict[str, Any], float]:
        """The picture as JSON, and when it was drawn."""
        async with self._one:
            if self._drawn is None or time.monotonic() - self._at > REUSE_SECONDS:
                self._drawn = await asyncio.to_thread(
                    doctor.blueprint, self._root, app=self._app, store=self._store
                )
                self._at = time.monotonic()
            return self._drawn, time.time() - (time.monotonic() - self._at)


def _folder_of(modules: tuple[str, ...]) -> Path:
    """This folder, unless files of elsewhere were named."""
    here = Path.cwd()
    files = [Path(each).resolve() for each in modules if is_file_name(each)]
    return next((file.parent for file in files if not file.is_relative_to(here)), here)


async def picture_page(request: Request) -> Page:
    """The page at /blueprint."""
    picture = cast("ProjectPicture | None", request.app.state.picture)
    if picture is None:
        raise NotFound(
            "this server was started with no project",
            hint="holdfast serve agent.py, or a [project] section in holdfast.toml",
        )
    context: dict[str, Any] = {"log": 0, "problem": None, "drawing": "", "drawn_at": 0.0}
    told: dict[str, Any] = {}
    try:
        told, context["drawn_at"] = await picture.told()
        # Everything in it that is the project's is escaped where it is drawn.
        context["drawing"] = Markup(drawing(told, runs="/runs/"))  # noqa: S704
    except UsageError as error:
        context["problem"] = error
    title = f"Blueprint of {told['project']}" if told else "Blueprint"
    return Page("blueprint.html", title, "blueprint", context, lambda: told)
