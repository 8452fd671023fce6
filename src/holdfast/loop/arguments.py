"""A tool's arguments: the schema the model is shown, and the check of what it sent.

For a function the schema comes from its annotations, and its words from the docstring (Google's
`Args:` or Sphinx's `:param x:`). What the model sent is checked against the annotations, so that
a function never sees a wrong type; a mistake is worded for the model, which may try again.
"""

from __future__ import annotations

import inspect
import json
import re
import typing
from collections.abc import Callable, Mapping
from functools import cached_property
from types import SimpleNamespace
from typing import Any, Protocol, cast

from holdfast.errors import UsageError
from holdfast.runtime.codec import MAX_DEPTH

_SECTION = re.compile(r"^(Args|Arguments|Parameters|Returns|Yields|Raises|Example|Examples):\s*$")
_ITEM = re.compile(r"^\*{0,2}(\w+)(?:\s*\([^)]*\))?:\s*(.*)$")
_SPHINX = re.compile(r"^:param\s+(?:[^:]*\s)?(\w+):\s*(.*)$")

_TOO_DEEP = f"the arguments have more than {MAX_DEPTH - 10} levels: send flatter ones"
"""Some levels below what can be stored, for what they are stored in."""


class WrongArguments(Exception):
    """What the model sent does not fit; the text is for the model."""


class Arguments(Protocol):
    """How one tool's arguments are described, checked and handed over."""

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema the model is shown."""
        ...

    def check(self, given: Any) -> dict[str, Any]:
        """Plain data in one form, whatever form it was sent in; raises WrongArguments."""
        ...

    def typed(self, checked: Mapping[str, Any]) -> Any:
        """Checked data with the types of the annotations: `args.amount`."""
        ...

    def named(self, checked: Mapping[str, Any]) -> dict[str, Any]:
        """Checked data as the function is called with."""
        ...


class FunctionArguments:
    """The arguments of a Python function, by its annotations."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._signature = inspect.signature(function)
        for parameter in self._signature.parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise UsageError(
                    f"{function.__qualname__} can't be a tool: it takes *{parameter.name}",
                    hint="a model has to be told each argument by name",
                )

    @cached_property
    def _model(self) -> Any:
        # slow to import, and not needed by all
        from pydantic import ConfigDict, Field, PydanticSchemaGenerationError, create_model

        words = parameter_words(inspect.getdoc(self._function) or "")
        hints = typing.get_type_hints(self._function, include_extras=True)
        fields: dict[str, Any] = {}
        for name, parameter in self._signature.parameters.items():
            default: Any = ... if parameter.default is parameter.empty else parameter.default
            fields[name] = (hints.get(name, Any), Field(default, description=words.get(name)))
        config = ConfigDict(extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")
        try:
            return cast(Any, create_model)(self._function.__name__, __config__=config, **fields)
        except PydanticSchemaGenerationError as error:
            raise UsageError(
                f"{self._function.__qualname__} can't be a tool: {str(error).splitlines()[0]}",
                hint="use types that JSON can carry: plain values, dataclasses, pydantic models",
            ) from error

    @property
    def schema(self) -> dict[str, Any]:
        return self._schema

    @cached_property
    def _schema(self) -> dict[str, Any]:
        found: dict[str, Any] = self._model.model_json_schema()
        found.pop("title", None)
        for each in found.get("properties", {}).values():
            each.pop("title", None)
        found.setdefault("properties", {})
        return found

    def check(self, given: Any) -> dict[str, Any]:
        return json.loads(self._validated(given).model_dump_json())

    def _validated(self, given: Any) -> Any:
        from pydantic import ValidationError  # loaded with the model

        try:
            # By JSON's rules: dates and enums come as text.
            return self._model.model_validate_json(json.dumps(given))
        except ValidationError as error:
            raise WrongArguments(_mistakes(error)) from error

    def typed(self, checked: Mapping[str, Any]) -> Any:
        return self._validated(dict(checked))

    def named(self, checked: Mapping[str, Any]) -> dict[str, Any]:
        values = self.typed(checked)
        return {name: getattr(values, name) for name in self._signature.parameters}


class OpenArguments:
    """Arguments that somebody else checks: only that they are an object is seen to here."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema: dict[str, Any] = {"type": "object", "properties": {}, **schema}

    @property
    def schema(self) -> dict[str, Any]:
        return self._schema

    def check(self, given: Any) -> dict[str, Any]:
        if not isinstance(given, dict):
            raise WrongArguments("the arguments must be a JSON object")
        return cast("dict[str, Any]", given)

    def typed(self, checked: Mapping[str, Any]) -> Any:
        return SimpleNamespace(**checked)

    def named(self, checked: Mapping[str, Any]) -> dict[str, Any]:
        return dict(checked)


def parsed(text: str) -> Any:
    """The JSON that the model wrote; raises WrongArguments."""
    try:
        given = json.loads(text or "{}")
    except ValueError as error:
        raise WrongArguments(f"the arguments are broken JSON: {error}") from error
    except RecursionError as error:
        raise WrongArguments(_TOO_DEEP) from error
    if _is_deeper(given, MAX_DEPTH - 10):
        raise WrongArguments(_TOO_DEEP)
    return given


def _is_deeper(value: Any, levels: int) -> bool:
    """Whether it has more levels than these; level by level, for it may be as deep as it likes."""
    level = [value]
    for _ in range(levels):
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inner.extend(cast("dict[str, Any]", each).values())
            elif isinstance(each, list):
                inner.extend(cast("list[Any]", each))
        if not inner:
            return False
        level = inner
    return any(isinstance(each, dict | list) for each in level)


def _mistakes(error: Any) -> str:
    lines: list[str] = []
    for each in error.errors(include_url=False)[:10]:
        where = ".".join(str(part) for part in each["loc"]) or "arguments"
        lines.append(f"{where}: {each['msg']}")
    return "wrong arguments: " + "; ".join(lines)


def summary(docstring: str) -> str:
    """What a docstring says before its sections: the tool's description."""
    lines: list[str] = []
    for line in docstring.splitlines():
        if _SECTION.match(line.strip()) or _SPHINX.match(line.strip()):
            break
        lines.append(line)
    return "\n".join(lines).strip()


def parameter_words(docstring: str) -> dict[str, str]:
    """What a docstring says about each parameter."""
    found: dict[str, str] = {}
    within, last = False, ""
    for raw in docstring.splitlines():
        line = raw.strip()
        section, sphinx = _SECTION.match(line), _SPHINX.match(line)
        if section:
            within, last = section[1] in ("Args", "Arguments", "Parameters"), ""
        elif sphinx:
            last = sphinx[1]
            found[last] = sphinx[2]
        elif not line:
            last = ""
        elif within and (item := _ITEM.match(line)) and raw[:1].isspace():
            last = item[1]
            found[last] = item[2]
        elif last:
            found[last] = f"{found[last]} {line}".strip()
    return {name: words for name, words in found.items() if words}
