"""How models wrap the code they are asked for, as seen in the wild."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable

Wrap = Callable[[str, str, str], str]
"""Code, language and file name in; a reply out."""


def fenced(code: str, language: str, file: str) -> str:
    return f"```{language}\n{code}```\n"


def short_name(code: str, language: str, file: str) -> str:
    short = {"python": "py", "typescript": "ts", "javascript": "js"}[language]
    return f"Here you go:\n\n```{short}\n{code}```"


def bare_fence(code: str, language: str, file: str) -> str:
    return f"```\n{code}```"


def chatter(code: str, language: str, file: str) -> str:
    return (
        f"Certainly! Below is **{file}**, which does what you asked for.\n\n```{language}\n{code}"
        "```\n\n### How it works\n\n- It is a single file.\n- It uses `the standard library` only.\n"
        "\nLet me know if you would like anything changed!"
    )


def with_shell(code: str, language: str, file: str) -> str:
    return (
        f"Save this as `{file}`:\n\n```{language}\n{code}```\n\nand try it:\n\n"
        "```bash\n$ echo done\n```\n\nIt prints:\n\n```text\ndone\n```\n"
    )


def tildes(code: str, language: str, file: str) -> str:
    return f"~~~{language}\n{code}~~~\n"


def naked(code: str, language: str, file: str) -> str:
    return code


def naked_with_words(code: str, language: str, file: str) -> str:
    return f"Sure, here is the file you asked for:\n\n{code}\nThat should do what you want.\n"


def as_json(code: str, language: str, file: str) -> str:
    return json.dumps({"explanation": "The whole file is here", "code": code})


def thinking(code: str, language: str, file: str) -> str:
    decoy = f"```{language}\nraise_this_is_only_a_thought = 1\n```"
    return f"<think>\nFirst idea:\n{decoy}\nNo, better not.\n</think>\n\n```{language}\n{code}```"


def second_thoughts(code: str, language: str, file: str) -> str:
    return (
        f"My first attempt at {file}:\n\n```{language}\n{_spoilt(code)}```\n\nWait, that is not "
        f"right. The whole file again, {file}, corrected:\n\n```{language}\n{code}```\n"
    )


def in_a_list(code: str, language: str, file: str) -> str:
    inner = textwrap.indent(f"```{language}\n{code}```", "   ")
    return f"1. Create {file} like this:\n\n{inner}\n\n2. Done.\n"


def cut_fence(code: str, language: str, file: str) -> str:
    return f"```{language}\n{code}"


def tagged(code: str, language: str, file: str) -> str:
    return f"<answer>\n{code}</answer>"


def dos_lines(code: str, language: str, file: str) -> str:
    return fenced(code, language, file).replace("\n", "\r\n")


WRAPS: tuple[Wrap, ...] = (
    fenced, short_name, bare_fence, chatter, with_shell, tildes, naked, naked_with_words, as_json,
    thinking, second_thoughts, in_a_list, cut_fence, tagged, dos_lines,
)  # fmt: skip


def wrap(code: str, language: str, file: str, number: int) -> str:
    """A reply with this code, wrapped in the way of this number."""
    return WRAPS[number % len(WRAPS)](code, language, file)


def _spoilt(code: str) -> str:
    """The code with another result, to be passed over in favour of a later version."""
    return code.replace("return", "return None and", 1) if "return" in code else code
