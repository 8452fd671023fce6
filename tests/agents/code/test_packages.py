"""Tests that use packages: what `--package` installs is there for them, and its plug-ins are heeded."""

from __future__ import annotations

import pytest

from holdfast.agents import prompts
from holdfast.agents.code import toolchain
from holdfast.agents.code.languages import LANGUAGES
from holdfast.agents.code.verdict import Limits, judge
from holdfast.errors import SandboxError
from holdfast.sandbox import Sandbox

PYTHON = LANGUAGES["python"]
PACKAGES = ("hypothesis", "numpy", "pytest-asyncio")
RIGHT = """\
import asyncio

import numpy as np


def f(n):
    return n + 1


def evens(n):
    return np.arange(n) * 2


async def later(n):
    await asyncio.sleep(0)
    return f(n)
"""
TESTS = """\
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from solution import evens, f, later


@given(st.integers())
def test_f(n):
    assume(n != 3)
    assert f(n) == n + 1


def test_evens():
    assert_array_equal(evens(3), np.array([0, 2, 4]))
    assert (evens(2) == np.array([0, 2])).all()
    assert evens(1) == np.array([0])


@pytest.mark.asyncio
async def test_later():
    assert await later(1) == 2
"""
WRONG = RIGHT.replace("return n + 1", "return n + 1 if n < 50 else 0").replace("* 2", "* 3")


@pytest.mark.timeout(900)  # the packages are installed once, into a snapshot
async def test_hypothesis_numpy_and_pytest_asyncio_work_in_tests() -> None:
    try:
        source = await toolchain.ready(PYTHON, PACKAGES)
    except SandboxError as error:
        pytest.skip(f"the packages can't be had here: {error}")
    limits = Limits(seconds=100)
    async with await Sandbox.create(source=source, timeout=400) as sandbox:
        right = await judge(sandbox, PYTHON, RIGHT, TESTS, limits)
    assert (right.passed, right.summary, right.error) == (True, "3 passed", None)
    async with await Sandbox.create(source=source, timeout=400) as sandbox:
        wrong = await judge(sandbox, PYTHON, WRONG, TESTS, limits)
    assert wrong.failing == ("test_f", "test_evens")
    assert wrong.error is not None
    assert "n=50" in wrong.error and "Arrays are not equal" in wrong.error
    assert "python_watch" not in wrong.error


def test_whoever_writes_the_tests_is_told_of_the_packages() -> None:
    assert "hypothesis, numpy" in prompts.for_tests(PYTHON, ("hypothesis", "numpy"))
    assert "packages" not in prompts.for_tests(PYTHON)
