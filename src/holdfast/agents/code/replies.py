"""Code out of a model's reply, whatever it is wrapped in.

Fences of either kind, several of them, unclosed ones, tags, JSON, or no wrapping at all between
sentences of chatter. Pure text in, text out; `None` where there is no code to be found.
"""

from __future__ import annotations

import ast
import json
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

from holdfast.agents.code.languages import Language

_THINKING = re.compile(r"<(think|thinking|reasoning)>.*?(</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"^([ \t]*(?:[>*-][ \t]+)*)(`{3,}|~{3,})[ \t]*([^\n`]*)$")
_TAG = re.compile(r"<(code|solution|tests?|file|answer)\b[^>]*>\n?(.*?)</\1>", re.DOTALL)
_FILE_KEYS = ("path", "file", "filename", "file_name", "name")
_MOST = 2_000_000


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of code in a reply, with what was said about it."""

    code: str
    label: str
    """The fence's info string and the line before it."""


def code_in(reply: str, language: Language, *, tests: bool) -> str | None:
    """The program (or its tests) that the reply holds."""
    text = _THINKING.sub("", reply[:_MOST].replace("\r\n", "\n").lstrip("\ufeff"))
    for find in (_fenced, _tagged, _in_json):
        blocks = [block for block in find(text) if block.code.strip()]
        chosen = _choose(blocks, language, tests=tests)
        if chosen is not None:
            return f"{chosen.strip()}\n"
    bare = _bare(text, language)
    return None if bare is None else f"{bare.strip()}\n"


# --- where code may be ---


def _fenced(text: str) -> list[Block]:
    blocks: list[Block] = []
    before = ""
    opened: tuple[str, str, str, list[str]] | None = None
    for line in text.split("\n"):
        match = _FENCE.match(line)
        if opened is None:
            if match:
                opened = (match[1], match[2], f"{match[3]}\n{before}", [])
            elif line.strip():
                before = line.strip()
            continue
        indent, fence, label, lines = opened
        if match and match[2].startswith(fence) and not match[3].strip():
            blocks.append(_block(lines, indent, label))
            opened, before = None, ""
        else:
            lines.append(line)
    if opened is not None:  # it was cut, or the model forgot to close it
        blocks.append(_block(opened[3], opened[0], opened[2]))
    return blocks


def _block(lines: list[str], indent: str, label: str) -> Block:
    bare = [line.removeprefix(indent) if indent else line for line in lines]
    return Block(textwrap.dedent("\n".join(bare)), label)


def _tagged(text: str) -> list[Block]:
    return [Block(match[2], f"\n{match[0].split('>')[0]}") for match in _TAG.finditer(text)]


def _in_json(text: str) -> list[Block]:
    """The strings of an object: the reply itself, or all between its first and last brace."""
    start, end = text.find("{"), text.rfind("}")
    try:
        data: Any = json.loads(text[start : end + 1]) if start >= 0 else None
        return list(_strings(data, ""))
    except (ValueError, RecursionError):
        return []


def _strings(data: Any, key: str) -> Iterator[Block]:
    """Every string, called by its key, or by the name that stands beside it."""
    if isinstance(data, str):
        yield Block(data, f"\n{key}")
    elif isinstance(data, list):
        for each in cast("list[Any]", data):
            yield from _strings(each, key)
    elif isinstance(data, dict):
        found = cast("dict[str, Any]", data)
        named = next((name for name in _FILE_KEYS if isinstance(found.get(name), str)), None)
        for name, value in found.items():
            if name != named:
                yield from _strings(value, f"{found[named]} {name}" if named else name)


def _bare(text: str, language: Language) -> str | None:
    """Code that nothing marks: from the first line that looks like it to the last that fits."""
    lines = text.strip("\n").split("\n")
    starts = [place for place, line in enumerate(lines) if language.begins.match(line)]
    if not starts:
        return None
    if language.name != "python":
        ends = [
            place for place, line in enumerate(lines) if line.rstrip().endswith((";", "}", ")"))
        ]
        return "\n".join(lines[starts[0] : ends[-1] + 1]) if ends else None
    for start in starts[:5]:
        for end in range(len(lines), max(start, len(lines) - 60), -1):
            piece = "\n".join(lines[start:end])
            if _parses(piece):
                return piece
    return None


# --- which of it is meant ---


def _choose(blocks: list[Block], language: Language, *, tests: bool) -> str | None:
    wanted, other = (
        (language.test_file, language.code_file)
        if tests
        else (language.code_file, language.test_file)
    )
    named = [block for block in blocks if _names(block, wanted)]
    if named:
        return named[-1].code
    fitting = [b for b in blocks if not _names(b, other) and _is_code(b, language)]
    sided = [block for block in fitting if language.looks_like_tests(block.code) == tests]
    chosen = sided or fitting
    if not chosen:
        return None
    return _joined([block.code for block in chosen], language.defines)


def _names(block: Block, file: str) -> bool:
    """Whether the block says that it is this file, around the fence or in its first line."""
    first = block.code.lstrip().split("\n", 1)[0]
    comment = first if first.startswith(("#", "//", "/*")) else ""
    return re.search(rf"(?<![\w-]){re.escape(file)}\b", f"{block.label}\n{comment}") is not None


def _is_code(block: Block, language: Language) -> bool:
    info = block.label.split("\n", 1)[0].strip().lower()
    word = re.split(r"[\s{:,]", info, maxsplit=1)[0]
    if word and word not in language.fences:
        return False
    if language.name == "python":
        # A block that says it is Python counts even if it does not parse: the interpreter will
        # tell the model what is wrong with it.
        return bool(word) or _parses(block.code)
    return bool(word) or language.begins.search(block.code) is not None


def _joined(codes: list[str], defines: Callable[[str], frozenset[str]]) -> str:
    """The last block, and before it those that define something else.

    A block that defines a name again is a better version of an earlier one; one that defines
    nothing shows how to call it.
    """
    kept: list[str] = []
    known: frozenset[str] = frozenset()
    for code in reversed(codes):
        names = defines(code)
        if kept and (not names or names & known):
            continue
        if not names and len(codes) > 1 and any(defines(each) for each in codes):
            continue
        kept.insert(0, code.strip("\n"))
        known |= names
    return "\n\n\n".join(kept)


def _parses(code: str) -> bool:
    try:
        return bool(ast.parse(code).body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
