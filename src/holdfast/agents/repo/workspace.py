"""A workspace: a sandbox with the repo's files in it, and a git of our own to tell what changed.

The repo's `.git` is never asked what changed: its settings can run commands and bend what git
says. Ours lies beside it, knows no filters, hooks or drivers, and names each state of the files
by the id of a tree. From a snapshot of the base and the patches since, any state can be made
anew in another sandbox, and its id shows that it is the same.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence

from holdfast.agents.repo.records import Base, Patch, Plan
from holdfast.errors import FatalError, NotFound, SandboxError
from holdfast.sandbox import CommandResult, Network, Sandbox, default_host, run_snapshots

ROOT = "/workspace"
OWN = "/home/user/.holdfast"
_GIT = f"{OWN}/git"
_EXCLUDE = f"{_GIT}/info/exclude"
_NOT_INTO = (
    "(", "-name", "node_modules", "-o", "-name", ".venv", "-o", "-name", "venv", ")",
    "-prune", "-o",
)  # fmt: skip
_MOST_PATCH = 24 * 1024 * 1024
_LIMIT = 120.0
EXCLUDED = (
    "__pycache__/", "*.pyc", ".pytest_cache/", ".mypy_cache/", ".ruff_cache/", "node_modules/",
    ".venv/", "venv/", ".tox/", ".coverage", "*.egg-info/", ".DS_Store",
)  # fmt: skip
"""What is never part of a patch, whatever the repo ignores."""
GIT_ENV = {
    "GIT_DIR": _GIT,
    "GIT_WORK_TREE": ROOT,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
}
_DIFF = (
    "diff", "--binary", "--full-index", "--no-color", "--no-ext-diff", "--no-textconv",
    "--no-renames", "--src-prefix=a/", "--dst-prefix=b/",
)  # fmt: skip


class Workspace:
    """The files of one try, in a sandbox that runs; `tree` names their state."""

    def __init__(self, sandbox: Sandbox, tree: str) -> None:
        self.sandbox, self.tree = sandbox, tree
        self._aside: set[str] = set()
        """Repos within, which are no part of any state."""

    @staticmethod
    async def open(
        base: Base,
        plan: Plan,
        patches: Sequence[Patch] = (),
        tree: str | None = None,
        *,
        seconds: float,
        network: Network | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Workspace:
        """A fresh sandbox with the base's files and the patches on them."""
        try:
            sandbox = await Sandbox.create(
                runtime=base.runtime,
                timeout=seconds,
                memory=plan.memory,
                pids=plan.pids,
                source=base.snapshot,
                backend=base.backend,
                network=network,
                env={**dict(base.env), **(env or {})},
            )
        except NotFound as error:
            raise FatalError(
                f"the copy of the repo is gone: {error.message}",
                hint="it is deleted when its run ends, and lies on one machine: start a new run",
            ) from error
        try:
            workspace = Workspace(sandbox, base.tree)
            for patch in patches:
                await workspace.apply(patch)
            if patches:
                found = await workspace.state()
                if tree is not None and found != tree:
                    raise FatalError(
                        f"the workspace could not be made anew: {found} instead of {tree}"
                    )
                workspace.tree = found
        except BaseException:
            await sandbox.stop("the workspace could not be made")
            raise
        return workspace

    async def git(
        self, *words: str, stdin: bytes | None = None, most: int = _MOST_PATCH
    ) -> CommandResult:
        """Our git, on the workspace."""
        return await self.sandbox.run(
            "git", *words, cwd=ROOT, env=GIT_ENV, stdin=stdin, timeout=_LIMIT, max_output=most
        )

    async def ask(self, *words: str, stdin: bytes | None = None) -> bytes:
        """What our git says; raises SandboxError if it fails."""
        result = await self.git(*words, stdin=stdin)
        if not result.ok:
            said = (result.stderr or result.stdout).strip().splitlines() or [str(result.ended)]
            raise SandboxError(f"git {words[0]} failed in the sandbox: {said[-1]}")
        return result.stdout_bytes

    async def found_repository(self) -> None:
        """Make our git, and take the files as they are now for the base."""
        await self.sandbox.mkdir(OWN)
        await self.ask("init", "--quiet")
        await self.exclude(())
        settings = {
            "core.excludesFile": f"{ROOT}/.git/info/exclude",
            "core.autocrlf": "false",
            "core.fsmonitor": "false",
            "gc.auto": "0",
            "advice.addEmbeddedRepo": "false",
        }
        for name, value in settings.items():
            await self.ask("config", name, value)

    async def exclude(self, folders: Iterable[str]) -> None:
        """Leave these folders out of every state, beside what always is."""
        lines = [*EXCLUDED, *(f"/{_literal(folder)}/" for folder in folders)]
        await self.sandbox.write_files({_EXCLUDE: "\n".join(lines) + "\n"})

    async def nested(self) -> list[str]:
        """Folders with a `.git` of their own, those of dependencies aside."""
        found = await self.sandbox.run(
            "find", ".", "-mindepth", "2", *_NOT_INTO, "-name", ".git", "-prune", "-print0",
            cwd=ROOT, timeout=_LIMIT, max_output="4mb",
        )  # fmt: skip
        names = [name.removeprefix("./") for name in found.stdout.split("\0") if name]
        return sorted(name.removesuffix("/.git") for name in names)

    async def _settle_nested(self) -> None:
        """A repo that a command made within: left out, or part of ours if our files are in it."""
        new = [folder for folder in await self.nested() if folder not in self._aside]
        for folder in new:
            if await self.names("--literal-pathspecs", "ls-files", "-z", "--", folder):
                await self.sandbox.remove(f"{ROOT}/{folder}/.git")
            else:
                self._aside.add(folder)
                known = (await self.sandbox.read_file(_EXCLUDE)).decode()
                line = f"/{_literal(folder)}/"
                await self.sandbox.write_files({_EXCLUDE: f"{known}{line}\n"})

    async def state(self) -> str:
        """The id of the files as they are now."""
        await self._settle_nested()
        await self.ask("add", "--all", "--", ".")
        return (await self.ask("write-tree")).decode().strip()

    async def diff(self, before: str, after: str) -> Patch:
        """What changed from one state to another."""
        return Patch.of(await self.ask(*_DIFF, before, after, "--"))

    async def apply(self, patch: Patch) -> None:
        """Change the files by a patch; raises SandboxError if it does not fit."""
        if patch.text:
            await self.ask("apply", "--whitespace=nowarn", "-", stdin=patch.raw)

    async def changes(self) -> tuple[str, Patch] | None:
        """What changed since the last look: the new state and the patch to it."""
        now = await self.state()
        if now == self.tree:
            return None
        patch = await self.diff(self.tree, now)
        self.tree = now
        return now, patch

    async def names(self, *words: str) -> list[str]:
        """Paths that our git lists, with `-z` among the words."""
        raw = (await self.ask(*words)).decode("utf-8", "surrogateescape")
        return [name for name in raw.split("\0") if name]

    async def content(self, tree: str, path: str) -> bytes | None:
        """A file of a state; None if it has none of this path."""
        result = await self.git("cat-file", "blob", f"{tree}:{path}")
        return result.stdout_bytes if result.ok else None


