"""What runs are about, so that they can be told apart: task or arguments, model, cost."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

from holdfast.records.calls import NANO
from holdfast.store import opener
from holdfast.store.inspection import Spent, View

_TASKS = ("task", "issue", "prompt", "question", "message")
"""Arguments that say what is wanted in a person's words, as agents call them."""


@dataclass(frozen=True)
class About:
    """Of one run."""

    words: str
    """The task, or the arguments."""
    spent: Spent

    @property
    def cost_text(self) -> str:
        if not self.spent.calls:
            return ""
        return f"${Decimal(self.spent.cost) / NANO:.3f}{'+?' if self.spent.unpriced else ''}"

    def as_json(self) -> dict[str, Any]:
        return {
            "about": self.words,
            "model": self.spent.model or None,
            "calls": self.spent.calls,
            "tokens": self.spent.tokens,
            "cost": float(Decimal(self.spent.cost) / NANO) if self.spent.calls else None,
        }


async def about_runs(store: Path, ids: Sequence[str]) -> dict[str, About]:
    """What each of these runs is about."""

    def ask(view: View) -> dict[str, About]:
        return {id: _about(view, id) for id in ids}

    inspection = opener.inspection(store)
    try:
        return await inspection.ask(ask)
    finally:
        inspection.close()


def _about(view: View, run_id: str) -> About:
    spent = sum(view.spent_by_step(run_id).values(), Spent())
    return About(in_words(view.run_input(run_id)), spent)


def in_words(raw: bytes | str) -> str:
    """Arguments on one line: the task in words, or `name=value`; of a long input its beginning."""
    text = raw.decode(errors="replace") if isinstance(raw, bytes) else raw
    try:
        found: Any = json.loads(text)
    except ValueError:  # cut off
        return " ".join(re.sub(r'[{}"]', " ", text[:200]).split())
    if not isinstance(found, dict):
        return ""
    given = cast("dict[str, Any]", found)
    for name in _TASKS:
        if isinstance(given.get(name), str):
            return " ".join(given[name].split())
    shown = [
        f"{name}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in given.items()
        if value is not None
    ]
    return " ".join(" ".join(shown).split())
