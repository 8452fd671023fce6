"""The fenced code blocks of a page, and what their info strings say about them.

    ```python              executed, in order, in one namespace per page; `await` works
    ```python file=a.py    written to the page's folder (any language: ```toml file=holdfast.toml)
    ```console             each line that begins with `$ ` is run; what follows is its output
    ```console fails       the same, and the last command must fail
    ```output              what the python block before it printed
    ```python no-run       not executed; counted, so that there are few

In outputs `…` stands for anything, and alone on a line for any number of lines. Other languages
(text, sql, …) are no examples.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LANGUAGES = ("python", "console", "output")


@dataclass(frozen=True)
class Block:
    language: str
    words: tuple[str, ...]
    text: str
    line: int

    @property
    def runs(self) -> bool:
        return "no-run" not in self.words

    @property
    def file(self) -> str | None:
        named = [word for word in self.words if word.startswith("file=")]
        return named[0].removeprefix("file=") if named else None


def blocks_of(page: Path) -> list[Block]:
    """The examples in a page."""
    text = page.read_text(encoding="utf-8")
    found: list[Block] = []
    for match in FENCE.finditer(text):
        if match[1] in LANGUAGES or " file=" in match[2]:
            line = text.count("\n", 0, match.start()) + 2
            found.append(Block(match[1], tuple(match[2].split()), match[3], line))
    return found


def commands_of(block: Block) -> list[tuple[str, str]]:
    """The commands of a console block, each with the output it should give."""
    found: list[tuple[str, str]] = []
    for line in block.text.splitlines(keepends=True):
        if line.startswith("$ "):
            found.append((line[2:], ""))
        elif found and found[-1][0].endswith("\\\n"):
            found[-1] = (found[-1][0] + line, "")
        elif found:
            found[-1] = (found[-1][0], found[-1][1] + line)
    return found


def fits(expected: str, printed: str) -> bool:
    """Whether what was printed is what the page says; the width of gaps does not matter."""
    pattern = ""
    for line in _tidy(expected).splitlines():
        if line.strip() == "…":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += "[^\n]*?".join(re.escape(part) for part in line.split("…")) + "\n"
    return re.fullmatch(pattern, _tidy(printed)) is not None


def _tidy(text: str) -> str:
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return "".join(f"{line}\n" for line in lines if line)
