"""Where the store is unless somebody says."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.runtime import ambient


@pytest.mark.parametrize(
    ("named", "path"),
    [("jobs.db", "jobs.db"), ("", ambient.DEFAULT_STORE), (None, ambient.DEFAULT_STORE)],
)
def test_an_empty_variable_names_no_store(
    named: str | None, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_STORE", raising=False)
    if named is not None:
        monkeypatch.setenv("HOLDFAST_STORE", named)
    assert ambient.default_path() == Path(path)
