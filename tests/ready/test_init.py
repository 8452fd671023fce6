"""`holdfast init`: never over files, updates that lose no line, the schema of holdfast.toml."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.config import sections
from holdfast.cli.main import main
from holdfast.errors import Refused, UsageError
from holdfast.ready.init_project import RECORD, TEMPLATES, create, rendered, update
from holdfast.ready.three_way_merge import MIDDLE, MINE, THEIRS, merge
from holdfast.ready.toml_schema import schema

Lines = st.lists(st.sampled_from([f"{c}\n" for c in "abcdefgh"]), max_size=12).map("".join)


def test_nothing_is_written_where_a_file_of_the_template_is(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text("mine")
    with pytest.raises(Refused, match=r"agent\.py"):
        create(tmp_path, "durable", "desk")
    assert [p.name for p in tmp_path.iterdir()] == ["agent.py"]
    with pytest.raises(UsageError, match="no template"):
        create(tmp_path, "nothing", "desk")


def test_without_a_terminal_nothing_is_asked(tmp_path: Path, capsys: Any) -> None:
    assert main(["init", str(tmp_path / "my desk")]) == 0
    assert json.loads((tmp_path / "my desk" / RECORD).read_text())["template"] == "durable"
    assert "my-desk.service" in capsys.readouterr().out
    assert main(["init", str(tmp_path / "my desk")]) == 3


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_profile_of_every_template_is_understood(
    template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.cli.config import check_configuration

    create(tmp_path, template, "desk")
    monkeypatch.chdir(tmp_path)
    for profile in ("dev", "ci", "staging", "prod"):
        monkeypatch.setenv("HOLDFAST_PROFILE", profile)
        check_configuration()
    assert not any(re.search(r"(?<!\$){{", text) for text in rendered(template, "desk").values())


@given(Lines, Lines, Lines)
def test_a_merge_keeps_every_line_that_the_user_added(base: str, mine: str, theirs: str) -> None:
    merged, clash = merge(base, mine, theirs)
    assert clash == any(mark in merged for mark in (MINE, MIDDLE, THEIRS))
    for line in set(mine.splitlines()) - set(base.splitlines()):
        assert merged.splitlines().count(line) >= mine.splitlines().count(line)
    assert merge(base, mine, base) == (mine, False)
    assert merge(base, base, theirs) == (theirs, False)


def test_changes_of_both_sides_in_different_places_are_both_taken() -> None:
    base = "a\nb\nc\nd\ne\n"
    assert merge(base, "a\nB\nc\nd\ne\n", "a\nb\nc\nd\nE\n") == ("a\nB\nc\nd\nE\n", False)


def test_an_update_over_edited_projects_loses_no_line_of_the_user(tmp_path: Path) -> None:
    create(tmp_path, "durable", "desk")
    mine = (tmp_path / "agent.py").read_text().replace("40 paid", "90 paid") + "\nEXTRA = 1\n"
    (tmp_path / "agent.py").write_text(mine)
    (tmp_path / "Dockerfile").unlink()
    now = rendered("durable", "desk")
    now["agent.py"] = now["agent.py"].replace('timeout="30s"', 'timeout="20s"')
    now["Dockerfile"] += "# new\n"
    now["NOTES.md"] = "new in this version\n"
    done = update(tmp_path, now)
    text = (tmp_path / "agent.py").read_text()
    assert "90 paid" in text and "EXTRA = 1" in text and 'timeout="20s"' in text
    assert done.conflicts == [] and set(done.changed) == {"agent.py", "NOTES.md"}
    assert not (tmp_path / "Dockerfile").exists()
    assert update(tmp_path, now).changed == []


def test_the_schema_knows_what_the_configuration_knows() -> None:
    made = schema(sections())
    assert set(made["properties"]) == {"profile", "store", "engine", "profiles", *sections()}

    def known(table: dict[str, Any], data: dict[str, Any]) -> None:
        for key, value in data.items():
            inner = table["properties"].get(key) or table.get("additionalProperties")
            assert inner, key
            if isinstance(value, dict) and "properties" in inner:
                known(inner, value)

    for template in TEMPLATES:
        data = tomllib.loads(rendered(template, "desk")["holdfast.toml"])
        for profile in data.pop("profiles").values():
            known(made["properties"]["profiles"]["additionalProperties"], profile)
        known(made, data)
