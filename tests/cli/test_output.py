"""What is printed is safe and readable."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli import output

UNSAFE = [*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), "\u202e", "\u2028", "\ud800"]


@given(st.text() | st.text(st.sampled_from([*UNSAFE, "a", "\\"])))
def test_no_control_character_gets_through(text: str) -> None:
    shown = output.plain(text)
    assert not set(shown) & set(UNSAFE)
    shown.encode()


@given(st.text(), st.integers(2, 40))
def test_short_text_is_short(text: str, width: int) -> None:
    assert len(output.short(text, width)) <= width


def test_short_text_is_whole_when_it_fits() -> None:
    assert output.short("abc", 3) == "abc"
    assert output.short("abcd", 3) == "ab…"


@given(st.recursive(st.text() | st.integers() | st.none(), st.lists))
def test_json_is_safe_and_still_the_same(value: object) -> None:
    import contextlib
    import io

    with contextlib.redirect_stdout(io.StringIO()) as printed:
        output.show_json({"value": value})
    text = printed.getvalue()
    assert not set(text[:-1]) & set(UNSAFE)
    assert json.loads(text) == {"value": value}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.004, "0.00 s"),
        (2.14, "2.1 s"),
        (66, "1 m 6 s"),
        (7200, "2.0 h"),
        (302400, "3.5 d"),
        (-1, "0.00 s"),
    ],
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert output.duration(seconds) == text
