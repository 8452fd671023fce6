"""The view: the filesystem every sandbox of this host process starts from, built once.

A small tmpfs with the host's /usr read-only, the interpreters at /opt/holdfast, a few device
nodes, and a skeleton of files (passwd, hosts, certificates) that sandboxes have as their lowest
overlay layer. /usr/local and the interpreter's own site-packages are replaced, so nothing of
the host's installed code or settings is visible but what was chosen.
Runs in the launcher, as root or as root-like in a user namespace of its own.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.sandbox.namespace import linux

UID = GID = 1000
"""Who code in a sandbox believes to be."""
WORKSPACE = "/workspace"
HOME = "/home/user"
LOCALE = {"LC_CTYPE": "C.UTF-8"}
"""Of the agent and of commands, which must agree for one to become the other. CTYPE is all that
C.UTF-8 has over C; as LANG it made every program open a dozen files more, which took a third of a
short command's time on gVisor."""
DEVICES = ("null", "zero", "full", "random", "urandom")
_OS_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_SETTINGS = ("ld.so.cache", "ld.so.conf", "localtime", "mime.types", "services", "protocols")
_CERTIFICATES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
)


@dataclass(frozen=True, slots=True)
class Runtimes:
    """Where the interpreters are on the host."""

    python_prefix: str
    python_executable: str
    """Below the prefix, such as `bin/python3.11`."""
    python_packages: str
    """Below the prefix, where site-packages lie; empty for a system python."""
    system_packages: str
    """For a system python: the folder below /usr/local it looks into."""
    packages: str
    """The host's folder with the packages every sandbox has."""
    node_prefix: str | None
    """Where `bin/node` is, when that is not below /usr; None without node or with /usr's."""

    @staticmethod
    def from_json(data: dict[str, Any]) -> Runtimes:
        return Runtimes(**data)


def python_paths(runtimes: Runtimes) -> frozenset[str]:
    """Every path by which a sandbox may name the interpreter the agent itself runs on."""
    name = os.path.basename(runtimes.python_executable)
    names = ("python", "python3", name)
    home = inside_prefix(runtimes)
    folder = os.path.dirname(runtimes.python_executable)
    return frozenset(
        [f"/opt/holdfast/bin/{n}" for n in names] + [f"{home}/{folder}/{n}" for n in names[1:]]
    )


def inside_prefix(runtimes: Runtimes) -> str:
    """Where the interpreter's prefix is inside."""
    return "/usr" if runtimes.python_prefix == "/usr" else "/opt/holdfast/python"


def inside_python(runtimes: Runtimes) -> str:
    """The interpreter's path inside."""
    return f"{inside_prefix(runtimes)}/{runtimes.python_executable}"


def build(
    view: str, runtimes: Runtimes, *, library: str, snapshots: str, owner: tuple[int, int]
) -> None:
    """Mount the view at `view`; `owner` is who the sandboxes' own folders belong to."""
    linux.mount("tmpfs", view, "tmpfs", linux.MS_NOSUID, "mode=755,size=64m")
    root = Path(view)
    for name in (
        "proc",
        "skeleton",
        "upper",
        "newroot",
        "lib-holdfast",
        "snapshots",
        "lower",
        "none",
    ):
        (root / name).mkdir()
    _operating_system(root)
    _usr_local(root, runtimes)
    _interpreters(root, runtimes)
    _devices(root)
    _built_in_path(root, runtimes)
    skeleton(root / "skeleton", runtimes, owner)
    linux.bind_read_only(library, f"{view}/lib-holdfast")
    # Layers must lie in the mount namespace they are mounted from; no sandbox sees this folder.
    linux.bind_read_only(snapshots, f"{view}/snapshots")
    # A process list of the host's, for the fork server alone: it is what allows a sandbox to
    # mount its own (the kernel wants to see a whole one first).
    linux.bind("/proc", f"{view}/proc", recursive=True)


def _show(root: Path, source: str, place: str) -> None:
    """Let sandboxes see a folder of the host's, read-only, through a file system of our own.

    A plain bind mount would tell its path on the host (/proc/self/mountinfo), and locks and
    watches on its files would be the host's too. The names in an overlay's options are relative.
    """
    target = str(root / place)
    linux.bind_read_only(source, str(root / "lower"))
    here = os.getcwd()
    os.chdir(root)
    try:
        flags = linux.MS_RDONLY | linux.MS_NOSUID | linux.MS_NODEV
        linux.mount("overlay", target, "overlay", flags, "lowerdir=lower:none")
    except OSError:
        linux.bind_read_only(source, target)  # an older kernel, for somebody who is not root
    finally:
        os.chdir(here)
        linux.umount(str(root / "lower"))


def _operating_system(root: Path) -> None:
    (root / "usr").mkdir()
    _show(root, "/usr", "usr")
    _os_links(root)
    for name in own_os_folders():
        _show(root, f"/{name}", name)


def _os_links(root: Path) -> None:
    """/bin, /lib and the like: links where the host has links, else folders to mount on."""
    for name in _OS_LINKS:
        host = Path("/", name)
        if host.is_symlink():
            (root / name).symlink_to(os.readlink(host))
        elif host.is_dir():
            (root / name).mkdir()


def own_os_folders() -> list[str]:
    """The folders such as /lib that are not links into /usr on this host."""
    roots = {name: Path("/", name) for name in _OS_LINKS}
    return [name for name, path in roots.items() if path.is_dir() and not path.is_symlink()]


