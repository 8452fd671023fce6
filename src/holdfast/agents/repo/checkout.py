"""Taking a repo: its files copied into a sandbox, looked over, and kept as the run's base.

The user's folder is read and never written. What the repo's own git has to say (which files are
tracked, what is not committed) it says inside, where its settings may run what they like. Files
that git ignores are left out, since they are where passwords lie; folders of dependencies stay,
since tests need them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit, urlunsplit

from holdfast.agents.repo import test_detection
from holdfast.agents.repo.records import Base, Plan, TestPlan
from holdfast.agents.repo.workspace import ROOT, Workspace
from holdfast.errors import SandboxError, SandboxFileError, SourceError, UsageError
from holdfast.sandbox import Sandbox
from holdfast.sandbox.registries import Access, npm_network, pip_network
from holdfast.sandbox.run_snapshots import current_run
from holdfast.sandbox.sources import is_git

_HELPER = re.compile(r"[\w+.-]+::")
"""An address for a program of git's, `ext::…`: it could run anything."""


@dataclass(frozen=True, slots=True)
class Source:
    """A repo to work on."""

    place: str
    """The folder's path, or the address."""
    folder: Path | None
    """The user's tree, if it is one of this machine."""

    @property
    def label(self) -> str:
        """For people: an address without user and password."""
        return self.place if self.folder is not None else without_password(self.place)


def find_source(given: str) -> Source:
    """The repo that is meant; raises UsageError for what is none."""
    if not given.strip() or given.startswith("-"):
        raise UsageError(f"{given!r} is no repo", hint="give a folder or a git address")
    folder = Path(given).expanduser()
    if folder.is_dir():
        root = _root(folder.resolve())
        if _is_bare(root):
            return Source(f"file://{root}", None)
        return Source(str(root), root)
    if is_git(given) and not _HELPER.match(given):
        return Source(given, None)
    raise UsageError(
        f"{given!r} is no folder here, and no git address",
        hint="such as ./project or https://host/owner/name.git",
    )


def _root(folder: Path) -> Path:
    """The work tree a folder belongs to; the folder itself if it belongs to none."""
    for each in (folder, *folder.parents):
        if (each / ".git").exists():
            return each
    return folder


def _is_bare(folder: Path) -> bool:
    parts = ("HEAD", "objects", "refs")
    return not (folder / ".git").exists() and all((folder / part).exists() for part in parts)


def without_password(address: str) -> str:
    """A git address that may be shown and kept."""
    parts = urlsplit(address)
    if parts.scheme and "@" in parts.netloc:
        address = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    return address


def branch_name(task: str) -> str:
    """A branch's name from the words of a task: `holdfast/fix-the-parser`."""
    words = re.findall(r"[a-z0-9]+", task.lower())
    name = ""
    for word in words:
        if len(name) + len(word) > 40:
            break
        name = f"{name}-{word}" if name else word
    return f"holdfast/{name or 'repair'}"


DEPENDENCIES = frozenset({"node_modules", ".venv", "venv", "vendor"})
_SECONDS = 1800.0
_REPO_GIT = (
    "git", "--git-dir", f"{ROOT}/.git", "--work-tree", ROOT, "-c", "core.fsmonitor=false",
    "-c", "core.hooksPath=/dev/null", "-c", "core.worktree=",
)  # fmt: skip
_NAMED = 3
_PLAIN_CONFIG = "[core]\n\trepositoryformatversion = {version}\n\tfilemode = true\n\tbare = false\n"
_SHA256 = "[extensions]\n\tobjectformat = sha256\n"
_UNWANTED = ("hooks", "modules", "config.worktree", "fsmonitor--daemon.ipc")


async def take(
    source: Source,
    plan: Plan,
    *,
    committed: bool,
    test_command: str | None,
    setup: tuple[str, ...],
) -> Base:
    """Copy the repo in, settle how its tests run, and keep a snapshot."""
    access = await _registries(setup)
    try:
        sandbox = await Sandbox.create(
            timeout=_SECONDS,
            memory=plan.memory,
            pids=plan.pids,
            source=source.place,
            backend=plan.backend,
            network=access.network if access else None,
            env=access.env if access else None,
        )
    except SourceError as error:
        raise UsageError(f"{source.label}: {error.message}", hint=error.hint) from error
    async with sandbox:
        workspace = Workspace(sandbox, "")
        notes: list[str] = []
        await _disarm(workspace)
        commit, branch = await _ask_repo(workspace, notes, committed=committed)
        await workspace.found_repository()
        nested = await _set_nested_aside(workspace, notes)
        await _take_tracked(workspace, nested)
        tree = await workspace.state()
        await _leave_out_ignored(workspace, nested, notes)
        files = await workspace.names("ls-files", "-z")
        found = await test_detection.look(workspace, files)
        tests = found.tests
        if test_command is not None:
            tests = TestPlan(test_command, ("given",), "given")
        await _set_up(workspace, setup, dict(found.env), tree)
        try:
            snapshot = await sandbox.snapshot_for(current_run())
        except SandboxError as error:
            raise SandboxError(
                f"the repo can't be kept: {error.message}",
                hint='choose another backend: [repo] backend = "namespace" in holdfast.toml',
            ) from error
        return Base(
            snapshot=snapshot.id,
            backend=sandbox.record.backend,  # pyright: ignore[reportArgumentType]
            tree=tree,
            source=source.label,
            commit=commit,
            branch=branch,
            notes=tuple(notes),
            tests=tests,
            runtime=found.runtime,
            env=found.env,
            files=len(files),
        )


