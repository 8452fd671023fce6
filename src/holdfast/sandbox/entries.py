"""How sandboxes and commands are written down: what belongs to a step, what is kept of output."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypedDict

from holdfast.records.sandboxes import CommandRecord
from holdfast.sandbox.command import Stream
from holdfast.sandbox.results import CommandResult
from holdfast.session import current_step

TAIL = 64 * 1024
"""Bytes of the end of a command's output that are put on record, of each stream."""

_CREDENTIALS = re.compile(r"^([a-z][a-z0-9+.-]*://)[^/?#]*@", re.IGNORECASE)


class OfStep(TypedDict):
    """The fields of a record that say which step it belongs to."""

    run_id: str | None
    workflow: str | None
    step: str | None
    step_key: str | None
    attempt: int | None


def of_step() -> OfStep:
    """The step that is executing, as fields of a record."""
    step = current_step()
    if step is None:
        return OfStep(run_id=None, workflow=None, step=None, step_key=None, attempt=None)
    return OfStep(
        run_id=step.run_id,
        workflow=step.workflow,
        step=step.step,
        step_key=step.key,
        attempt=step.attempt,
    )


def shown(source: str) -> str:
    """A source as it may be written down: without the user and password of an address."""
    return _CREDENTIALS.sub(r"\1", source)


def with_end(
    record: CommandRecord, result: CommandResult, written: Mapping[Stream, int]
) -> CommandRecord:
    """The record of a command that has ended, with the end of what it wrote."""
    out, err = tail(result.stdout_bytes), tail(result.stderr_bytes)
    return replace(
        record,
        ended_at=datetime.now(UTC),
        ended=result.ended.value,
        exit_code=result.exit_code,
        signal=result.signal,
        seconds=result.seconds,
        limits_hit=tuple(sorted(limit.value for limit in result.limits_hit)),
        stdout_bytes=written["stdout"],
        stderr_bytes=written["stderr"],
        stdout_tail=out.decode("utf-8", "replace"),
        stderr_tail=err.decode("utf-8", "replace"),
        stdout_cut=written["stdout"] - len(out),
        stderr_cut=written["stderr"] - len(err),
        cpu_seconds=result.cpu_seconds,
        peak_memory=result.peak_memory,
    )


def tail(data: bytes) -> bytes:
    """The end of what was written, not beginning inside a character."""
    if len(data) <= TAIL:
        return data
    end = data[-TAIL:]
    inside = next((i for i in range(4) if end[i] & 0xC0 != 0x80), 0)
    return end[inside:]
