"""Small registries on the host's loopback, with a real package each: one for pip, one for npm."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import zipfile
from base64 import b64encode
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler
from typing import Any

WHEEL = "tiny-1.0-py3-none-any.whl"
TARBALL = "tiny-1.0.0.tgz"


@cache  # a zip has the time of its making in it
def wheel() -> bytes:
    """A wheel of the package `tiny`."""
    files = {
        "tiny.py": "X = 7\n",
        "tiny-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
        "tiny-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "tiny-1.0.dist-info/RECORD": "tiny.py,,\ntiny-1.0.dist-info/METADATA,,\n"
        "tiny-1.0.dist-info/WHEEL,,\ntiny-1.0.dist-info/RECORD,,\n",
    }
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return made.getvalue()


@cache
def tarball() -> bytes:
    """A package of npm's, `tiny`."""
    files = {
        "package/package.json": json.dumps(
            {"name": "tiny", "version": "1.0.0", "main": "index.js"}
        ),
        "package/index.js": "module.exports = 7\n",
    }
    made = io.BytesIO()
    with gzip.GzipFile(fileobj=made, mode="wb", mtime=0) as packed:
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for name, text in files.items():
                info = tarfile.TarInfo(name)
                info.size, info.mode = len(text), 0o644
                archive.addfile(info, io.BytesIO(text.encode()))
    return made.getvalue()


@dataclass
class Registry:
    """What a registry serves, whom it lets in, and what it was asked."""

    authorization: str | None = None
    files_at: str = ""
    """Where its files are said to be; empty: beside its pages."""
    requests: list[tuple[str, str | None]] = field(default_factory=list[Any])

    def handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                given = self.headers.get("authorization")
                registry.requests.append((self.path, given))
                if registry.authorization is not None and given != registry.authorization:
                    self._answer(401, "text/plain", b"who are you?")
                    return
                host = registry.files_at or f"http://{self.headers['host']}"
                found = _page(self.path, host)
                if found is None:
                    self._answer(404, "text/plain", b"no such thing")
                else:
                    self._answer(200, *found)

            def _answer(self, status: int, kind: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler


def _page(path: str, host: str) -> tuple[str, bytes] | None:
    if path == "/simple/tiny/":
        digest = hashlib.sha256(wheel()).hexdigest()
        link = f"{host}/files/{WHEEL}#sha256={digest}"
        return "text/html", f'<a href="{link}">{WHEEL}</a>'.encode()
    if path == f"/files/{WHEEL}":
        return "application/zip", wheel()
    if path in ("/tiny", "/tiny/latest"):
        integrity = b64encode(hashlib.sha512(tarball()).digest()).decode()
        dist = {"tarball": f"{host}/tiny/-/{TARBALL}", "integrity": f"sha512-{integrity}"}
        version = {"name": "tiny", "version": "1.0.0", "dist": dist}
        tags = {"name": "tiny", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
        return "application/json", json.dumps(version if "latest" in path else tags).encode()
    if path == f"/tiny/-/{TARBALL}":
        return "application/octet-stream", tarball()
    return None
