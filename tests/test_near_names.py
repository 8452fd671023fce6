"""The name that was meant, for hints."""

from __future__ import annotations

import pytest

from holdfast.near_names import did_you_mean, near_name

NAMES = ["run", "runs", "repo", "batch", "sandbox", "store", "schedules"]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("rusn", "runs"),
        ("urn", "run"),
        ("sandobx", "sandbox"),
        ("schedule", "schedules"),
        ("stor", "store"),
        ("zzzz", None),
        ("", None),
    ],
)
def test_the_likeliest_slip_is_undone(typed: str, meant: str | None) -> None:
    assert near_name(typed, NAMES) == meant


def test_where_nothing_is_near_something_else_is_said() -> None:
    assert did_you_mean("bacth", NAMES, "see --help") == "did you mean 'batch'?"
    assert did_you_mean("zzzz", NAMES, "see --help") == "see --help"
