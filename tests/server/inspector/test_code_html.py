"""Patches, comparisons and forms, as the pages show them."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal

from holdfast import workflow
from holdfast.runtime.step_records import StepRecord
from holdfast.server.inspector.actions import fields_of
from holdfast.server.inspector.code_html import patch_bytes, repair_of, view_of
from holdfast.server.inspector.compare import pairs_of
from holdfast.server.inspector.payloads import field
from holdfast.server.inspector.run_data import is_inner, label_of

PATCH = """\
diff --git a/a b.py b/a b.py
index 1..2 100644
--- a/a b.py
+++ b/a b.py
@@ -3,3 +3,4 @@ def f() -> None:
 x = 1
-y = "<script>"
+y = 2
+--z
 # end
\\ No newline at end of file
diff --git a/logo.png b/logo.png
Binary files a/logo.png and b/logo.png differ
"""


def test_a_patch_is_told_by_files_and_numbered_lines() -> None:
    code, logo = view_of(PATCH).files
    assert (code.path, code.how, code.added, code.removed) == ("a b.py", "changed", 2, 1)
    assert [(line.kind, line.old, line.new) for line in code.lines] == [
        ("gap", None, None),
        ("same", 3, 3),
        ("removed", 4, None),
        ("added", None, 4),
        ("added", None, 5),
        ("same", 5, 6),
    ]
    assert "&lt;script&gt;" in code.lines[2].html
    assert (logo.path, logo.how, logo.lines) == ("logo.png", "binary", [])


def test_what_is_no_patch_is_no_result_of_a_repo_run() -> None:
    assert view_of("nothing of the kind").files == []
    assert view_of("@@ -1 +1 @@\n+a").files == []
    assert repair_of({"patch": "text"}) is None
    assert repair_of({"patch": {"text": PATCH}}) is None
    assert repair_of(None) is None


def test_a_patch_is_downloaded_exact_to_the_byte() -> None:
    assert patch_bytes({"patch": {"text": "caf\xe9", "encoding": "latin-1"}}) == b"caf\xe9"
    assert patch_bytes({"patch": {"text": "caf\xe9", "encoding": "utf-8"}}) == "café".encode()


def step(key: str, name: str, **more: object) -> StepRecord:
    return StepRecord(key, "step", name, 1, 0.0, 1, ended_at=1.0, status="completed", **more)  # type: ignore[arg-type]


def test_two_runs_differ_where_a_step_an_input_or_a_result_does() -> None:
    left = [step("0/0", "a", output_seq=2), step("0/1", "b", output_seq=2), step("0/2", "c")]
    right = [step("0/0", "a", output_seq=2), step("0/1", "b", output_seq=2), step("0/3", "d")]

    def read(values: dict[str, bytes]):
        return lambda step, which: values.get(f"{step.name} {which}")

    pairs = pairs_of(left, right, read({"b output": b"1"}), read({"b output": b"2"}))
    assert [(pair.key, pair.differs) for pair in pairs] == [
        ("0/0", ()),
        ("0/1", ("result",)),
        ("0/2", ("step",)),
        ("0/3", ("step",)),
    ]


@workflow
async def shaped(
    name: str,
    count: int = 3,
    loud: bool = True,
    size: Literal["s", "m"] = "m",
    model: str | None = None,
    level: Literal["off", "quick"] | None = None,
    budget: Decimal | None = None,
    packages: tuple[str, ...] = (),
    places: dict[str, int] | None = None,
) -> None:
    """Has an argument of every shape."""


def test_a_form_asks_for_each_argument_by_its_type_and_says_what_it_is_unless_given() -> None:
    found = fields_of(shaped)
    assert found is not None
    assert [(each.name, each.widget, each.value, each.hint) for each in found] == [
        ("name", "text", "", ""),
        ("count", "number", "", "3 unless given"),
        ("loud", "checkbox", "on", ""),
        ("size", "choice", "", "m unless given"),
        ("model", "text", "", ""),
        ("level", "choice", "", ""),
        ("budget", "either", "", ""),
        ("packages", "lines", "", ""),
        ("places", "json", "", ""),
    ]
    assert [each.name for each in found if each.required] == ["name"]
    assert found[5].choices == ("off", "quick")


def test_steps_of_agents_are_called_as_in_the_terminal_and_inner_ones_folded() -> None:
    assert label_of(step("0/0", "generate_text opus")) == "think"
    assert label_of(step("0/0", "charge")) == "charge"
    assert is_inner(step("0/0", "close_workspace"), repo=True)
    failed = step("0/0", "close_workspace")
    failed.status = "failed"
    assert not is_inner(failed, repo=True)


def test_json_within_text_is_shown_as_json() -> None:
    shown = field("arguments", '{"order": "A-1", "amount": 900}')
    assert shown.kind == "json"
    assert "\\" not in shown.html
    assert field("text", "{not json").kind == "value"