async def _disarm(workspace: Workspace) -> None:
    """Take from the copy's `.git` what runs commands or holds addresses with passwords."""
    sandbox, folder = workspace.sandbox, f"{ROOT}/.git"
    try:
        config = await sandbox.read_file(f"{folder}/config", limit=4 * 1024 * 1024)
    except SandboxFileError:
        return  # no repository, or one whose parts lie elsewhere
    sha256 = re.search(rb"objectformat\s*=\s*sha256", config, re.IGNORECASE) is not None
    text = _PLAIN_CONFIG.format(version=int(sha256)) + _SHA256 * sha256
    await sandbox.write_files({f"{folder}/config": text})
    await sandbox.run("rm", "-rf", "--", *(f"{folder}/{name}" for name in _UNWANTED), timeout=60)


async def _set_nested_aside(workspace: Workspace, notes: list[str]) -> list[str]:
    """Submodules and other repos within stay as they are: no patch of this one can change them."""
    folders = await workspace.nested()
    for folder in folders:
        await workspace.sandbox.remove(f"{ROOT}/{folder}/.git")
    await workspace.exclude(folders)
    if folders:
        notes.append(f"repos within it (submodules) stay as they are: {_some(folders)}")
    return folders


async def _repo_says(workspace: Workspace, *words: str) -> str | None:
    """What the repo's own git says, in the sandbox; None if it can't."""
    result = await workspace.sandbox.run(*_REPO_GIT, *words, cwd=ROOT, timeout=120)
    return result.stdout if result.ok else None


async def _ask_repo(
    workspace: Workspace, notes: list[str], *, committed: bool
) -> tuple[str | None, str | None]:
    """The commit and branch it is at; what is not committed is said, or taken back."""
    commit = await _repo_says(workspace, "rev-parse", "--verify", "HEAD")
    if commit is None or not re.fullmatch(r"[0-9a-f]{40,64}\s*", commit):
        if committed:
            raise UsageError(
                "there is no commit to work on", hint="leave out --committed, or commit first"
            )
        notes.append("no git history could be read: its files were taken as they are")
        return None, None
    if committed:
        for words in (("checkout", "--force", "HEAD", "--", "."), ("clean", "-ffdq")):
            if await _repo_says(workspace, *words) is None:
                raise SandboxError(f"git {words[0]} failed in the sandbox")
    changed = await _repo_says(workspace, "status", "--porcelain=v1", "-z", "--no-renames")
    names = [line[3:] for line in (changed or "").split("\0") if line]
    if names:
        notes.append(
            f"the patch builds on {len(names)} uncommitted change{'s' * (len(names) > 1)} "
            f"of yours ({_some(names)})"
        )
    branch = await _repo_says(workspace, "symbolic-ref", "--quiet", "--short", "HEAD")
    return commit.strip(), (branch or "").strip() or None


async def _take_tracked(workspace: Workspace, nested: list[str]) -> None:
    """Files that the repo tracks although it ignores their names are part of it, too."""
    listed = await _repo_says(workspace, "ls-files", "-z", "--stage")
    deleted = set((await _repo_says(workspace, "ls-files", "-z", "--deleted") or "").split("\0"))
    entries = [line.partition("\t") for line in (listed or "").split("\0") if line]
    tracked = [
        name
        for facts, _, name in entries
        if not facts.startswith("160000") and name not in deleted and name not in nested
    ]
    if tracked:
        stdin = "\0".join(tracked).encode("utf-8", "replace")
        words = ("--pathspec-from-file=-", "--pathspec-file-nul")
        await workspace.ask("--literal-pathspecs", "add", "--force", *words, stdin=stdin)


async def _leave_out_ignored(workspace: Workspace, nested: list[str], notes: list[str]) -> None:
    ignored = await workspace.names(
        "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory"
    )
    gone: list[str] = []
    for name in ignored:
        path = name.rstrip("/")
        if not DEPENDENCIES & set(PurePosixPath(path).parts) and path not in nested:
            await workspace.sandbox.remove(f"{ROOT}/{path}")
            gone.append(name)
    if gone:
        notes.append(f"left out, since git ignores them: {_some(gone)}")


async def _registries(setup: tuple[str, ...]) -> Access | None:
    """What a setup needs to install packages from where this machine does."""
    found: Access | None = None
    words = {word for line in setup for word in re.findall(r"[\w-]+", line)}
    for tools, look in (
        ({"pip", "pip3", "uv"}, pip_network),
        ({"npm", "npx", "yarn"}, npm_network),
    ):
        if tools & words:
            access = await look()
            found = access if found is None else found | access
    return found


async def _set_up(
    workspace: Workspace, setup: tuple[str, ...], env: dict[str, str], tree: str
) -> None:
    """Run the user's setup. What it leaves in files that git counts is taken back."""
    for line in setup:
        result = await workspace.sandbox.shell(
            f"exec 2>&1\n{line}", cwd=ROOT, env=env, timeout=900, max_output="4mb"
        )
        if not result.ok:
            said = result.stdout.strip().splitlines()[-1:] or [str(result.ended)]
            raise UsageError(f"the setup {line!r} failed: {said[0]}")
    if setup and await workspace.state() != tree:
        await workspace.ask("read-tree", tree)
        await workspace.ask("checkout-index", "--force", "--all")
        await workspace.ask("clean", "-ffdq")


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:_NAMED])
    more = len(names) - _NAMED
    return f"{shown} and {more} more" if more > 0 else shown