def _usr_local(root: Path, runtimes: Runtimes) -> None:
    """Hide what the host has installed by hand; a system python finds our packages there."""
    if not Path("/usr/local").is_dir():
        return
    empty = root / "usr-local"
    empty.mkdir()
    for name in ("bin", "lib", "share"):
        (empty / name).mkdir()
    packages = None
    if runtimes.system_packages:
        packages = empty / runtimes.system_packages
        packages.mkdir(parents=True)
    linux.bind(str(empty), str(root / "usr/local"))
    if packages is not None:
        _show(root, runtimes.packages, f"usr/local/{runtimes.system_packages}")
    linux.remount_read_only(str(root / "usr/local"))


def _interpreters(root: Path, runtimes: Runtimes) -> None:
    home = root / "opt/holdfast"
    (home / "bin").mkdir(parents=True)
    if runtimes.python_prefix != "/usr":
        (home / "python").mkdir()
        _show(root, runtimes.python_prefix, "opt/holdfast/python")
        _show(root, runtimes.packages, f"opt/holdfast/python/{runtimes.python_packages}")
    if runtimes.node_prefix is not None:
        (home / "node").mkdir()
        _show(root, runtimes.node_prefix, "opt/holdfast/node")
    link_interpreters(home, runtimes)


def link_interpreters(home: Path, runtimes: Runtimes) -> None:
    """The names programs are called by, in a folder of their own."""
    name = os.path.basename(runtimes.python_executable)
    for alias in {"python", "python3", name}:
        (home / "bin" / alias).symlink_to(inside_python(runtimes))
    if runtimes.node_prefix is None:
        return
    node = "/opt/holdfast/node/bin/node"
    (home / "bin/node").symlink_to(node)
    for program in ("npm", "npx"):
        # By the script itself: packaged as a wheel, node's own links to it are copies that fail.
        script = f"lib/node_modules/npm/bin/{program}-cli.js"
        if Path(runtimes.node_prefix, script).is_file():
            caller = home / "bin" / program
            caller.write_text(f'#!/bin/sh\nexec {node} /opt/holdfast/node/{script} "$@"\n')
            caller.chmod(0o755)


def _devices(root: Path) -> None:
    (root / "dev").mkdir()
    for name in DEVICES:
        (root / "dev" / name).touch()
        linux.bind(f"/dev/{name}", str(root / "dev" / name))
    for name in ("shm", "pts"):
        (root / "dev" / name).mkdir()
    (root / "dev/ptmx").symlink_to("pts/ptmx")
    (root / "dev/fd").symlink_to("/proc/self/fd")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        (root / "dev" / name).symlink_to(f"/proc/self/fd/{number}")


def skeleton(root: Path, runtimes: Runtimes, owner: tuple[int, int]) -> None:
    """The files of a fresh sandbox, apart from what is mounted."""
    root.chmod(0o755)
    for name in ("usr", "opt/holdfast", "proc", "dev", "etc", "var", "run", "root", "mnt", "srv"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in ("tmp", "var/tmp"):
        (root / name).mkdir()
        (root / name).chmod(0o1777)
    for path in (WORKSPACE, HOME):
        (root / path[1:]).mkdir(parents=True)
    _os_links(root)
    _built_in_path(root, runtimes)
    _settings(root / "etc")
    # All of it is the sandbox's own: an overlay can't copy up what belongs to a user it lacks.
    for folder, folders, files in os.walk(root):
        for name in (".", *folders, *files):
            os.chown(os.path.join(folder, name), *owner, follow_symlinks=False)


def standalone(root: Path, runtimes: Runtimes, owner: tuple[int, int]) -> None:
    """A root for backends that mount the rest themselves and start the agent as a program."""
    root.mkdir(parents=True)
    skeleton(root, runtimes, owner)
    ours = ("lib-holdfast", "opt/holdfast/bin", "opt/holdfast/python", "opt/holdfast/node")
    for name in (*ours, "layer", "upper"):
        (root / name).mkdir(parents=True)
    link_interpreters(root / "opt/holdfast", runtimes)


def _built_in_path(root: Path, runtimes: Runtimes) -> None:
    """Shared libraries are found by the path the interpreter was built with: lead it to ours."""
    if runtimes.python_prefix in ("/usr", "/usr/local"):
        return
    built = root / runtimes.python_prefix[1:]
    if not os.path.lexists(built):
        built.parent.mkdir(parents=True, exist_ok=True)
        built.symlink_to("/opt/holdfast/python")


def _settings(etc: Path) -> None:
    write = {
        "passwd": f"root:x:0:0:root:/root:/bin/sh\nuser:x:{UID}:{GID}:user:{HOME}:/bin/sh\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
        "group": f"root:x:0:\nuser:x:{GID}:\nnogroup:x:65534:\n",
        "hosts": "127.0.0.1 localhost\n::1 localhost\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
        "resolv.conf": "nameserver 127.0.0.1\noptions attempts:1 timeout:5\n",
        "gitconfig": "[safe]\n\tdirectory = *\n",
    }
    for name, text in write.items():
        (etc / name).write_text(text)
    for name in _SETTINGS:
        host = Path("/etc", name)
        if host.is_file():
            shutil.copyfile(host, etc / name)
    if Path("/etc/alternatives").is_dir():
        shutil.copytree("/etc/alternatives", etc / "alternatives", symlinks=True)
    bundle = next((path for path in _CERTIFICATES if os.path.isfile(path)), None)
    if bundle is not None:
        (etc / "ssl/certs").mkdir(parents=True)
        shutil.copyfile(bundle, etc / "ssl/certs/ca-certificates.crt")
