"""`.env`: variables that the environment lacks, from a file in this folder.

Never over what the environment says. `HOLDFAST_ENV_FILE` names another file; empty, none is read.
Lines are `NAME=value`, with `export` and quotes as shells write them; nothing is substituted.
Names that decide what programs are loaded are not taken from a file that happens to lie here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from holdfast.errors import ConfigError

FILE = ".env"
VARIABLE = "HOLDFAST_ENV_FILE"
_LINE = re.compile(
    r"""[ \t]*(?:export[ \t]+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*
        (?:"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>[^']*)'|(?P<plain>[^\n]*?))
        [ \t]*(?:(?<=[\s"'=])\#[^\n]*)?(?:\n|\Z)""",
    re.VERBOSE | re.DOTALL,
)
_NOTHING = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\n|\Z)")
_LOADING = re.compile(r"PATH|HOME|SHELL|IFS|ENV|NODE_OPTIONS|(LD|DYLD|PYTHON|BASH)_?.*|GIT_.*")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}

loaded: dict[str, str] = {}
"""Which variables came from which file."""


def load(environ: MutableMapping[str, str] = os.environ) -> None:
    """Add what the file says to the environment; raises ConfigError for a line it can't read."""
    named = environ.get(VARIABLE)
    if named == "":
        return
    path = Path(named or FILE)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        if named:
            raise ConfigError(f"{VARIABLE}: there is no file {named}") from error
        return
    except IsADirectoryError:
        return  # a virtual environment of that name
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path} can't be read: {error}", hint=f"{VARIABLE}= reads none"
        ) from error
    for name, value in parse(text, str(path)).items():
        if name not in environ and not _LOADING.fullmatch(name):
            environ[name] = value
            loaded[name] = str(path)


def parse(text: str, where: str = FILE) -> Mapping[str, str]:
    """The variables of such a file; the last of a name counts."""
    found: dict[str, str] = {}
    at = 0
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    while at < len(text):
        if empty := _NOTHING.match(text, at):
            at = empty.end()
            continue
        line = _LINE.match(text, at)
        if line is None:
            number = text.count("\n", 0, at) + 1
            raise ConfigError(
                f"{where}, line {number}: this is no NAME=value",
                hint=f"quote a value with quotes or line breaks in it; {VARIABLE}= reads no file",
            )
        double, single, plain = line["double"], line["single"], line["plain"]
        if double is not None:
            value = re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), double, flags=re.DOTALL)
        else:
            value = single if single is not None else plain or ""
        found[line["name"]] = value
        at = line.end()
    return found
