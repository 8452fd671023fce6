"""Workflows for tests with processes. What a step does is noted in $EFFECTS."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from holdfast import step, workflow


def effect(name: str) -> None:
    with Path(os.environ["EFFECTS"]).open("a") as file:
        file.write(f"{name}\n")


@step
async def work(name: str, seconds: float) -> str:
    effect(f"begin-{name}")
    await asyncio.sleep(seconds)
    effect(f"end-{name}")
    return name


@workflow
async def lengthy(seconds: float) -> list[str]:
    return [await work("first", 0), await work("second", seconds)]


@workflow
async def anything(value: Any = None, number: int = 0, text: str = "") -> Any:
    return value
