"""Real test modules: sources of small packages, fetched from the index that pip is set up with.

Nothing of theirs is kept. A bug is put into a function that the tests name, by its syntax tree.
"""

from __future__ import annotations

import ast
import hashlib
import io
import re
import ssl
import tarfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from html import unescape

from holdfast.sandbox import registries

PACKAGES = {
    "inflection": 5, "toolz": 20, "boltons": 40, "sortedcontainers": 12, "more-itertools": 5,
    "cachetools": 20, "python-slugify": 5, "humanize": 10, "parse": 10, "webcolors": 12,
    "jsonpointer": 3, "mpmath": 45, "networkx": 100, "textdistance": 40, "tabulate": 12, "ply": 3,
    "commonmark": 5, "mistune": 15, "pyparsing": 6, "bidict": 5, "wcwidth": 10, "pathspec": 8,
    "semver": 20, "isodate": 8, "python-dateutil": 10, "iniconfig": 3, "first": 2, "funcy": 20,
    "multipledispatch": 5, "docopt": 2, "blinker": 5, "click": 20, "itsdangerous": 8,
    "markupsafe": 8, "jinja2": 25, "werkzeug": 20, "idna": 8, "chardet": 3, "pyrsistent": 20,
    "zipp": 5, "packaging": 15, "wheel": 3, "sniffio": 2, "h11": 12, "hpack": 8, "hyperframe": 4,
    "wsproto": 8, "pyasn1": 40, "rsa": 12, "ecdsa": 15, "construct": 6, "bitstring": 15,
    "intervaltree": 8, "natsort": 12, "titlecase": 2, "num2words": 40, "roman": 2, "pyyaml": 2,
    "simplejson": 25, "deepmerge": 8, "dpath": 12, "glom": 20, "schema": 3, "voluptuous": 4,
    "marshmallow": 10, "stevedore": 3, "retrying": 2, "backoff": 5, "tenacity": 5, "munch": 3,
    "addict": 2, "python-box": 5, "prettytable": 4, "texttable": 2, "colorama": 6, "termcolor": 3,
    "anytree": 20, "treelib": 5, "pyphen": 2, "unidecode": 3, "rfc3986": 12, "hyperlink": 10,
    "furl": 4, "uritemplate": 4, "validators": 40, "phonenumbers": 20, "pycountry": 3,
    "sqlparse": 10, "ftfy": 5, "arrow": 10, "pendulum": 3, "croniter": 4, "numpy-financial": 2,
}  # fmt: skip
"""And how many test modules of each are taken at most."""
_MOST_FILE = 400_000
_LINK = re.compile(r'<a\s[^>]*?href="([^"]+)"[^>]*>([^<]+)</a>', re.IGNORECASE)
_STABLE = re.compile(r"-(\d+(?:\.\d+)*)\.tar\.gz$")


class OutOfReach(Exception):
    """The index does not answer."""


@dataclass(frozen=True)
class Module:
    """A test module, and a bug for what it tests."""

    name: str
    package: str
    text: str
    bug: tuple[str, str] | None
    """A file of the package and its text with the bug."""


@cache
def _index() -> tuple[str, str | None]:
    """Where pip fetches from, and whose certificates it believes there."""
    ask = registries._ask_pip  # pyright: ignore[reportPrivateUsage]
    settings = registries.configured(ask("config", "list"))
    index = settings.get("index-url") or registries.default_index(ask("install", "--help"))
    return index, settings.get("cert")


def newest(package: str) -> bytes:
    """The newest source distribution, a compressed tar; empty if there is none."""
    index, certificates = _index()
    trust = ssl.create_default_context(cafile=certificates)
    page = f"{index.rstrip('/')}/{package}/"
    links = _LINK.findall(_got(page, trust).decode())
    archives = [(_version(name), unescape(href)) for href, name in links if _STABLE.search(name)]
    if not archives:
        return b""
    _, href = max(archives)
    return _got(urllib.parse.urljoin(page, href.partition("#")[0]), trust)


def fetched(package: str) -> dict[str, str]:
    """The Python files of the newest source distribution, by their path in it."""
    raw = newest(package)
    files: dict[str, str] = {}
    if not raw:
        return files
    with tarfile.open(fileobj=io.BytesIO(raw), mode="r:gz") as archive:
        for member in archive:
            if member.isfile() and member.name.endswith(".py") and member.size < _MOST_FILE:
                read = archive.extractfile(member)
                assert read is not None
                try:
                    text = read.read().decode()
                except UnicodeDecodeError:
                    continue
                files[member.name.partition("/")[2]] = text
    return files


def _version(name: str) -> tuple[int, ...]:
    found = _STABLE.search(name)
    return tuple(int(part) for part in found[1].split(".")) if found else ()


def _got(url: str, trust: ssl.SSLContext) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=60, context=trust) as answer:
            return answer.read()
    except (OSError, urllib.error.URLError) as error:
        raise OutOfReach(f"{error}") from error


def importable(files: dict[str, str]) -> dict[str, str]:
    """The files of the package itself, by the path under which they are imported."""
    for root in ("src/", "lib/", "lib3/"):
        if any(path.startswith(root) for path in files):
            return {p.removeprefix(root): t for p, t in files.items() if p.startswith(root)}
    return {p: t for p, t in files.items() if not re.match(r"(tests?|docs?|setup|conftest)\b", p)}


def modules(package: str, files: dict[str, str], most: int) -> Iterator[Module]:
    """Its test modules that need nothing but the package, each with a bug."""
    program = importable(files)
    functions = _functions(program)
    names = sorted(p for p in files if re.search(r"(^|/)(test_\w+|\w+_test|tests)\.py$", p))
    taken = 0
    for path in names:
        text = files[path]
        if taken >= most or re.search(r"^\s*from \.|^\s*import conftest", text, re.MULTILINE):
            continue
        taken += 1
        name = re.sub(r"\W", "_", f"{package}_{path.removesuffix('.py')}")
        yield Module(name, package, text, _bug(text, functions, program))


def _functions(program: dict[str, str]) -> dict[str, list[str]]:
    """In which files each function is defined."""
    found: dict[str, list[str]] = {}
    for path, text in program.items():
        if "test" not in path:
            for name in set(re.findall(r"^\s*def (\w+)\(", text, re.MULTILINE)):
                found.setdefault(name, []).append(path)
    return found


def _bug(
    text: str, functions: dict[str, list[str]], program: dict[str, str]
) -> tuple[str, str] | None:
    words = re.findall(r"\b(\w+)\(", text)
    counts = {word: words.count(word) for word in set(words) if len(functions.get(word, ())) == 1}
    for word in sorted(counts, key=lambda word: (-counts[word], word))[:20]:
        [path] = functions[word]
        try:
            tree = ast.parse(program[path])
        except SyntaxError:
            continue
        breaking = _Bug(word)
        breaking.visit(tree)
        if breaking.done:
            return path, ast.unparse(ast.fix_missing_locations(tree))
    return None


class _Bug(ast.NodeTransformer):
    """Turns a comparison, a sum or what is returned into something else, in one function."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._kind = hashlib.blake2b(name.encode(), digest_size=1).digest()[0] % 2
        self._within = False
        self.done = False

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if node.name == self._name and not self.done:
            self._within = True
            self.generic_visit(node)
            self._within = False
        else:
            self.generic_visit(node)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        if self._within and not self.done and self._kind:
            self.done = True
            return ast.UnaryOp(ast.Not(), node)
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        if self._within and not self.done and node.value is not None:
            self.done = True
            return ast.Return(ast.Constant(None))
        return node
