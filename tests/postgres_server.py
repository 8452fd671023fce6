"""A private PostgreSQL for the tests: started by the first that asks, stopped by the last.

From the distribution's packages, as a user without rights, on a socket in a folder of its own. The
processes of one test worker share it: each holds a shared lock on a file while it may use it, and
whoever gets the lock alone at the end stops the server. A store for a test is a namespace of its
own.

A server does not outlive tests that were killed: a process waits for the end of whoever made it.
"""

from __future__ import annotations

import atexit
import fcntl
import itertools
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg

from holdfast.store.postgres.url import PostgresUrl
from waiting import LIMIT

MISSING = "there is no PostgreSQL here (scripts/setup.sh tests installs it)"
_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "400",
    "shared_buffers": "32MB",
    "timezone": "UTC",
}
_numbers = itertools.count(1)

GUARD = """
import fcntl, pathlib, shutil, subprocess, sys
folder, *stop = sys.argv[1:]
sys.stdin.read()  # ends with the process at the other end
try:
    users = open(pathlib.Path(folder, "users"))
except FileNotFoundError:
    pass
else:
    fcntl.flock(users, fcntl.LOCK_EX)  # the others of its run
if pathlib.Path(folder).exists():
    subprocess.run(stop, capture_output=True)
    shutil.rmtree(folder, ignore_errors=True)
    pathlib.Path(folder + ".lock").unlink(missing_ok=True)
"""


def programs() -> Path | None:
    """Where the server's programs are: the newest version's."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    folders = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest = max(folders, key=lambda file: int(file.parent.parent.name), default=None)
    return None if newest is None else newest.parent


class Server:
    """A cluster in a folder, and its server."""

    def __init__(self, folder: Path, settings: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.settings = {**_SETTINGS, **(settings or {})}
        found = programs()
        assert found is not None, MISSING
        self._programs = found

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def url(self, namespace: str = "") -> str:
        extra = f"&namespace={namespace}" if namespace else ""
        return f"postgresql:///postgres?host={self.folder}&user=holdfast{extra}"

    def run(self, program: str, *arguments: str) -> None:
        """Run a program of the server's, as who may: it refuses to be root."""
        command = [str(self._programs / program), *arguments]
        done = subprocess.run(
            [*as_user(), *command], capture_output=True, text=True, timeout=LIMIT, check=False
        )
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"

    def make(self) -> None:
        self._make_folder()
        self.run("initdb", "-D", str(self.data), "-U", "holdfast", "-A", "trust", "--no-sync")
        self._guard()

    def give(self, folder: Path) -> None:
        """Let the server's user have a folder."""
        if os.getuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(folder, user.pw_uid, user.pw_gid)

    def _guard(self) -> None:
        """Have the server end, and its folder go, with this process, however that ends."""
        reading, self._held = os.pipe()  # the other end is open for as long as this process is
        pg_ctl = str(self._programs / "pg_ctl")
        stop = [*as_user(), pg_ctl, "-D", str(self.data), "-w", "-m", "immediate", "stop"]
        command = ["setsid", "-f", sys.executable, "-c", GUARD, str(self.folder.parent), *stop]
        subprocess.run(command, stdin=reading, stdout=subprocess.DEVNULL, check=True)
        os.close(reading)

    def start(self) -> None:
        options = " ".join(f"-c {name}={value or chr(39) * 2}" for name, value in self._all())
        log = str(self.folder / "log")
        self.run("pg_ctl", "-D", str(self.data), "-w", "-l", log, "-o", options, "start")

    def _all(self) -> Sequence[tuple[str, str]]:
        return [*self.settings.items(), ("unix_socket_directories", str(self.folder))]

    def stop(self, how: str = "immediate") -> None:
        self.run("pg_ctl", "-D", str(self.data), "-w", "-m", how, "stop")

    def stop_if_running(self) -> None:
        if (self.data / "postmaster.pid").exists():
            self.stop()

    def start_if_stopped(self) -> None:
        if not (self.data / "postmaster.pid").exists():
            self.start()

    @property
    def conninfo(self) -> str:
        port = self.settings.get("port", "5432")
        return f"host={self.folder} port={port} user=holdfast dbname=postgres"

    # --- several servers ---

    def take_over_from(self, stopped: Server) -> None:
        """Be a copy of a server that was stopped."""
        self._make_folder()
        shutil.copytree(stopped.data, self.data)
        for path in (self.data, *self.data.rglob("*")):
            self.give(path)
        self._guard()

    def follow(self, other: Server, *, guarded: bool = False) -> None:
        """Be a standby of a server that runs; `guarded`: this folder was a server's before."""
        self._make_folder()
        self.run("pg_basebackup", "-d", other.conninfo, "-D", str(self.data), "-R", "--no-sync",
                 "--checkpoint=fast")  # fmt: skip
        if not guarded:
            self._guard()
        self.start()

    def promote(self) -> None:
        self.run("pg_ctl", "-D", str(self.data), "-w", "promote")

    def _make_folder(self) -> None:
        self.folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        self.give(self.folder)