def _literal(name: str) -> str:
    """A name as a pattern of git's that means just this name."""
    return re.sub(r"([\\*?\[\]! #])", r"\\\1", name)


# --- the workspaces that are open in this process, by run: a run is durable, a sandbox is not ---
# After a crash, or on another machine, a run finds no workspace here, or one in another state than
# it left, and has it made anew.

_open: dict[str, Workspace] = {}


def find_open(run_id: str, tree: str) -> Workspace | None:
    """The run's workspace, if it is open and in this state."""
    found = _open.get(run_id)
    if found is None or not found.sandbox.running or found.tree != tree:
        return None
    return found


async def keep_open(run_id: str, workspace: Workspace) -> None:
    """Let this be the run's workspace; another that it had is closed."""
    await close_open(run_id)
    for each in [each for each, known in _open.items() if not known.sandbox.running]:
        del _open[each]  # their runs have ended, and their sandboxes with them
    _open[run_id] = workspace


async def close_open(run_id: str) -> None:
    """Close the run's workspace: it is not wanted, or in no known state."""
    found = _open.pop(run_id, None)
    if found is not None:
        await found.sandbox.stop("no longer needed")


# --- the snapshots of a run: none outlives it, also where a process died between two steps ---


async def delete_stray_snapshots(run_id: str) -> None:
    """Delete what this run has kept and nobody was told of, since its process died."""
    await asyncio.to_thread(run_snapshots.release, default_host().state, {run_id})
