"""What pip's settings say of registries, as the settings of uv, which does not read pip's.

Prints `export UV_…=…` lines for a shell. Taken from pip itself when it runs, so that no address is
written down here. What the environment already says to uv stays as it is.
"""

from __future__ import annotations

import ast
import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit


def pip_settings(listing: str) -> dict[str, list[str]]:
    """`pip config list` as values by name; the environment counts more than files, as for pip."""
    found: dict[str, tuple[int, list[str]]] = {}
    for line in listing.splitlines():
        place, equals, value = line.partition("=")
        section, _, name = place.rpartition(".")
        rank = {"global": 0, "install": 1, ":env:": 2}.get(section, -1)
        if not equals or rank < found.get(name, (0, []))[0]:
            continue
        found[name] = (rank, str(ast.literal_eval(value)).split())
    return {name: values for name, (_, values) in found.items()}


def is_there(place: str) -> bool:
    """Pip passes over a folder that is not there; uv would stop."""
    parts = urlsplit(place)
    if parts.scheme == "file":
        return Path(unquote(parts.path)).exists()
    return bool(parts.scheme) or Path(place).exists()


def uv_settings(pip: Mapping[str, list[str]], environment: Mapping[str, str]) -> dict[str, str]:
    def given(name: str) -> Iterable[str]:
        return (value for value in pip.get(name, []) if is_there(value))

    said = {
        "UV_DEFAULT_INDEX": " ".join(given("index-url")),
        "UV_INDEX": " ".join(given("extra-index-url")),
        "UV_FIND_LINKS": ",".join(given("find-links")),
        "UV_INSECURE_HOST": " ".join(pip.get("trusted-host", [])),
        "UV_HTTP_TIMEOUT": " ".join(pip.get("default-timeout", pip.get("timeout", []))),
        "SSL_CERT_FILE": " ".join(pip.get("cert", [])),
        # As pip: the best version of all indexes; which files may be had the hashes say.
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_NO_INDEX": "1"
        if pip.get("no-index", ["false"])[0].lower() in ("1", "true", "yes")
        else "",
    }
    return {name: value for name, value in said.items() if value and name not in environment}


def main() -> None:
    listing = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    for name, value in uv_settings(pip_settings(listing), os.environ).items():
        print(f"export {name}={shlex.quote(value)}")


if __name__ == "__main__":
    main()