def either(one: Server, other: Server, namespace: str) -> str:
    """The address of whichever of two servers takes writes."""
    hosts = f"{one.folder},{other.folder}"
    return f"postgresql:///postgres?host={hosts}&user=holdfast&namespace={namespace}"


def as_user() -> list[str]:
    """What to put before a command of the server's: its programs refuse to be root."""
    if os.getuid() != 0:
        return []
    user = pwd.getpwnam("postgres")
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]


class _Shared:
    """The server that all tests of a run use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._server: Server | None = None
        self._file = -1

    def get(self) -> Server:
        with self._lock:
            if self._server is None:
                self._server = self._open()
            return self._server

    def _open(self) -> Server:
        # One for each worker of pytest-xdist: readers of a log wait for every transaction that is
        # under way on a server, those of another worker's tests among them.
        worker = os.environ.get("PYTEST_XDIST_WORKER", "")
        run = os.environ.get("PYTEST_XDIST_TESTRUNUID", f"p{os.getpid()}")[:12] + worker
        folder = Path(tempfile.gettempdir()) / f"hf-pg-{os.getuid()}-{run}"
        server = Server(folder / "cluster")
        with _locked(folder):
            folder.mkdir(mode=0o755, exist_ok=True)
            if not server.data.exists():
                server.make()
                server.start()
            self._file = os.open(folder / "users", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_SH)
        atexit.register(self._close, server, folder)
        return server

    def _close(self, server: Server, folder: Path) -> None:
        with _locked(folder):
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return  # others still use it
            if server.data.exists():
                server.stop()
                shutil.rmtree(folder)
                folder.with_suffix(".lock").unlink()


@contextmanager
def _locked(folder: Path) -> Generator[None]:
    """Alone with the folder for a moment: its users hold a lock for as long as they use it."""
    file = os.open(folder.with_suffix(".lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


_shared = _Shared()


def shared() -> Server:
    """The server of this run of the tests."""
    return _shared.get()


def fresh_url() -> str:
    """The address of a store that is not there yet."""
    return shared().url(f"t{os.getpid()}_{next(_numbers)}")


_EMPTY = """
SET session_replication_role = replica;  -- no triggers: what they count is emptied as well
DO $$ DECLARE found text; BEGIN
  FOR found IN SELECT format('%I.%I', schemaname, tablename) FROM pg_tables
    WHERE schemaname = '{schema}' AND tablename NOT IN ('schema_version', 'identity')
  LOOP EXECUTE 'DELETE FROM ' || found; END LOOP;
END $$
"""


def emptied_namespace() -> str:
    """The namespace of a store with nothing in it, the same one again and again.

    To make one takes a tenth of a second. Whoever used it before has closed it.
    """
    namespace = f"e{os.getpid()}"
    schema = PostgresUrl.parse(shared().url(namespace)).schema
    with psycopg.connect(f"host={shared().folder} user=holdfast dbname=postgres") as connection:
        connection.execute(_EMPTY.replace("{schema}", schema).encode())
    return namespace


def short_folder() -> Path:
    """A folder for a server of a test's own: a socket's path has to be short."""
    folder = Path(tempfile.mkdtemp(prefix="hf-pg-"))
    folder.chmod(0o755)
    return folder / "own"


def remove(folder: Path) -> None:
    """Remove what a stopped server leaves."""
    shutil.rmtree(folder.parent)
