"""The page of a run as a story: what was asked, said, called, written and tested, in order."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request

from holdfast.server import views
from holdfast.server.inspector import run as run_pages
from holdfast.server.inspector.pages import Page, inspection, mask, whole
from holdfast.server.inspector.payloads import Shown
from holdfast.server.inspector.run_data import Loaded, load
from holdfast.server.inspector.story import STEPS, Entry, is_conversation, read_story
from holdfast.store.inspection import View


async def transcript_page(request: Request) -> Page:
    """What the model said and what the tests answered, in order."""
    now, masked = time.time(), mask(request)
    first = whole(request, "from", 0, 0, 1_000_000)

    def ask(
        view: View,
    ) -> tuple[Loaded, list[Entry], Shown | None, Shown | None]:
        loaded = load(view, request.path_params["run_id"])
        entries = read_story(view, loaded, first, STEPS, masked)
        input = run_pages.shown(view, loaded.run.id, 1, masked)
        result = loaded.result
        end = None
        if result is not None:
            end = run_pages.shown(view, loaded.run.id, result.seq, masked)
        return loaded, entries, input, end

    loaded, entries, input, result = await inspection(request).ask(ask)
    context = {
        **run_pages.common(loaded, now, "transcript", input, masked),
        "entries": entries,
        "conversation": is_conversation(loaded.steps),
        "first": first,
        "total": len(loaded.steps),
        "rows": STEPS,
        "result": result,
        "chosen": False,
    }
    return run_pages.page_of(loaded, "transcript.html", context, lambda: _as_json(loaded, entries))


def _as_json(loaded: Loaded, entries: Sequence[Entry]) -> dict[str, Any]:
    return {
        "run": views.run_json(loaded.run),
        "entries": [
            {
                "step": entry.step.key,
                "name": entry.step.name,
                "round": entry.step.round,
                "said": ["".join(part.text for part in said.speech) for said in entry.said],
                "filename": entry.filename or None,
                "passed": entry.passed,
                "verdict": entry.verdict or None,
                "answer": entry.answer or None,
                "heard": entry.heard or None,
                "decision": None if entry.question is None else entry.question.status,
                "error": None if entry.error is None else str(entry.error),
            }
            for entry in entries
        ],
    }
