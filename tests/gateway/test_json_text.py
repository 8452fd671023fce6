"""JSON as the gateway reads and writes it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import json_text

DATA: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)  # fmt: skip


@given(DATA)
def test_what_is_written_reads_back_lone_surrogates_too(data: Any) -> None:
    text = json_text.dump(data).decode("utf-8", "surrogatepass")
    assert json.loads(text) == data
    assert json_text.load(json.dumps(data)) == data


@pytest.mark.parametrize("text", [b"", b"{", b'{"a": }', b"\xff", b"[" * 100_000])
def test_what_is_no_json_raises(text: bytes) -> None:
    with pytest.raises((ValueError, RecursionError)):
        json_text.load(text)


def test_it_is_compact_and_readable() -> None:
    assert json_text.dump({"a": (1, "é")}) == '{"a":[1,"é"]}'.encode()
