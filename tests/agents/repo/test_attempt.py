"""Rounds, bounds, several tries, and what becomes of tests."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from agents.repo import repos
from agents.repo.conftest import Repairing, as_say, edit, finish
from agents.repo.repos import git, make, write
from holdfast import RunFailed, list_runs
from holdfast.gateway import Fail, Gateway, Say, ScriptedModel
from holdfast.gateway.messages import Request

PATH, OLD, NEW = repos.SLUGS_FIX
HALF = NEW.replace('.strip("-")', "")
TEST = "tests/test_slug.py"


def tool_results(request: Request) -> list[str]:
    return [
        "".join(getattr(piece, "text", "") for piece in part.content)
        for message in request.messages
        if message.role == "tool"
        for part in message.parts
        if hasattr(part, "content")
    ]


async def test_a_failure_is_told_and_healed(repair: Repairing, tmp_path: Path) -> None:
    repo = make(tmp_path / "slugs", repos.SLUGS)
    asked: list[Request] = []
    script = [edit((PATH, OLD, HALF)), finish("done?"), edit((PATH, HALF, NEW)), finish("done.")]

    def play(request: Request) -> Any:
        asked.append(request)
        return as_say(script[len(asked) - 1])

    result = await repair(repo, play)
    assert result.passed and result.tries[0].rounds == 2 and result.summary == "done."
    told = asked[2].messages[-1].text
    assert "It is not done yet" in told and "3 passed, 1 failed" in told and "trimmed" in told
    assert result.patch.text.count("diff --git") == 1  # one patch, not one a round


async def test_an_agent_that_never_gets_it_right_ends_after_its_rounds(
    repair: Repairing, tmp_path: Path
) -> None:
    repo = make(tmp_path / "slugs", repos.SLUGS)
    script = [edit((PATH, OLD, HALF)), finish(), finish(), Say("I give up.")]
    result = await repair(repo, script, attempts=3)
    assert not result.passed and result.tries[0].rounds == 3
    assert result.verdict.summary == "3 passed, 1 failed"
    assert HALF.strip() in result.patch.text  # what it had is handed over, as not passed
    judged = [s for s in await repair.handle.steps() if s.name == "judge"]  # type: ignore[attr-defined]
    assert len(judged) == 1  # the same files are not judged again


async def test_saying_that_it_is_done_is_not_enough(repair: Repairing, tmp_path: Path) -> None:
    repo = make(tmp_path / "slugs", repos.SLUGS)
    result = await repair(repo, [finish("All tests pass.")], attempts=1)
    assert not result.passed
    assert result.verdict.summary == "nothing was changed" and result.patch.text == ""


async def test_removed_tests_are_refused(repair: Repairing, tmp_path: Path) -> None:
    repo = make(tmp_path / "slugs", repos.SLUGS)
    result = await repair(repo, [("run", {"command": f"rm {TEST}"}), finish()], attempts=1)
    assert not result.passed
    assert set(result.verdict.removed_tests) == {"test_titles_become_slugs", "test_digits_stay"}
    text = repos.SLUGS[TEST]
    less = text[: text.index("\n\ndef test_digits_stay")] + "\n"
    one = [edit(repos.SLUGS_FIX), ("write_file", {"path": TEST, "content": less}), finish()]
    result = await repair(repo, one, attempts=1)
    assert not result.passed and result.verdict.removed_tests == ("test_digits_stay",)


async def test_weaker_tests_are_told_and_the_old_ones_run_as_well(
    repair: Repairing, tmp_path: Path
) -> None:
    repo = make(tmp_path / "slugs", repos.SLUGS)
    cheat = edit((TEST, "    assert slugify(title) == slug", "    slugify(title)"))
    # It has to touch the code, too: the patch is more than tests.
    honest = edit((PATH, "title.lower()", "title.casefold()"))
    result = await repair(repo, [cheat, honest, finish()], attempts=1)
    [changed] = result.verdict.changed_tests
    assert (changed.path, changed.how, changed.weaker) == (TEST, "1 assertion fewer", True)
    assert result.verdict.original is not None and not result.verdict.original.ok
    assert result.verdict.original.summary == "2 passed, 2 failed"
    kept = await repair(repo, [cheat, honest, finish()], attempts=1, keep_tests=True)
    assert not kept.passed and "tests were changed" in kept.verdict.summary


async def test_skipped_tests_are_no_pass(repair: Repairing, tmp_path: Path) -> None:
    repo = make(tmp_path / "slugs", repos.SLUGS)
    skip = edit((TEST, "def test_digits_stay", "@pytest.mark.skip\ndef test_digits_stay"))
    skips = edit((TEST, "@pytest.mark.parametrize", "@pytest.mark.skip\n@pytest.mark.parametrize"))
    result = await repair(repo, [skip, skips, finish()], attempts=1)
    assert not result.passed
    one = await repair(repo, [edit(repos.SLUGS_FIX), skip, finish()], attempts=1)
    assert one.passed and one.verdict.changed_tests[0].how == "1 more skipped"
    config = edit(("pyproject.toml", '"tests"]\n', '"src"]\n'))
    hidden = await repair(repo, [edit(repos.SLUGS_FIX), config, finish()], attempts=1)
    assert not hidden.passed


async def test_a_repo_without_tests_needs_some(repair: Repairing, tmp_path: Path) -> None:
    files = {"area.py": "def area(w, h):\n    return w + h\n"}
    repo = make(tmp_path / "area", files)
    fix = edit(("area.py", "w + h", "w * h"))
    result = await repair(repo, [fix, finish()], attempts=1)
    assert result.base.tests is None and result.before is None
    assert not result.passed and result.verdict.summary == "not verified: the repo has no tests"
    test = "from area import area\n\ndef test_area():\n    assert area(2, 3) == 6\n"
    added = [fix, ("write_file", {"path": "test_area.py", "content": test}), finish()]
    result = await repair(repo, added, attempts=1)
    assert result.passed and result.verdict.changed_tests[0].how == "added"


async def test_a_test_command_can_be_given(repair: Repairing, tmp_path: Path) -> None:
    repo = make(tmp_path / "slugs", repos.SLUGS)
    command = "python -m pytest -q -k digits"
    result = await repair(
        repo, [edit((PATH, "a title", "a title")), finish()], attempts=1, test_command=command
    )
    assert result.before.ok and result.base.tests.command == command


async def test_the_best_of_several_tries_is_kept_within_one_budget(
    repair: Repairing, gateway: Gateway, tmp_path: Path
) -> None:
    repo = make(tmp_path / "slugs", repos.SLUGS)
    long = NEW + "\n    # " + "\n    # ".join(["many", "words", "about", "it"])
    ways = [(PATH, OLD, HALF), (PATH, OLD, long), (PATH, OLD, NEW)]
    taken: dict[str, int] = {}

    def play(request: Request) -> Any:
        done = len(tool_results(request))
        if done == 0:
            way = ways[len(taken) % 3]
            taken[str(len(taken))] = 1
            return as_say(edit(way))
        return as_say(finish())

    result = await repair(repo, play, parallel=3, attempts=1, budget=Decimal("1"))
    assert result.passed and len(result.tries) == 3
    assert sorted(t.verdict.passed for t in result.tries) == [False, True, True]
    assert "many" not in result.patch.text and NEW.strip() in result.patch.text
    children = (await list_runs(parent=repair.handle.id)).runs  # type: ignore[attr-defined]
    assert {child.id for child in children} == {t.run_id for t in result.tries}
    assert len({t.verdict.tests.sandbox for t in result.tries}) == 3
    spend = await gateway.ledger.spend(f"run:{repair.handle.id}")  # type: ignore[attr-defined]
    assert spend.calls == result.spent.calls == 6

    poor = await repair(repo, play, parallel=3, attempts=1, budget=Decimal("0.000001"))
    assert not poor.passed and poor.spent.calls == 0
    assert all("budget" in t.ended for t in poor.tries)


async def test_time_is_capped_over_all_tries(repair: Repairing, tmp_path: Path) -> None:
    repo = make(tmp_path / "slugs", repos.SLUGS)

    def play(request: Request) -> Any:
        return as_say(("run", {"command": "sleep 60"}))

    result = await repair(repo, play, parallel=2, max_time=12)
    assert not result.passed
    assert [t.ended for t in result.tries] == ["the time is up"] * 2


async def test_mistakes_of_the_model_are_answered(repair: Repairing, tmp_path: Path) -> None:
    repo = make(tmp_path / "slugs", repos.SLUGS)
    script = [
        ("read_file", {"path": "nowhere.py"}),
        ("read_file", {"path": "../../etc/passwd"}),
        ("read_file", {"path": ".git/config"}),
        ("read_file", {"path": PATH, "start": 900}),
        ("edit_file", {"path": PATH, "old": "not there", "new": "x"}),
        ("edit_file", {"path": TEST, "old": "slugify", "new": "x"}),
        ("edit_file", {"path": PATH, "old": "", "new": "x"}),
        ("write_file", {"path": ".", "content": "x"}),
        ("write_file", {"path": "/etc/passwd", "content": "x"}),
        ("search", {"pattern": "("}),
        ("list_files", {"path": "nowhere"}),
        ("run", {"command": "exit 7"}),
        ("run", {"command": "yes | head -c 3000000"}),
        ("run", {"command": "sleep 60", "seconds": 1}),
        ("no_such_tool", {}),
        ("edit_file", "{broken"),
        edit(repos.SLUGS_FIX),
        finish(),
    ]
    last: list[Request] = []

    def play(request: Request) -> Any:
        last[:] = [request]
        return as_say(script[len(tool_results(request))])

    result = await repair(repo, play)
    assert result.passed
    told = tool_results(last[0])
    for words, answer in zip(
        (
            "No such file",
            "not in the repo",
            "git's own folder",
            "only 8 lines",
            "does not hold",
            "times in",
            "is empty",
            "no file",
            "not in the repo",
            "no regular expression",
            "No such file",
            "[exit code 7]",
            "printed too much",
            "stopped after 1 s",
            "there is no tool",
            "broken JSON",
        ),
        told,
        strict=False,
    ):
        assert words.lower() in answer.lower(), (words, answer)
    assert all(len(answer) < 20_000 for answer in told)


async def test_uncommitted_changes_are_built_on_and_said(repair: Repairing, tmp_path: Path) -> None:
    repo = make(tmp_path / "slugs", repos.SLUGS)
    write(repo, {"src/slugs/extra.py": "VALUE = 1\n", ".env": "SECRET=1\n"})
    (repo / "README.md").write_text("# changed\n")
    look = ("run", {"command": "cat README.md; ls -a . src/slugs"})
    result = await repair(repo, [look, edit(repos.SLUGS_FIX), finish()])
    assert result.passed and result.verdict.files == (PATH,)
    assert any("2 uncommitted changes" in note for note in result.base.notes)
    assert any(".env" in note for note in result.base.notes)
    [ran] = [s for s in await repair.handle.steps() if s.name == "run"]  # type: ignore[attr-defined]
    said = json.loads(ran.output)["text"]
    assert "# changed" in said and "extra.py" in said and ".env" not in said

    clean = await repair(repo, [look, edit(repos.SLUGS_FIX), finish()], committed=True)
    [ran] = [s for s in await repair.handle.steps() if s.name == "run"]  # type: ignore[attr-defined]
    said = json.loads(ran.output)["text"]
    assert "# slugs" in said and "extra.py" not in said
    assert clean.passed and not any("uncommitted" in note for note in clean.base.notes)
    assert (repo / "README.md").read_text() == "# changed\n"


async def test_a_repo_is_fetched_by_its_address(repair: Repairing, tmp_path: Path) -> None:
    repo = make(tmp_path / "slugs", repos.SLUGS)
    git(tmp_path, "clone", "--quiet", "--bare", str(repo), "served.git")
    for place in (f"file://{tmp_path}/served.git", tmp_path / "served.git"):
        result = await repair(place, [edit(repos.SLUGS_FIX), finish()])
        assert result.passed and result.base.commit == git(repo, "rev-parse", "HEAD").strip()


async def test_a_setup_prepares_the_sandbox_and_is_no_part_of_the_patch(
    repair: Repairing, tmp_path: Path
) -> None:
    files = {
        **repos.SLUGS,
        "tests/test_tool.py": "import subprocess\n\ndef test_tool():\n    assert subprocess.check_output('greet') == b'hi\\n'\n",
    }
    repo = make(tmp_path / "slugs", files)
    setup = (
        "mkdir -p ~/.local/bin && printf '#!/bin/sh\\necho hi\\n' > ~/.local/bin/greet && chmod +x ~/.local/bin/greet",
        "echo generated > made-by-setup.txt; echo '# set up' >> README.md",
    )
    result = await repair(repo, [edit(repos.SLUGS_FIX), finish()], setup=setup)
    assert result.passed, result.verdict
    assert result.verdict.files == (PATH,)
    with pytest.raises(RunFailed, match="the setup 'exit 3' failed"):
        await repair(repo, [], setup=("exit 3",))


async def test_what_can_not_be_begun_fails_with_words(repair: Repairing, tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="is no folder here"):
        await repair(tmp_path / "nowhere", [])
    repo = make(tmp_path / "slugs", repos.SLUGS)
    with pytest.raises(RunFailed, match="is empty"):
        await repair(repo, [], task="  ")
    with pytest.raises(RunFailed, match="between 1 and 8"):
        await repair(repo, [], parallel=99)
    with pytest.raises(RunFailed, match="AuthRejected"):
        await repair(repo, [Fail(401)])
    with ScriptedModel("coder", [as_say(edit(repos.SLUGS_FIX))]):
        await repair.handle.retry()  # type: ignore[attr-defined]
        with pytest.raises(RunFailed, match="the copy of the repo is gone"):
            await repair.handle.result()  # type: ignore[attr-defined]


async def test_a_provider_that_fails_in_the_middle_loses_no_work(
    repair: Repairing, tmp_path: Path
) -> None:
    repo = make(tmp_path / "slugs", repos.SLUGS)
    result = await repair(repo, [edit(repos.SLUGS_FIX), Fail(401)])
    assert result.passed and result.tries[0].rounds == 1
    half = await repair(repo, [edit((PATH, OLD, HALF)), Fail(401)])
    assert not half.passed and "could not be asked" in half.tries[0].ended
    assert HALF.strip() in half.patch.text
