from typing import Any


def flatten(value: Any) -> list[Any]:
    found: list[Any] = []
    for item in value:
        if isinstance(item, list | tuple):
            found.extend(flatten(item))
        else:
            found.append(item)
    return found
