"""Templates: named, versioned states of a sandbox to start from, built once.

    template = await Sandbox.template("py-data").install("numpy").run("mkdir", "data").save()
    sandbox = await Sandbox.create(source="template:py-data")        # or source=template

A template is named by what it is made of: the same steps on the same backend and runtime are built
once, whoever asks, and again only where something differs, as the next version. A version is a
snapshot, so starting from it takes as long as starting from any. `py-data@2` is a version by its
number; without one it is the latest.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import platform
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import NotFound, SandboxError, UsageError
from holdfast.sandbox.snapshots import Snapshot, get_snapshot

if TYPE_CHECKING:
    from holdfast.sandbox.sandbox import Sandbox

PREFIX = "template:"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Template:
    """A version that is built. `Sandbox.create(source=template)` starts from it."""

    name: str
    version: int
    digest: str
    """What it is made of, as one number."""
    snapshot_id: str
    backend: str
    steps: tuple[str, ...]
    """What was done to make it, in words."""
    created_at: datetime
    state: Path

    @property
    def snapshot(self) -> Snapshot:
        return get_snapshot(self.state, self.snapshot_id)

    def delete(self) -> None:
        """Remove it and its snapshot; refused while a snapshot builds on it."""
        try:
            self.snapshot.delete()
        except NotFound:
            pass  # somebody has deleted that already
        _file(self.state, self.name, self.version).unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class _Step:
    kind: str
    words: tuple[str, ...] = ()
    files: tuple[tuple[str, bytes], ...] = ()

    def describe(self) -> str:
        if self.kind == "files":
            return f"files {', '.join(path for path, _ in self.files)}"
        return f"{self.kind} {' '.join(self.words)}"

    def content(self) -> list[Any]:
        hashed = [[path, hashlib.sha256(data).hexdigest()] for path, data in self.files]
        return [self.kind, list(self.words), hashed]


Make = Callable[..., Awaitable["Sandbox"]]


@dataclass(frozen=True, slots=True)
class TemplateBuilder:
    """What a template is to be made of; each call gives a new one, `save` builds it."""

    name: str
    state: Path
    make: Make
    """Makes the sandbox that it is built in, given `source`, `network` and `env`."""
    base: tuple[str, ...]
    """What else it depends on: backend, runtime."""
    steps: tuple[_Step, ...] = ()

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None:
            raise UsageError(
                f"{self.name!r} is no name for a template",
                hint="small letters, digits, '.', '_' and '-', at most 64",
            )

    def _with(self, step: _Step) -> TemplateBuilder:
        return replace(self, steps=(*self.steps, step))

    def install(self, *packages: str) -> TemplateBuilder:
        """Install Python packages, from where this machine installs them."""
        if not packages or any(package.startswith("-") for package in packages):
            raise UsageError("no packages are named", hint='install("numpy", "pandas==2.2")')
        return self._with(_Step("install", packages))

    def run(self, command: str, *arguments: str) -> TemplateBuilder:
        """Run a program, without a network; one that fails fails the build."""
        return self._with(_Step("run", (command, *arguments)))

    def files(self, files: Mapping[str, str | bytes]) -> TemplateBuilder:
        """Write files."""
        raw = {p: c.encode() if isinstance(c, str) else c for p, c in files.items()}
        return self._with(_Step("files", files=tuple(sorted(raw.items()))))

    @property
    def digest(self) -> str:
        """The same for the same steps on the same ground."""
        ground = [*self.base, platform.python_version(), [step.content() for step in self.steps]]
        return hashlib.sha256(json.dumps(ground).encode()).hexdigest()[:32]

    async def save(self) -> Template:
        """The version made of these steps; built if there is none, by one process at a time."""
        folder = self.state / "templates" / self.name
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
            versions = list_templates(self.state, self.name)
            for each in versions:
                if each.digest == self.digest and each.snapshot.folder.is_dir():
                    return each
            return await self._build(versions[-1].version + 1 if versions else 1)
        finally:
            os.close(lock)

    async def _build(self, version: int) -> Template:
        packages = [p for step in self.steps if step.kind == "install" for p in step.words]
        # Only now: asking registries takes a moment to load, and most sandboxes never do.
        from holdfast.sandbox.registries import Access, pip_network

        access = await pip_network(*_names(packages)) if packages else Access((), {})
        sandbox = await self.make(network=access.network, env=access.env)
        try:
            for step in self.steps:
                await _do(sandbox, step)
            kept = await sandbox.snapshot()
        finally:
            await sandbox.stop("its template is built")
        made = Template(
            self.name,
            version,
            self.digest,
            kept.id,
            kept.backend,
            tuple(step.describe() for step in self.steps),
            datetime.now(UTC),
            self.state,
        )
        path = _file(self.state, self.name, version)
        draft = path.with_suffix(".draft")
        data = {k: v for k, v in asdict(made).items() if k != "state"}
        draft.write_text(json.dumps({**data, "created_at": made.created_at.isoformat()}))
        draft.rename(path)
        return made


def _names(packages: list[str]) -> list[str]:
    """The packages without their versions and extras."""
    return [re.split(r"[\s\[<>=!~;@]", package, maxsplit=1)[0] for package in packages]


async def _do(sandbox: Sandbox, step: _Step) -> None:
    if step.kind == "files":
        await sandbox.write_files(dict(step.files))
        return
    words = step.words
    if step.kind == "install":
        words = ("python", "-m", "pip", "install", "--quiet", "--user", *step.words)
    result = await sandbox.run(*words)
    if not result.ok:
        said = (result.stderr or result.stdout).strip().splitlines()
        raise SandboxError(
            f"the template could not be built: {result}", hint=said[-1][:500] if said else None
        )


def _file(state: Path, name: str, version: int) -> Path:
    return state / "templates" / name / f"{version:06}.json"


def list_templates(state: Path, name: str = "*") -> list[Template]:
    """Every version that is kept, by name, oldest first."""
    found = sorted(state.glob(f"templates/{name}/[0-9]*.json"))
    return [_read(path, state) for path in found]


def _read(path: Path, state: Path) -> Template:
    data: dict[str, Any] = json.loads(path.read_text())
    data["steps"] = tuple(data["steps"])
    data["created_at"] = datetime.fromisoformat(data["created_at"])
    return Template(**data, state=state)


def get_template(state: Path, named: str) -> Template:
    """A template by `name` (its latest version) or `name@version`."""
    name, _, version = named.partition("@")
    if _NAME.fullmatch(name) is None:
        raise UsageError(f"{named!r} names no template", hint='"name" or "name@2"')
    versions = list_templates(state, name)
    if version:
        versions = [each for each in versions if str(each.version) == version]
    if not versions:
        raise NotFound(
            f"there is no template {named}", hint="`holdfast sandbox templates` lists them"
        )
    return versions[-1]


def prune_templates(state: Path, keep: int = 1) -> list[Template]:
    """Remove all but the latest `keep` versions of each; gives what was removed."""
    if keep < 0:
        raise UsageError(f"keep={keep} is less than none")
    by_name: dict[str, list[Template]] = {}
    for each in list_templates(state):
        by_name.setdefault(each.name, []).append(each)
    old = [t for versions in by_name.values() for t in versions[: len(versions) - keep]]
    for each in old:
        each.delete()
    return old
