"""Evidence of a pass: a folder that says what was run and found, and can be checked elsewhere.

It holds the program and its tests, every trial on the way there with its verdict, the scores, the
versions, and the hash of each file. Checking it means to look at the hashes, run the tests on the
program anew and measure the tests again: what was written is compared, never believed. The folder
is not signed: it shows that its parts belong together, not who made it.
"""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, cast

from holdfast.agents.code import steps
from holdfast.agents.code.languages import language_named
from holdfast.agents.code.records import Evaluation, MutationScore, Task, TestCheck, Verdict
from holdfast.errors import NotFound, UsageError
from holdfast.records import Event, Run
from holdfast.runtime.codec import codec_for
from holdfast.runtime.step_records import steps_of

MANIFEST = "evidence.json"
FORMAT = 1
_MOST_FILES = 1000
SLACK = 0.05
"""How much less a score may be on another machine: a mutant that hangs is told by the time."""
_LEVELS = ("shared", "isolated")


# --- writing ---


def written(folder: Path, run: Run, journal: list[Event]) -> int:
    """Write the evidence of a run that has ended; the number of files."""
    evaluation: Evaluation = codec_for(Evaluation).decode(journal[-1].value or b"null", "$")
    given: dict[str, Any] = json.loads(journal[0].value or b"{}")
    files = {evaluation.code_file: evaluation.code, evaluation.test_file: evaluation.tests}
    trials: list[dict[str, Any]] = []
    check: TestCheck = "off"
    for step in steps_of(journal):
        asked = cast("dict[str, Any]", json.loads(step.input or b"{}"))
        if step.name == "check_tests" and step.output:
            check = asked["check"]
        if step.name == "run_tests" and step.output:
            place = f"trials/{len(trials) + 1}"
            files[f"{place}/{evaluation.code_file}"] = asked["code"]
            files[f"{place}/{evaluation.test_file}"] = asked["tests"]
            told = cast("dict[str, Any]", json.loads(step.output))
            trials.append({"files": place, "attempt": asked["attempt"], **told})
    if evaluation.cross_check is not None and evaluation.cross_check.code:
        files[f"cross_check/{evaluation.code_file}"] = evaluation.cross_check.code
    about = {
        "format": FORMAT,
        "run": run.id,
        "task": given["prompt"],
        "packages": given.get("packages", []),
        "check_tests": check,
        **_without(asdict(evaluation), "code", "tests", "output"),
        "mutation": _score(evaluation.mutation),
        "trials": trials,
        "versions": versions(),
        "files": {name: _hash(text.encode()) for name, text in sorted(files.items())},
    }
    files[MANIFEST] = json.dumps(about, indent=2, ensure_ascii=False, default=str) + "\n"
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return len(files)


def _score(found: MutationScore | None) -> dict[str, Any] | None:
    if found is None:
        return None
    survivors = [{"line": each.line, "diff": each.diff} for each in found.survivors]
    return {**asdict(found), "survivors": survivors, "score": found.score}


def _without(values: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def versions() -> dict[str, str]:
    """What the verdict was given with."""
    return {
        "holdfast": metadata.version("holdfast"),
        "pytest": metadata.version("pytest"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# --- checking ---


@dataclass(frozen=True, slots=True)
class Verification:
    """What came of checking evidence anew."""

    differs: tuple[str, ...]
    """In what it is not as written; nothing if all holds."""
    verdict: Verdict | None = None
    mutation: MutationScore | None = None
    notes: tuple[str, ...] = ()
    """What differs and need not matter: versions."""


async def verified(folder: Path) -> Verification:
    """Check the evidence in a folder: its hashes, then its verdict and score by running it."""
    about = _manifest(folder)
    wrong = _changed(folder, about["files"])
    if wrong:
        return Verification(tuple(wrong))
    language = language_named(about["language"])
    code = (folder / language.code_file).read_text(encoding="utf-8")
    tests = (folder / language.test_file).read_text(encoding="utf-8")
    task = Task(about["task"], language.name, packages=tuple(about["packages"]))
    verdict = await steps.try_out(task, code, tests)
    differs: list[str] = []
    last = about["trials"][-1] if about["trials"] else {"passed": False, "level": "shared"}
    if verdict.passed is not bool(about["passed"] or last["passed"]):
        differs.append(f"the tests: {verdict.summary}, and it was {about['summary']}")
    elif _LEVELS.index(verdict.level) < _LEVELS.index(str(about["level"])):
        why = f" ({verdict.why_shared})" if verdict.why_shared else ""
        differs.append(f"the level is {verdict.level}{why}, and it was {about['level']}")
    mutation = None
    noted = cast("dict[str, Any] | None", about["mutation"])
    if verdict.passed and noted is not None and noted.get("score") is not None:
        mutation = await steps.score(task, code, tests, about["check_tests"])
        if mutation.score is None or mutation.score < float(noted["score"]) - SLACK:
            differs.append(
                f"the tests: {mutation}, and it was {noted['refused']} of {noted['tried']}"
            )
    here = versions()
    notes = [
        f"{n} {here.get(n)}, and it was {v}"
        for n, v in about["versions"].items()
        if here.get(n) != v
    ]
    return Verification(tuple(differs), verdict, mutation, tuple(notes))


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        about = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotFound(
            f"there is no {MANIFEST} in {folder}", hint="holdfast run … --evidence DIR writes one"
        ) from None
    except (ValueError, OSError) as error:
        raise UsageError(f"{folder / MANIFEST} can't be read: {error}") from error
    wanted = {"format", "task", "language", "packages", "passed", "level", "summary", "trials",
              "files", "versions", "mutation", "check_tests"}  # fmt: skip
    if not isinstance(about, dict) or not wanted <= cast("dict[str, Any]", about).keys():
        raise UsageError(f"{folder / MANIFEST} is no evidence that this version knows")
    found = cast("dict[str, Any]", about)
    if found["format"] != FORMAT:
        raise UsageError(f"{folder / MANIFEST} has format {found['format']}, not {FORMAT}")
    return found


def _changed(folder: Path, files: dict[str, str]) -> list[str]:
    """The files that are not as they were: names stay within the folder."""
    wrong: list[str] = []
    for name, known in list(files.items())[:_MOST_FILES]:
        path = folder / name
        if ".." in Path(name).parts or Path(name).is_absolute():
            wrong.append(f"{name} is outside the folder")
        elif not path.is_file():
            wrong.append(f"{name} is missing")
        elif _hash(path.read_bytes()) != known:
            wrong.append(f"{name} was changed")
    return wrong
