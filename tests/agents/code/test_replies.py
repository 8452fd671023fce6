"""Code is found in a reply whatever it is wrapped in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.agents.code.languages import LANGUAGES
from holdfast.agents.code.replies import code_in

PYTHON, TYPESCRIPT = LANGUAGES["python"], LANGUAGES["typescript"]
PROGRAM = "def double(n):\n    return 2 * n\n"
TESTS = "from solution import double\n\n\ndef test_double():\n    assert double(2) == 4\n"
INDENTED = "\n".join(f"   {line}" for line in PROGRAM.splitlines())

WRAPPINGS = {
    "a fence": f"```python\n{PROGRAM}```",
    "a fence without a language": f"```\n{PROGRAM}```",
    "a fence in capitals": f"```Python\n{PROGRAM}```",
    "tildes": f"~~~py\n{PROGRAM}~~~",
    "a longer fence": f"````python\n{PROGRAM}````",
    "chatter around it": f"Sure! Here you go:\n\n```python\n{PROGRAM}```\n\nIt doubles n.",
    "an unclosed fence": f"Here:\n```python\n{PROGRAM}",
    "Windows line ends": f"```python\r\n{PROGRAM}```".replace("\n", "\r\n"),
    "a byte order mark": f"\ufeff```python\n{PROGRAM}```",
    "a list item": f"1. The code:\n\n   ```python\n{INDENTED}\n   ```\n",
    "thinking before it": f"<think>```python\nx = 1\n```</think>\n```python\n{PROGRAM}```",
    "a tag": f"<code>\n{PROGRAM}</code>",
    "JSON": '{"code": "def double(n):\\n    return 2 * n\\n"}',
    "nothing": PROGRAM,
    "nothing, with sentences around it": f"Here is the code:\n\n{PROGRAM}\nThat is all there is.",
    "a first version and a better one": f"```python\ndef double(n): return n\n```\n"
    f"That is wrong. Better:\n```python\n{PROGRAM}```",
    "an example of its use": f"```python\n{PROGRAM}```\nUse it:\n```python\nprint(double(4))\n```",
    "a shell command": f"```bash\npip install nothing\n```\n```python\n{PROGRAM}```",
    "its output": f"```python\n{PROGRAM}```\nIt prints:\n```\n4\n```",
    "tests as well": f"```python\n{PROGRAM}```\n\n```python\n{TESTS}```",
    "names of files": f"**test_solution.py**\n```python\n{TESTS}```\n**solution.py**\n"
    f"```python\n{PROGRAM}```",
    "a fence in its docstring": "```python\ndef double(n):\n    \"\"\"Twice.\n\n    ```\n    double(2)\n    ```\n"
    '    """\n    return 2 * n\n```\nThat is it.',
    "a fence at the margin of its docstring": "```python\ndef double(n):\n    \"\"\"Twice.\n\n```\ndouble(2)\n```\n"
    '    """\n    return 2 * n\n```\n',
    "a fence in a string": '```python\nSHOWN = """\n```\ncode\n```\n"""\n\n\ndef double(n):\n    return 2 * n\n```',
    "a fence on the last line": f"```python\n{PROGRAM.rstrip()}```",
    "a fence on the last line, and words": f"```python\n{PROGRAM.rstrip()}```\nIt doubles n.",
    "a byte order mark in the fence": f"```python\n\ufeff{PROGRAM}```",
    "old line ends": f"Here:\n```python\n{PROGRAM}```\nThere.".replace("\n", "\r"),
    "a tag of thinking in a string": f'```python\nOPENS = "<think>"\n{PROGRAM}```',
    "a tag of thinking on a line of a string": f'```python\nOPENS = """\n<think>\n"""\n{PROGRAM}```',
    "thinking without its first tag": f"They want:\nx = 1\n</think>\n\n```python\n{PROGRAM}```",
    "thinking after a word": f"Hm.\n<think>\n```python\nx = 1\n```\n</think>\n```python\n{PROGRAM}```",
    "megabytes of prose before it": "All is well that ends well. " * 100_000 + f"\n```python\n{PROGRAM}```",
    "the file's name in the fence": f"```python solution.py\n{PROGRAM}```\n```python\nx = 1\n```",
}  # fmt: skip


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_a_program_is_found_in(wrapping: str) -> None:
    found = code_in(WRAPPINGS[wrapping], PYTHON, tests=False)
    assert found is not None
    namespace: dict[str, object] = {}
    exec(found, namespace)
    assert namespace["double"](21) == 42  # type: ignore[operator]
    assert "assert" not in found and "print" not in found


def test_a_program_that_checks_itself_is_taken_before_an_example_of_its_use() -> None:
    checked = f"{PROGRAM}\n\nassert double(2) == 4\n"
    reply = f"```python\n{checked}```\nUse it:\n```python\nprint(double(4))\n```"
    assert code_in(reply, PYTHON, tests=False) == checked


def test_a_fence_in_a_template_of_typescript_is_part_of_it() -> None:
    program = "export const SHOWN = `\n\\`\\`\\`\n```\ncode\n```\n`;\n".replace("```", "\\`\\`\\`")
    program += "/*\n```\nf()\n```\n*/\nexport function f(): number {\n  return 1;\n}\n"
    assert code_in(f"```ts\n{program}```\nDone.", TYPESCRIPT, tests=False) == program


def test_pieces_that_belong_together_are_joined() -> None:
    reply = (
        "First a helper:\n```python\nimport math\n\ndef half(n):\n    return n / 2\n```\n"
        "Then the function:\n```python\ndef area(d):\n    return math.pi * half(d) ** 2\n```"
    )
    found = code_in(reply, PYTHON, tests=False)
    assert found is not None
    assert found.index("def half") < found.index("def area")


def test_the_tests_are_taken_when_tests_are_wanted() -> None:
    reply = f"```python\n{PROGRAM}```\nand\n```python\n{TESTS}```"
    assert code_in(reply, PYTHON, tests=True) == TESTS


def test_a_program_in_another_language_is_not_taken() -> None:
    assert code_in("```rust\nfn main() {}\n```", PYTHON, tests=False) is None


@pytest.mark.parametrize(
    "reply", ["", "   \n", "I can't do that.", "```\n```", "```python\n\n```", "<code></code>"]
)
def test_where_there_is_no_code_none_is_found(reply: str) -> None:
    assert code_in(reply, PYTHON, tests=False) is None


def test_broken_code_in_a_fence_is_still_the_answer() -> None:
    found = code_in("```python\ndef f(:\n```", PYTHON, tests=False)
    assert found == "def f(:\n"


@pytest.mark.parametrize("fence", ["typescript", "ts", "js", ""])
def test_typescript_is_found(fence: str) -> None:
    program = "export function double(n: number): number {\n  return 2 * n;\n}\n"
    reply = f"Here:\n```{fence}\n{program}```"
    assert code_in(reply, TYPESCRIPT, tests=False) == program
    assert code_in(f"Here it is:\n\n{program}\nDone.", TYPESCRIPT, tests=False) == program


@given(st.text(max_size=300))
def test_no_reply_breaks_it(reply: str) -> None:
    for language in LANGUAGES.values():
        for tests in (True, False):
            code_in(reply, language, tests=tests)


@given(st.lists(st.sampled_from(["```", "~~~", "````python", "x = 1", " ", "<code>", "def f():"])))
def test_no_tangle_of_fences_breaks_it(lines: list[str]) -> None:
    code_in("\n".join(lines), PYTHON, tests=False)
