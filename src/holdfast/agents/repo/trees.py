"""Putting a patch into the user's own repo: onto the files, or onto a branch.

The repo may be a stranger's, so its settings are not trusted with the user's rights: no hook,
filter, monitor or helper of its own is run. Patches are applied by a git with a folder and
settings of our own, which never looks into the repo's `.git`; for a branch, the repo's objects
and names are used, and nothing else of it.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from holdfast.agents.repo import patches
from holdfast.agents.repo.records import Patch
from holdfast.errors import Refused, UsageError

_LIMIT = 120.0
_BARRED = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.attributesFile=/dev/null",
    "submodule.recurse=false",
    "credential.helper=",
    "gc.auto=0",
    "maintenance.auto=false",
    "receive.denyCurrentBranch=refuse",
)
_ENV = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_EDITOR": "false",
    "GIT_PAGER": "cat",
    "GIT_ASKPASS": "false",
}
_BRANCH = re.compile(r"(?!-)(?!.*(?:\.\.|//|@\{|\.lock(?:/|$)))[\w./+@-]+(?<![./])")


async def apply(folder: Path, patch: Patch) -> None:
    """Change the user's files by the patch, all of them or none; raises Refused."""
    _check(patch)
    with tempfile.TemporaryDirectory(prefix="holdfast-git-") as own:
        await _git({}, "init", "--quiet", "--bare", own)
        env = {"GIT_DIR": own, "GIT_WORK_TREE": str(folder)}
        for words in (("apply", "--check"), ("apply",)):
            await _applied(
                folder, env, (*words, "--whitespace=nowarn", "-"), patch,
                hint="your files have changed since: the patch is kept, for you to merge by hand",
            )  # fmt: skip


async def commit(folder: Path, name: str, patch: Patch, message: str, parent: str) -> str:
    """Commit the patch on a new branch, without touching what is checked out; the commit's id."""
    _check(patch)
    if not _BRANCH.fullmatch(name) or any(part.startswith(".") for part in name.split("/")):
        raise UsageError(f"{name!r} is no name for a branch")
    repo = folder / ".git"
    objects = (await _in(repo, "rev-parse", "--git-path", "objects")).strip()
    objects = str((folder / objects).resolve())
    ref = f"refs/heads/{name}"
    who = await _author(repo)
    with tempfile.TemporaryDirectory(prefix="holdfast-git-") as own:
        await _git({}, "init", "--quiet", "--bare", own)
        env = {"GIT_DIR": own, "GIT_OBJECT_DIRECTORY": objects, **who}
        await _git(env, "read-tree", parent)
        await _applied(
            Path(own), env, ("apply", "--cached", "--whitespace=nowarn", "-"), patch,
            hint="it builds on changes of yours that are not committed: commit them first, "
            "or use --apply",
        )  # fmt: skip
        tree = (await _git(env, "write-tree")).strip()
        made = await _git(env, "commit-tree", tree, "-p", parent, stdin=message.encode())
    commit = made.strip()
    try:
        await _in(repo, "update-ref", "--create-reflog", ref, commit, "0" * len(commit))
    except Refused as error:
        raise Refused(
            f"the branch {name} was not made: {error.message}",
            hint="choose another name with --branch, if there is one of this name",
        ) from error
    return commit


def _check(patch: Patch) -> None:
    if not patch.text:
        raise Refused("the patch is empty: there is nothing to apply")
    faults = patches.faults(patch)
    if faults:
        raise Refused(f"the patch is unfit to be applied: {'; '.join(faults[:5])}")


async def _author(repo: Path) -> dict[str, str]:
    """Who commits: as git is set up for this user, read without running anything."""
    found = {"name": "Holdfast", "email": "holdfast@localhost"}
    trusted = {"GIT_CONFIG_NOSYSTEM": "0", "GIT_CONFIG_GLOBAL": None}
    for key in found:
        value = await _run({"GIT_DIR": str(repo), **trusted}, "config", "--get", f"user.{key}")
        if value[0] == 0 and value[1].strip():
            found[key] = value[1].strip()
    return {
        f"GIT_{role}_{key.upper()}": value
        for role in ("AUTHOR", "COMMITTER")
        for key, value in found.items()
    }


async def _applied(
    folder: Path, env: Mapping[str, str], words: tuple[str, ...], patch: Patch, hint: str
) -> None:
    code, _, said = await _run(env, *words, cwd=folder, stdin=patch.raw)
    if code:
        lines = [line.removeprefix("error: ") for line in said.strip().splitlines()]
        told = "; ".join(lines[:3]) or "git gave no reason"
        raise Refused(f"the patch does not apply: {told}", hint=hint)


async def _in(repo: Path, *words: str) -> str:
    return await _git({"GIT_DIR": str(repo)}, *words, cwd=repo.parent)


async def _git(
    env: Mapping[str, str], *words: str, cwd: Path | None = None, stdin: bytes = b""
) -> str:
    code, out, said = await _run(env, *words, cwd=cwd, stdin=stdin)
    if code:
        told = said.strip().splitlines()[-1:] or ["git gave no reason"]
        raise Refused(f"git {words[0]} failed: {told[0]}")
    return out


async def _run(
    env: Mapping[str, str | None], *words: str, cwd: Path | None = None, stdin: bytes = b""
) -> tuple[int, str, str]:
    settings = [word for setting in _BARRED for word in ("-c", setting)]
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    merged = {**inherited, **_ENV, **env}
    process = await asyncio.create_subprocess_exec(
        "git",
        *settings,
        *words,
        cwd=cwd,
        env={k: v for k, v in merged.items() if v is not None},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_LIMIT):
            out, said = await process.communicate(stdin)
    except BaseException:
        process.kill()
        await process.wait()
        raise
    code = process.returncode
    assert code is not None
    return code, out.decode("utf-8", "replace"), said.decode("utf-8", "replace")
