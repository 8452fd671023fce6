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

from holdfast.agents.code import javascript
from holdfast.agents.code.languages import Language

_THINKING = re.compile(r"^[ \t]*<(think|thinking|reasoning)>", re.MULTILINE | re.IGNORECASE)
_THOUGHT = re.compile(r"</(think|thinking|reasoning)>", re.IGNORECASE)
_FENCE = re.compile(r"^([ \t]*(?:[>*-][ \t]+)*)(`{3,}|~{3,})[ \t]*([^\n`]*)$")
_FENCE_AT = re.compile(r"^[ \t]*(?:[>*-][ \t]+)*(?:`{3,}|~{3,})", re.MULTILINE)
_TAG = re.compile(r"<(code|solution|tests?|file|answer)\b[^>]*>\n?(.*?)</\1>", re.DOTALL)
_FILE_KEYS = ("path", "file", "filename", "file_name", "name")
_MOST = 2_000_000
"""Characters of a reply that are searched for code that no fence marks."""
_MOST_ENDS = 40
"""Places where one fenced block may end that are tried."""


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of code in a reply, with what was said about it."""

    code: str
    label: str
    """The fence's info string and the line before it."""


def code_in(reply: str, language: Language, *, tests: bool) -> str | None:
    """The program (or its tests) that the reply holds."""
    text = reply.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")
    text = _without_thoughts(text)
    for find in (_fenced, _tagged, _in_json):
        blocks = [block for block in find(text, language) if block.code.strip()]
        chosen = _choose(blocks, language, tests=tests)
        if chosen is not None:
            return f"{chosen.strip()}\n"
    bare = _bare(text, language)
    return None if bare is None else f"{bare.strip()}\n"


# --- where code may be ---


def _without_thoughts(text: str) -> str:
    """The reply without what the model thought aloud before it: tags within code are code."""
    while True:
        begun = _THINKING.search(text)
        place = begun.start() if begun else len(text)
        fence = _FENCE_AT.search(text)
        if begun is None or (fence is not None and fence.start() < place):
            # Some leave the tag out that begins their thoughts.
            ended = _THOUGHT.search(text[: fence.start()] if fence else "")
            return text[ended.end() :] if ended else text
        ended = _THOUGHT.search(text, begun.end())
        text = text[:place] + (text[ended.end() :] if ended else "")


def _fenced(text: str, language: Language) -> list[Block]:
    blocks: list[Block] = []
    before = ""
    lines = text.split("\n")
    place = 0
    while place < len(lines):
        match = _FENCE.match(lines[place])
        if match is None:
            before = lines[place].strip() or before
            place += 1
            continue
        label = f"{match[3]}\n{before}"
        code, place = _to_its_end(lines, place + 1, match[1], match[2], language)
        blocks.append(_block(code, match[1], label))
        before = ""
    return blocks


def _to_its_end(
    lines: list[str], start: int, indent: str, fence: str, language: Language
) -> tuple[list[str], int]:
    """The lines of a block, and the place behind it.

    A fence within it may be part of a string: the first that leaves whole code behind is its end,
    or else the first of all. Some models put it on the last line of the code.
    """
    first: tuple[list[str], int] | None = None
    tried = 0
    for place in range(start, len(lines)):
        line = lines[place]
        match = _FENCE.match(line)
        closes = match is not None and match[2].startswith(fence) and not match[3].strip()
        trails = match is None and line.rstrip().endswith(fence)
        if not (closes or trails) or tried >= _MOST_ENDS:
            continue
        tried += 1
        inner = lines[start:place]
        if trails:
            inner = [*inner, line.rstrip().removesuffix(fence)]
        if _whole(_block(inner, indent, "").code, language):
            return inner, place + 1
        if closes and first is None:
            first = inner, place + 1
    return first or (lines[start:], len(lines))  # it was cut, or the model forgot to close it


def _whole(code: str, language: Language) -> bool:
    """Whether code may end here: it parses, so no bracket, string or comment is left open."""
    if language.name == "python":
        return _parses(code)
    return javascript.is_whole(code, language.name)


def _block(lines: list[str], indent: str, label: str) -> Block:
    bare = [line.removeprefix(indent) if indent else line for line in lines]
    return Block(textwrap.dedent("\n".join(bare).lstrip("\ufeff")), label)


def _tagged(text: str, _: Language) -> list[Block]:
    found = _TAG.finditer(text) if len(text) <= _MOST else ()
    return [Block(match[2], f"\n{match[0].split('>')[0]}") for match in found]


def _in_json(text: str, _: Language) -> list[Block]:
    """The strings of an object: the reply itself, or all between its first and last brace."""
    if len(text) > _MOST:
        return []
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
    if len(text) > _MOST:
        return None
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
