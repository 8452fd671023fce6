"""`holdfast run --evidence` and `holdfast verify`: a pass that can be checked elsewhere."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from .conftest import Holdfast

TASK = "Write is_palindrome"


@pytest.fixture
def evidence(holdfast: Holdfast, tmp_path: Path) -> Path:
    folder = tmp_path / "evidence"
    done = holdfast("run", TASK, "--check-tests", "quick", "--evidence", str(folder))
    assert done.code == 0, done
    return folder


def test_evidence_holds_on_being_run_again_and_not_when_a_file_was_changed(
    holdfast: Holdfast, evidence: Path
) -> None:
    about = json.loads((evidence / "evidence.json").read_text())
    assert about["passed"] and about["level"] == "isolated" and about["task"] == TASK
    assert about["mutation"]["tried"] > 0 and about["trials"][-1]["passed"]
    assert set(about["files"]) >= {"solution.py", "test_solution.py", "trials/1/solution.py"}
    done = holdfast("verify", str(evidence))
    assert done.code == 0 and "it holds" in done.out, done
    (evidence / "test_solution.py").write_text("def test_nothing():\n    pass\n")
    done = holdfast("verify", str(evidence), "--json")
    assert done.code == 1
    assert json.loads(done.out)["differs"] == ["test_solution.py was changed"]


def test_evidence_that_claims_more_than_is_true_does_not_hold(
    holdfast: Holdfast, evidence: Path
) -> None:
    """Hashes can be written anew by anybody: it is the tests that are run again."""
    wrong = "def is_palindrome(text: str) -> bool:\n    return True\n"
    (evidence / "solution.py").write_text(wrong)
    about = json.loads((evidence / "evidence.json").read_text())
    about["files"]["solution.py"] = hashlib.sha256(wrong.encode()).hexdigest()
    (evidence / "evidence.json").write_text(json.dumps(about))
    done = holdfast("verify", str(evidence))
    assert done.code == 1 and "the tests: " in done.out, done


def test_a_folder_without_evidence_is_not_found(holdfast: Holdfast, tmp_path: Path) -> None:
    done = holdfast("verify", str(tmp_path))
    assert done.code == 3 and "there is no evidence.json" in done.err
    (tmp_path / "evidence.json").write_text('{"format": 1, "files": {"../x": "0"}}')
    assert holdfast("verify", str(tmp_path)).code == 2
