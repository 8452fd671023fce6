from collections.abc import Iterable
from typing import Any


def flatten(value: Any) -> list[Any]:
    found: list[Any] = []
    for item in value:
        if isinstance(item, Iterable):
            found.extend(flatten(item))
        else:
            found.append(item)
    return found
