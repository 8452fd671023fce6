"""The page at /runs/ID/transcript: the run as a story."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request

from holdfast.gateway.canonical_json import recorded_reply, recorded_request
from holdfast.runtime.step_records import StepRecord
from holdfast.server import views
from holdfast.server.inspector import run as run_pages
from holdfast.server.inspector import transcript
from holdfast.server.inspector.pages import Page, inspection, mask, whole
from holdfast.server.inspector.payloads import SHOWN_BYTES, Mask, Shown
from holdfast.server.inspector.run_data import Loaded, load
from holdfast.server.inspector.transcript import Entry, RecordedCall
from holdfast.store.inspection import View

READ_BYTES = 8 * SHOWN_BYTES
"""A result larger than this is named, not told."""


async def transcript_page(request: Request) -> Page:
    """What the model said and what the tests answered, in order."""
    now, masked = time.time(), mask(request)
    first = whole(request, "from", 0, 0, 1_000_000)

    def ask(
        view: View,
    ) -> tuple[Loaded, list[Entry], Shown | None, Shown | None]:
        loaded = load(view, request.path_params["run_id"])
        told = loaded.steps[first : first + transcript.STEPS]
        before = _with_code_before(loaded.steps[:first], told)
        outputs = _outputs(view, loaded.run.id, [*before, *told], masked)
        entries = transcript.story_of(told, outputs, _calls(view, loaded, told), before)
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
        "first": first,
        "total": len(loaded.steps),
        "rows": transcript.STEPS,
        "result": result,
        "chosen": False,
    }
    return run_pages.page_of(loaded, "transcript.html", context, lambda: _as_json(loaded, entries))


def _with_code_before(
    earlier: Sequence[StepRecord], told: Sequence[StepRecord]
) -> list[StepRecord]:
    """The last step of each name before the page, for its code to be compared with."""
    names = {step.name for step in told}
    latest = {step.name: step for step in earlier if step.name in names and step.output_seq}
    return list(latest.values())


def _outputs(view: View, run_id: str, steps: Sequence[StepRecord], masked: Mask) -> dict[int, Any]:
    found: dict[int, Any] = {}
    for step in steps:
        seq = step.output_seq
        if seq is None or step.output_size > READ_BYTES:
            continue
        payload = view.payload(run_id, seq, 0, READ_BYTES)
        if payload is not None:
            try:
                found[seq] = json.loads(masked(payload.data.decode(errors="replace")))
            except ValueError:
                continue  # damaged: the events page shows it as it is
    return found


def _calls(
    view: View, loaded: Loaded, steps: Sequence[StepRecord]
) -> dict[str, list[RecordedCall]]:
    keys = {step.key for step in steps}
    found: dict[str, list[RecordedCall]] = {}
    for row in loaded.calls:
        if row.step_key is None or row.step_key not in keys:
            continue
        call = view.call(row.id)
        if call is not None:
            told = RecordedCall(row, recorded_request(call), recorded_reply(call))
            found.setdefault(row.step_key, []).append(told)
    return found


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
                "error": None if entry.error is None else str(entry.error),
            }
            for entry in entries
        ],
    }
