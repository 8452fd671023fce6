from typing import Any


def rotate(matrix: list[list[Any]]) -> list[list[Any]]:
    return [list(row) for row in zip(*matrix[::-1], strict=True)]
