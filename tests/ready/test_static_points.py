"""The points as far as code and configuration tell, on projects broken in exactly one."""

from pathlib import Path

import pytest

from ready.broken import BASELINE, STATIC, make
from ready.examining import examine_all, failing

Findings = dict[str, list[dict[str, str]]]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    root = tmp_path_factory.mktemp("projects")
    projects = {name: make(root / name, edits) for name, edits in STATIC.items()}
    projects["healthy"] = make(root / "healthy", [])
    for number, line in enumerate(BASELINE):
        projects[f"line{number}"] = make(root / f"line{number}", [("holdfast.toml", line, "")])
    return examine_all(projects, "S")


def test_the_healthy_project_fails_in_no_point_and_exercises_each(found: Findings) -> None:
    assert {each["outcome"] for each in found["healthy"]} == {"pass"}
    assert len({each["point"] for each in found["healthy"]}) == 19


@pytest.mark.parametrize("point", STATIC)
def test_a_project_broken_in_one_point_fails_in_that_one_alone(point: str, found: Findings) -> None:
    assert failing(found[point]) == {point}, found[point]


@pytest.mark.parametrize("point", sorted(set(STATIC) - {"HF06", "HF09", "HF16", "HF23", "HF28"}))
def test_what_is_wrong_in_the_code_is_named_by_file_and_line(point: str, found: Findings) -> None:
    wrong = [each for each in found[point] if each["outcome"] == "fail"]
    assert all(each["file"] == "desk.py" and int(each["line"]) > 10 for each in wrong)


@pytest.mark.parametrize("number", range(len(BASELINE)))
def test_a_production_line_that_is_taken_out_is_named(number: int, found: Findings) -> None:
    point, word = list(BASELINE.values())[number]
    wrong = [each for each in found[f"line{number}"] if each["outcome"] == "fail"]
    assert {each["point"] for each in wrong} == {point}
    assert any(word in each["message"] and each["file"] == "holdfast.toml" for each in wrong)


def test_sources_of_chance_are_found_under_other_names(tmp_path: Path) -> None:
    bodies = {
        "now": "from datetime import datetime as d\n@FLOW\nasync def a() -> str:\n    return str(d.now())\n",
        "random": "from random import choice as pick\n@FLOW\nasync def a() -> int:\n    return pick([1])\n",
        "uuid": "import uuid as u\n@FLOW\nasync def a() -> str:\n    return str(u.uuid4())\n",
        "environ": "import os\n@FLOW\nasync def a() -> str:\n    return os.environ['A']\n",
        "set": "@FLOW\nasync def a() -> list[int]:\n    return [n for n in {1, 2}]\n",
        "written": "N = 0\n@FLOW\nasync def a() -> None:\n    global N\n    N = 1\n",
    }
    fine = {
        "ours": "from holdfast import now, random, uuid4\n@FLOW\nasync def a() -> str:\n    return f'{now()} {random()} {uuid4()}'\n",
        "step": "import time\n@step(timeout='1s')\nasync def tell() -> float:\n    return time.time()\n@FLOW\nasync def a() -> float:\n    return await tell()\n",
        "name": "def time() -> int:\n    return 3\n@FLOW\nasync def a() -> int:\n    return time()\n",
    }
    head = "from holdfast import workflow, step\n"
    projects = {}
    for name, text in {**bodies, **fine}.items():
        root = tmp_path / name
        root.mkdir()
        (root / "app.py").write_text(head + text.replace("@FLOW", "@workflow(timeout='1h')"))
        projects[name] = root
    answers = examine_all(projects, "S")
    assert {name for name in projects if "HF04" in failing(answers[name])} == set(bodies)
