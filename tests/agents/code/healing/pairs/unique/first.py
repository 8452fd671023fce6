from typing import Any


def unique(items: list[Any]) -> list[Any]:
    return list(dict.fromkeys(items))
