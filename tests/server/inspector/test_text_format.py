"""What pages say of numbers, payloads, code and spend."""

from __future__ import annotations

import json

import pytest

from holdfast.errors import UsageError
from holdfast.gateway.secrets import Redactor
from holdfast.runtime.step_records import StepRecord
from holdfast.server.inspector import text_format
from holdfast.server.inspector.actions import changed
from holdfast.server.inspector.code_html import diff, highlight
from holdfast.server.inspector.models import (
    by_model,
    chart_of,
    percentile,
    slice_start,
    slice_width,
)
from holdfast.server.inspector.payloads import SHOWN_TEXT, show
from holdfast.server.inspector.story import speech_of, story_of
from holdfast.store.inspection import Payload, Slice, Sum
from holdfast.store.ledger import CallTotals


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.0041, "4 ms"),
        (0.31, "0.31 s"),
        (6.2, "6.2 s"),
        (59.97, "1 m"),
        (66, "1 m 6 s"),
        (7200, "2.0 h"),
        (3.5 * 86400, "3.5 d"),
    ],
)
def test_lengths_of_time(seconds: float, said: str) -> None:
    assert text_format.duration(seconds) == said


@pytest.mark.parametrize(
    ("nano", "said"),
    [
        (None, ""),
        (0, "$0"),
        (14_100_000, "$0.0141"),
        (1_250_000_000, "$1.25"),
        (9, "<$0.0001"),
        (1_204_500_000_000, "$1,204.50"),
    ],
)
def test_money(nano: int | None, said: str) -> None:
    assert text_format.money(nano) == said


def test_a_payload_is_shown_by_field_with_text_as_text_and_code_in_colours() -> None:
    data = json.dumps(
        {"filename": "a.py", "code": "def f():\n    return '<b>'", "n": 3, "note": "one\ntwo"}
    ).encode()
    found = show(Payload(data, len(data)), 7, Redactor())
    fields = {field.name: field for field in found.fields}
    assert fields["n"].kind == "value"
    assert str(fields["note"].html) == "one\ntwo"
    assert '<span class="k">def</span>' in str(fields["code"].html)
    assert "<b>" not in str(fields["code"].html)
    assert "style=" not in str(fields["code"].html)


def test_secrets_are_masked_in_what_is_shown() -> None:
    data = json.dumps({"header": "Bearer abcdefghijklmnopqrstuvwxyz012345"}).encode()
    found = show(Payload(data, len(data)), 1, Redactor(["my-own-secret"]))
    assert "abcdefghij" not in str(found.fields)
    assert "[redacted]" in str(found.fields)


def test_what_is_large_is_cut_and_says_so() -> None:
    data = json.dumps({"text": "x" * (SHOWN_TEXT + 500)}).encode()
    found = show(Payload(data, len(data)), 1, str)
    assert not found.is_whole
    assert found.fields[0].cut == 500
    cut = show(Payload(b'{"a": "' + b"x" * 100, 50_000_000), 1, str)
    assert not cut.is_whole


def test_a_difference_shows_what_changed_with_a_little_around_it() -> None:
    before = "\n".join(f"line {n}" for n in range(40))
    found = diff(before, before.replace("line 20", "line <20>"), "")
    assert found is not None
    assert (found.added, found.removed) == (1, 1)
    kinds = [line.kind for line in found.lines]
    assert kinds == ["gap", *["same"] * 3, "removed", "added", *["same"] * 3, "gap"]
    assert str(found.lines[5].html) == "line &lt;20&gt;"
    assert (found.lines[5].new, found.lines[4].old) == (21, 21)
    assert diff("same", "same", "") is None


def test_colours_never_let_markup_through() -> None:
    for language in ("python", "json", "html", "no such language", ""):
        assert "<script" not in highlight("<script>alert(1)</script>", language)


def test_a_models_words_and_its_code_are_told_apart() -> None:
    parts = speech_of("Here:\n```python\nx = 1\n```\nDone.")
    assert [(part.text, part.language) for part in parts] == [
        ("Here:", ""),
        ("x = 1", "python"),
        ("Done.", ""),
    ]
    assert [part.text for part in speech_of("a\n```py\ncut off", with_code=True)] == [
        "a",
        "cut off",
    ]


