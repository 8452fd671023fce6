"""What a command printed and how it ended, in words for a model: bounded, and complete sentences.

Both agents run tests and commands of programs in sandboxes and tell models what came of them.
"""

from __future__ import annotations

from holdfast.sandbox import CommandResult, Ended

MOST_TAIL = 4000
MOST_BOTH_ENDS = 16_000


def tail(text: str, most: int = MOST_TAIL) -> str:
    """The last lines of a text, at most so many characters, and how much was left out."""
    text = text.strip("\n")
    if len(text) <= most:
        return text
    cut = text[-most:]
    _, newline, whole = cut.partition("\n")
    kept = whole if newline and whole else cut
    return f"[{len(text) - len(kept):,} characters left out]\n{kept}"


def both_ends(text: str, most: int = MOST_BOTH_ENDS) -> str:
    """The beginning and the end of a text; the end gets three quarters of the characters."""
    if len(text) <= most:
        return text
    head, end = text[: most // 4], text[-(most - most // 4) :]
    left = len(text) - len(head) - len(end)
    return f"{head}\n… {left:,} characters left out …\n{end}"


def why_tests_ended(
    result: CommandResult, *, seconds: float, memory: str, most_output: str
) -> str | None:
    """Why tests ended before their end, as a sentence; None if the command exited by itself."""
    match result.ended:
        case Ended.EXITED:
            return None
        case Ended.TIMED_OUT:
            return f"the tests did not end within {seconds:g} s"
        case Ended.OUT_OF_MEMORY:
            return f"the tests needed more than {memory} of memory"
        case Ended.OUTPUT_LIMIT:
            return f"the tests printed more than {most_output}"
        case Ended.SIGNALLED:
            return f"the tests were killed by signal {result.signal}"
        case _ if result.seconds >= seconds:
            return (
                f"the tests did not end within {seconds:g} s, and were stopped with their sandbox"
            )
        case _:
            return "the sandbox ended before the tests did"
