"""`holdfast doctor` on a project: formats, baseline, waivers, exit codes."""

import json
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from cli.conftest import Holdfast

HEALTHY = Path(__file__).parent.parent / "ready" / "healthy"
WAIVER = """
[[project.waivers]]
point = "HF10"
by = "ada"
why = "it comes with the next release"
until = "{until}"
"""


@pytest.fixture
def project(holdfast: Holdfast) -> Path:
    """The healthy project in the command's folder, with runs that have no deadline."""
    for file in HEALTHY.glob("*.*"):
        shutil.copy(file, holdfast.folder)
    code = holdfast.folder / "desk.py"
    code.write_text(code.read_text().replace('@workflow(timeout="3d", ', "@workflow("))
    return holdfast.folder


def test_a_project_is_found_by_its_file_and_its_failures_are_told(
    holdfast: Holdfast, project: Path
) -> None:
    done = holdfast("doctor", "--static")
    assert done.code == 1, done.err
    assert (
        "✗ HF10" in done.out
        and "desk.py:" in done.out
        and "fix: give each workflow one" in done.out
    )
    assert "see: docs/reference/doctor.md#hf10" in done.out
    assert done.out.splitlines()[-1].startswith("14 of 28 proven, 1 failed, 13 not exercised")
    only = holdfast("doctor", str(project / "desk.py"), "--static", "--only", "hf01", "--json").json
    assert [point["id"] for point in only["points"]] == ["HF01"] and only["ok"]


def test_machines_get_sarif_junit_markdown_and_json(holdfast: Holdfast, project: Path) -> None:
    def told(format: str) -> str:
        return holdfast(
            "doctor", "--static", "--only", "HF10", "--only", "HF05", "--format", format
        ).out

    (result,) = json.loads(told("sarif"))["runs"][0]["results"]
    assert result["ruleId"] == "HF10" and result["level"] == "error"
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "desk.py"
    cases = {
        case.get("name", "")[:4]: case for case in ET.fromstring(told("junit")).iter("testcase")
    }
    assert cases["HF10"].find("failure") is not None and cases["HF05"].find("skipped") is not None
    assert "| [HF10](docs/reference/doctor.md#hf10)" in told("md")
    points = {each["id"]: each for each in json.loads(told("json"))["points"]}
    assert points["HF05"]["verdict"] == "not exercised"


def test_what_the_baseline_lists_is_known_and_what_is_new_fails(
    holdfast: Holdfast, project: Path
) -> None:
    static = ("doctor", "--static", "--only", "HF10", "--only", "HF06")
    assert "1 findings" in holdfast(*static, "--write-baseline", "known.json").err
    known = holdfast(*static, "--baseline", "known.json")
    assert known.code == 0 and "(in the baseline)" in known.out
    code = project / "desk.py"
    code.write_text(code.read_text().replace('@workflow(timeout="1h")', "@workflow"))
    assert holdfast(*static, "--baseline", "known.json").code == 1
    assert holdfast(*static, "--baseline", "missing.json").code == 2


def test_a_waiver_says_who_and_why_and_ends(holdfast: Holdfast, project: Path) -> None:
    toml = project / "holdfast.toml"
    plain = toml.read_text()
    toml.write_text(plain + WAIVER.format(until="2999-01-31"))
    waived = holdfast("doctor", "--static", "--only", "HF10")
    assert waived.code == 0
    assert "○ HF10 runs have a deadline: waived by ada until 2999-01-31: it comes" in waived.out
    toml.write_text(plain + WAIVER.format(until="2020-01-31"))
    assert holdfast("doctor", "--static", "--only", "HF10").code == 1


def test_wrong_usage_and_broken_projects_are_explained(holdfast: Holdfast, project: Path) -> None:
    assert "points are HF01 to HF28" in holdfast("doctor", "--only", "HF99").err
    assert holdfast("doctor", "nowhere").code == 3
    (project / "desk.py").write_text("import nothing_of_that_name\n")
    broken = holdfast("doctor", "--static")
    assert broken.code == 2 and "nothing_of_that_name" in broken.err