def test_a_story_compares_code_with_the_last_version_of_the_same_step() -> None:
    steps = [
        StepRecord("0/0", "step", "generate_code", 1, 0, output_seq=2, round=1, status="completed"),
        StepRecord("0/1", "step", "run_tests", 3, 1, output_seq=4, round=1, passed=False),
        StepRecord("0/2", "step", "generate_code", 5, 2, output_seq=6, round=2, status="completed"),
        StepRecord("0/3", "step", "send_mail", 7, 3, output_seq=8, status="completed"),
    ]
    outputs = {
        2: {"code": "a = 1", "filename": "s.py"},
        4: {"passed": False, "summary": "1 failed", "output": "E assert"},
        6: {"code": "a = 2", "filename": "s.py"},
        8: {"sent": True},
    }
    first, verdict, second, other = story_of(steps, outputs, {})
    assert first.diff is None
    assert (verdict.passed, verdict.verdict, verdict.answer) == (False, "1 failed", "E assert")
    assert second.diff is not None
    assert second.compared_with == 1
    assert other.line == '{"sent": true}'


def test_spend_is_stacked_in_slices_under_a_round_amount() -> None:
    slices = [
        Slice(0, "a/x", CallTotals(2, cost=500_000_000, output_tokens=10)),
        Slice(0, "b/y", CallTotals(1, cost=200_000_000, output_tokens=5)),
        Slice(3, "a/x", CallTotals(1, cost=100_000_000, output_tokens=5)),
    ]
    chart = chart_of(slices, 0, 4 * 3600, 3600)
    assert chart.series == ["a/x", "b/y"]
    assert chart.total == 800_000_000
    assert chart.down[-1].label == "$0.80"
    lower, upper, last = chart.bars
    assert abs(lower.top + lower.height - 100) < 0.01
    assert abs(upper.top + upper.height - lower.top) < 0.01
    assert last.left > 75
    assert all(0 <= bar.top <= 100 and bar.left + bar.width <= 100 for bar in chart.bars)


def test_a_chart_of_nothing_has_an_axis() -> None:
    chart = chart_of([], 0, 3600, 300)
    assert (chart.bars, chart.total, chart.down[0].label) == ([], 0, "$0")


def test_many_models_are_drawn_as_the_largest_and_the_others() -> None:
    slices = [Slice(0, f"m/{n}", CallTotals(1, cost=10**9 * (n + 1))) for n in range(9)]
    assert len(chart_of(slices, 0, 3600, 3600).series) == 6
    assert chart_of(slices, 0, 3600, 3600).series[-1] == "others"


def test_slices_are_of_a_round_width() -> None:
    assert slice_width(3600) == 300
    assert slice_width(86400) == 1800
    assert slice_start(1003.0, 300) == 900


def test_percentiles_are_of_the_calls_that_succeeded() -> None:
    sums = [
        Sum("a/x", "a", "completed", 1.0, CallTotals(90, 90, 9, 9, 9, 0)),
        Sum("a/x", "a", "completed", 8.0, CallTotals(10, 10, 1, 1, 1, 0)),
        Sum("a/x", "", "failed", 60.0, CallTotals(5, 0, 0, 0, 0, 0)),
    ]
    (line,) = by_model(sums)
    assert (line.totals.calls, line.errors, line.p50, line.p95, line.totals.cost) == (
        105,
        5,
        1.0,
        8.0,
        10,
    )
    assert percentile({}, 0.5) is None
    assert percentile({2.0: 1}, 0.95) == 2.0


def test_only_edited_arguments_are_replaced_in_a_fork() -> None:
    assert changed(b'{"a": 1, "b": 2}', '{"a": 1, "b": 3}') == {"b": 3}
    assert changed(b'{"a": 1}', '{"a": 1}') is None
    with pytest.raises(UsageError, match="lacks b"):
        changed(b'{"a": 1, "b": 2}', '{"a": 1}')
    with pytest.raises(UsageError, match="no JSON"):
        changed(b'{"a": 1}', "{a: 1}")
