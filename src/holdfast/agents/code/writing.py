"""One model call that should give a file: the call, and what to make of its reply."""

from __future__ import annotations

import re

from holdfast.agents.code import demo
from holdfast.agents.code.languages import Language
from holdfast.agents.code.records import Draft
from holdfast.agents.code.replies import code_in
from holdfast.agents.code.settings import load
from holdfast.errors import FatalError
from holdfast.gateway import generate_text

_WRONG = re.compile(
    r"^[\s>*#`_-]*WRONG[*_`]*\s*:\s*[*_`]*\s*(code|tests?)\b[*_`]*[\s.:,-]*", re.IGNORECASE
)
_MOST_NOTE = 2000

demo.register()  # here, where models are asked: whoever goes on with a run must know it too


async def write(model: str, system: str, prompt: str, language: Language, *, tests: bool) -> Draft:
    """Ask the model; what it wrote, or why that can't be used."""
    reply = await generate_text(model, system=system, prompt=prompt, max_tokens=load().max_tokens)
    filename = language.test_file if tests else language.code_file
    if reply.refusal is not None or reply.finish in ("refusal", "content_filter"):
        words = reply.refusal or reply.text or "it gave no reason"
        hint = demo.HOW_TO_GET_ONE if model == demo.MODEL else None
        raise FatalError(f"{model} declined the task: {words}", hint=hint)
    code = code_in(reply.text, language, tests=tests)
    said, disputes = _said(reply.text)
    if disputes is not None and not tests:
        return Draft(filename, "", said, None, disputes)
    if reply.finish == "length":
        problem = f"the reply was cut off after {reply.usage.output:,} tokens"
        return Draft(filename, code or "", said, problem)
    if code is None:
        empty = not reply.text.strip()
        problem = "the reply was empty" if empty else "there was no code in the reply"
        return Draft(filename, "", said, problem)
    return Draft(filename, code, said)


def _said(text: str) -> tuple[str, str | None]:
    """The words before the code, and why the tests are wrong if they say so."""
    words, *fenced = re.split(r"^[ \t]*(?:```|~~~)", text, maxsplit=1, flags=re.MULTILINE)
    words = words.strip()
    match = _WRONG.match(words)
    if match is None:
        # Without a fence the words can't be told from the code.
        return words[:_MOST_NOTE] if fenced else "", None
    reason = words[match.end() :].strip()[:_MOST_NOTE]
    if match[1].lower() == "code":
        return reason, None
    return reason, reason or "it gave no reason"
