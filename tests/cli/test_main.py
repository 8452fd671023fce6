"""What all commands have in common."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.cli.main import NOUNS, build, main
from holdfast.cli.options import leaves
from waiting import LIMIT

from .conftest import COMMAND, SHOP, Holdfast


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["runs"],
        ["runs", "nonsense"],
        ["runs", "list", "--nonsense"],
        ["runs", "list", "--limit", "many"],
        ["runs", "list", "--limit", "0"],
        ["runs", "list", "--status", "happy"],
        ["runs", "list", "--attribute", "item"],
        ["runs", "show"],
        ["runs", "list", "--js"],
    ],
)
def test_wrong_usage_is_exit_code_2_in_text_and_in_json(
    shop: Holdfast,
    arguments: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HOLDFAST_STORE", str(shop.store))
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("holdfast: ")
    assert "hint: " in err
    assert main([*arguments, "--json"]) == 2
    out, err = capsys.readouterr()
    assert err == ""
    assert json.loads(out)["error"]["kind"] == "UsageError"


def test_wrong_usage_of_the_real_command(holdfast: Holdfast) -> None:
    done = holdfast("runs", "--json", "list", "--nonsense")
    assert (done.code, done.err) == (2, "")
    assert done.error == {
        "kind": "UsageError",
        "message": "unrecognized arguments: --json --nonsense",
        "hint": "holdfast runs list --help says how it is used",
    }


def test_a_misspelt_name_gets_the_nearest(shop: Holdfast) -> None:
    for words, hint in (
        (["rums", "list"], "did you mean 'runs'?"),
        (["runs", "lst"], "did you mean 'list'?"),
        (["runs", "list", "--statsu", "failed"], "did you mean --status?"),
        (["runs", "list", "--status", "complete"], "did you mean 'completed'?"),
        (["inspect", "run"], "did you mean 'runs'?"),
        (["run", f"{SHOP}:ordr"], "did you mean 'order'?"),
        (["config", "show", "sever"], "did you mean 'server'?"),
    ):
        done = shop(*words)
        assert done.code in (2, 3), done
        assert hint in done.err


def test_every_command_takes_a_store(tmp_path: Path) -> None:
    lacking = [
        leaf.prog
        for leaf in leaves(build(NOUNS))
        if "--store" not in leaf.format_usage().replace("\n", " ")
    ]
    assert lacking == []


def test_the_named_store_is_the_store_of_every_layer(holdfast: Holdfast) -> None:
    elsewhere = holdfast.folder / "elsewhere" / "a.db"
    elsewhere.parent.mkdir()
    made = holdfast("keys", "create", "--json", "--store", str(elsewhere)).json
    assert holdfast("keys", "list", "--json").json["keys"] == []
    found = holdfast("keys", "list", "--json", "--store", str(elsewhere)).json["keys"]
    assert [key["id"] for key in found] == [made["id"]]


def test_lists_have_one_shape_as_json(shop: Holdfast) -> None:
    """An object, with the rows under the noun: there is room for a cursor, or a note."""
    for noun, verb in (
        ("runs", "list"), ("approvals", "list"), ("keys", "list"), ("models", "list"),
        ("sandbox", "list"), ("sandbox", "snapshots"),
    ):  # fmt: skip
        found = shop(noun, verb, "--json").json
        name = {"sandbox": "sandboxes"}.get(noun, noun) if verb == "list" else verb
        assert isinstance(found[name], list), (noun, verb)


def test_the_bare_command_shows_the_commands(holdfast: Holdfast) -> None:
    done = holdfast()
    assert (done.code, done.err) == (0, "")
    assert "usage: holdfast" in done.out and "inspect" in done.out


def test_help_and_version_are_data(holdfast: Holdfast) -> None:
    assert "usage: holdfast" in holdfast("--help").out
    assert "usage: holdfast runs list" in holdfast("runs", "list", "--help").out
    assert holdfast("--version").out.startswith("holdfast ")


def test_a_reader_that_goes_away_is_no_error(shop: Holdfast) -> None:
    command = [*COMMAND, "runs", "list", "--json"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=shop.environment
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(timeout=LIMIT) == 0


def test_looking_at_runs_does_not_import_pydantic(shop: Holdfast) -> None:
    """It takes longer to import than the rest of the command takes to run."""
    run_id = shop("runs", "list", "--json").json["runs"][0]["id"]
    script = (
        "import json, sys\n"
        "from holdfast.cli.main import main\n"
        "for words in json.loads(sys.argv[1]):\n"
        "    assert main(words) == 0, words\n"
        "assert 'pydantic' not in sys.modules\n"
    )
    commands = [
        ["runs", "list"],
        ["runs", "show", run_id],
        ["runs", "watch", run_id],
        ["store", "info"],
        ["doctor"],
    ]
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(commands)],
        env=shop.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", [["run", "Write it"], ["worker"], ["serve", "--port", "0"]])
def test_a_mistake_anywhere_in_the_configuration_is_said_at_the_start(
    holdfast: Holdfast, command: list[str]
) -> None:
    (holdfast.folder / "holdfast.toml").write_text("[server]\nprot = 1\n")
    done = holdfast(*command)
    assert done.code == 2
    assert "server: there is no 'prot'" in done.err and "did you mean 'port'?" in done.err
    (holdfast.folder / "holdfast.toml").write_text("[code]\nattempts = 'many'\n")
    doctor = holdfast("doctor")
    assert "✗ config    code.attempts should be of type int" in doctor.out
