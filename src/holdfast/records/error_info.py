"""An error as the journal keeps it: its words, its recipe, and the errors it came from.

Data alone. Making one from an exception, and an exception from one, is `runtime.failures`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

SAME_AS_CAUSE = "cause"
"""How the journal says that an error's context is its cause, as after `raise … from error`."""


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """An error, with its cause, its context and (of a group) its members."""

    type: str
    message: str
    traceback: str = ""
    """Of the whole chain; only the outermost error of a record has one."""
    rebuild: dict[str, Any] | None = None
    """Module, name, arguments and fields, if the error can be made again from them."""
    hint: str | None = None
    notes: tuple[str, ...] = ()
    cause: ErrorInfo | None = None
    """What it was raised `from`."""
    context: ErrorInfo | None = None
    """What was being handled when it was raised."""
    suppress_context: bool = False
    members: tuple[ErrorInfo, ...] = ()
    """The errors of an exception group."""

    def as_json(self) -> dict[str, Any]:
        """The error as the journal keeps it; `from_json` reads it."""
        found: dict[str, Any] = {"type": self.type, "message": self.message}
        optional: dict[str, Any] = {
            "traceback": self.traceback,
            "rebuild": self.rebuild,
            "hint": self.hint,
            "notes": list(self.notes),
            "cause": self.cause and self.cause.as_json(),
            "context": self._context_json(),
            "suppress_context": self.suppress_context,
            "members": [member.as_json() for member in self.members],
        }
        found.update({name: value for name, value in optional.items() if value})
        return found

    def _context_json(self) -> dict[str, Any] | str | None:
        if self.context is not None and self.context is self.cause:
            return SAME_AS_CAUSE
        return None if self.context is None else self.context.as_json()

    def shown(self) -> dict[str, Any]:
        """The error for API, pages and `--json`: with what it came from, without how to make it."""
        return {
            **self._words(),
            "traceback": self.traceback,
            "hint": self.hint,
            "origins": [
                {"depth": depth, "relation": relation, **origin._words()}
                for depth, relation, origin in self.origins()
            ],
        }

    def _words(self) -> dict[str, Any]:
        return {"type": self.type, "message": self.message, "notes": list(self.notes)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ErrorInfo:
        """An error as recorded, also by a version that kept less of it."""
        rebuild: dict[str, Any] | None = data.get("rebuild")
        cause = None if "cause" not in data else cls.from_json(data["cause"])
        context = data.get("context")
        return cls(
            type=str(data.get("type", "Error")),
            message=str(data.get("message", "")),
            traceback=str(data.get("traceback", "")),
            rebuild=rebuild,
            hint=_text(data.get("hint")) or _text((rebuild or {}).get("state", {}).get("hint")),
            notes=tuple(str(note) for note in data.get("notes", ())),
            cause=cause,
            context=cause if context == SAME_AS_CAUSE else context and cls.from_json(context),
            suppress_context=bool(data.get("suppress_context", False)),
            members=tuple(cls.from_json(member) for member in data.get("members", ())),
        )

    def origins(self) -> Iterator[Origin]:
        """The errors it came from, as Python would show them, nearest first."""
        yield from self._origins(1)

    def _origins(self, depth: int) -> Iterator[Origin]:
        for member in self.members:
            yield Origin(depth, "in the group", member)
            yield from member._origins(depth + 1)
        if self.cause is not None:
            yield Origin(depth, "caused by", self.cause)
            yield from self.cause._origins(depth + 1)
        elif self.context is not None and not self.suppress_context:
            yield Origin(depth, "while handling", self.context)
            yield from self.context._origins(depth + 1)

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


class Origin(NamedTuple):
    """An error that another came from."""

    depth: int
    relation: str
    error: ErrorInfo


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
