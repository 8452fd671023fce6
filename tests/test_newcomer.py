"""A newcomer's first ten minutes, from the wheel to the inspector, without a dead end.

Everything is done by the installed command, as somebody types it who has read nothing: first
without a key, then by a provider (a fake one, over HTTP), with a mistake, a failure and its retry,
a task on a repo, and a look at the pages. What goes wrong has to say what to do about it, and
what it says is what is typed next.
"""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from agents.repo import repos
from agents.repo.conftest import as_say, edit, finish
from agents.repo.repos import git, make
from browser.conftest import free_port
from holdfast.gateway import Fail, Say
from holdfast.gateway.messages import Request
from holdfast.testing.providers import FakeProvider
from test_packaging import built, clean  # noqa: F401 - fixtures
from waiting import LIMIT

CODE = "```python\ndef double(n: int) -> int:\n    return 2 * n\n```"
TESTS = (
    "```python\nfrom solution import double\n\n\n"
    "def test_it_doubles():\n    assert double(4) == 8\n    assert double(-3) == -6\n```"
)
ORDERS = """\
import pathlib

from holdfast import step, workflow


@step(retries=0)
async def charge(amount: int) -> str:
    if not pathlib.Path("bank-is-open").exists():
        raise RuntimeError("the bank is closed")
    return f"{amount} charged"


@step
async def reserve(item: str) -> str:
    with open("reserved.log", "a") as log:
        log.write(item + "\\n")
    return f"{item} reserved"


@workflow
async def order(item: str, amount: int) -> list[str]:
    return [await reserve(item), await charge(amount)]
"""


@dataclass
class Done:
    code: int
    out: str
    err: str

    @property
    def advice(self) -> str:
        """The command that the hint says to type."""
        found = re.search(r"hint: .*?(holdfast [a-z]+ [a-z]+ \S+)", self.err)
        assert found is not None, f"a dead end:\n{self.err}"
        return found[1]


class Newcomer:
    """Types commands in a folder of their own, with the wheel's programs alone on the path."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            "PATH": f"{programs}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "GIT_CONFIG_GLOBAL": "/dev/null",
        }

    def types(self, line: str) -> Done:
        done = subprocess.run(
            shlex.split(line),
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=2 * LIMIT,
            stdin=subprocess.DEVNULL,
        )
        told = done.stderr + done.stdout
        assert "Traceback" not in done.stderr, told
        if done.returncode not in (0, 1):
            assert "hint:" in done.stderr, f"{line}: a dead end:\n{told}"
        return Done(done.returncode, done.stdout, done.stderr)

    @contextmanager
    def another_terminal(self, line: str) -> Iterator[subprocess.Popen[str]]:
        """A program that goes on until Ctrl-C."""
        running = subprocess.Popen(
            shlex.split(line),
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            yield running
        finally:
            running.send_signal(signal.SIGINT)
            running.communicate(timeout=LIMIT)


@pytest.fixture
def newcomer(clean: Path, tmp_path: Path) -> Newcomer:  # noqa: F811 - the fixture
    return Newcomer(clean, tmp_path)


def answers(request: Request) -> Say | Fail | str:
    """What a provider's model says: code and tests of the task, or turns on the repo."""
    if request.tools:
        turns = [edit(repos.SLUGS_FIX), finish("One dash is enough.")]
        return as_say(turns[sum(m.role == "tool" for m in request.messages) % len(turns)])
    asked = "\n".join(message.text for message in request.messages)
    return TESTS if "test" in asked.partition("\n")[0].lower() else CODE


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with FakeProvider(answers, key="sk-test-newcomer") as fake:
        yield fake


def test_the_first_ten_minutes_have_no_dead_end(newcomer: Newcomer, provider: FakeProvider) -> None:
    # What is it, and what can it do?
    helped = newcomer.types("holdfast")
    assert "runs" in helped.out + helped.err
    checked = newcomer.types("holdfast doctor")
    assert "✓ store" in checked.out

    # A first run, with no key at all.
    first = newcomer.types('holdfast run "Write is_palindrome, ignoring case and punctuation"')
    assert first.code == 0, first.err
    assert first.out.startswith("passed on attempt 1"), first.out
    assert "no key is set" in first.err

    # A provider, with a mistyped model at first.
    newcomer.environment |= {
        "OPENAI_API_KEY": "sk-test-newcomer",
        "OPENAI_BASE_URL": provider.url,
    }
    provider.models = ["gpt-5-mini"]
    wrong = newcomer.types('holdfast run "Write double" --model openia/gpt-5-mini')
    assert wrong.code == 3
    assert "openai" in wrong.err
    asked = newcomer.types('holdfast run "Write double(n)" --model openai/gpt-5-mini')
    assert asked.code == 0, asked.err + asked.out
    assert provider.hits >= 2

    # A workflow of their own, which fails; what the hint says makes it go on where it failed.
    (newcomer.folder / "orders.py").write_text(ORDERS)
    line = """holdfast run orders.py:order --input '{"item": "lamp", "amount": 40}'"""
    mistyped = newcomer.types(line.replace(":order", ":ordr"))
    assert mistyped.code == 3
    assert "did you mean 'order'" in mistyped.err
    failed = newcomer.types(line)
    assert failed.code == 1
    assert "the bank is closed" in failed.err
    shown = newcomer.types("holdfast runs show latest")
    assert "RuntimeError: the bank is closed" in shown.out + shown.err
    (newcomer.folder / "bank-is-open").touch()
    again = newcomer.types(failed.advice)
    assert again.code == 0, again.err
    assert "holdfast worker FILE.py" in again.err
    with newcomer.another_terminal("holdfast worker orders.py"):
        followed = newcomer.types("holdfast runs watch latest")
    assert followed.code == 0, followed.err
    settled = json.loads(newcomer.types("holdfast runs show latest --json").out)
    assert settled["result"] == ["lamp reserved", "40 charged"]
    assert (newcomer.folder / "reserved.log").read_text() == "lamp\n"  # once

    # A task on a repo.
    repo = make(newcomer.folder / "slugs", repos.SLUGS)
    repaired = newcomer.types('holdfast repo slugs "Fix slugify" --model openai/gpt-5-mini')
    assert repaired.code == 0, repaired.err + repaired.out
    (patch,) = newcomer.folder.glob("*.patch")
    git(repo, "apply", str(patch))
    assert repos.SLUGS_FIX[2] in (repo / repos.SLUGS_FIX[0]).read_text()

    # Everything is in one list, told apart, and on the pages.
    listed = newcomer.types("holdfast runs list")
    for words in ("is_palindrome", "Write double(n)", "item=lamp", "Fix slugify"):
        assert words in listed.out
    looked_at(newcomer, ("is_palindrome", "Write double(n)", "item=lamp", "Fix slugify"))


def looked_at(newcomer: Newcomer, words: tuple[str, ...]) -> None:
    """The inspector has the runs, and a page for each."""
    line = f"holdfast serve --port {free_port()} --no-worker --json --quiet"
    with newcomer.another_terminal(line) as serving:
        assert serving.stdout is not None
        url = json.loads(serving.stdout.readline())["url"]
        listed = page(f"{url}/runs")
        for word in words:
            assert word in listed
        for run in set(re.findall(r'href="(/runs/run_\w+)"', listed)):
            assert "<h1>" in page(url + run)


def page(url: str) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, headers={"accept": "text/html"})
    with opener.open(request, timeout=LIMIT) as answer:
        return answer.read().decode()
