"""Runs and steps in words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.agents import run_words


def test_a_run_is_about_its_task_or_what_it_was_given() -> None:
    assert run_words.about({"task": "Sort a list\nquickly"}, b"{}") == "Sort a list"
    assert run_words.about({}, b'{"prompt": "Hello"}') == "Hello"
    assert run_words.about({}, b'{"a": 1, "b": [2]}') == "a=1  b=[2]"
    assert run_words.about({}, b'{"cut": "in the mid') == "cut : in the mid"


def test_a_ticket_is_about_what_the_customer_wrote() -> None:
    given = {"ticket": {"customer": "ada", "text": "It broke.\nSorry"}}
    assert run_words.about({}, json.dumps(given)) == "It broke. Sorry"


@pytest.mark.parametrize(
    ("kind", "name", "called"),
    [
        ("step", "generate_text anthropic/opus", "think"),
        ("step", "stream_text anthropic/opus", "think"),
        ("step", "tool refund", "refund"),
        ("step", "ask for approval", "ask"),
        ("wait", "@approval/apr_1", "decision"),
        ("wait", "@run/run_1", "end of run"),
        ("wait", "paid", "paid"),
        ("webhook", "@webhook/0/1", "webhook made"),
    ],
)
def test_a_step_is_called_what_it_is(kind: str, name: str, called: str) -> None:
    assert run_words.step_name(kind, name) == called


def test_a_clock_that_was_stopped_is_inner_and_one_that_rang_is_not() -> None:
    assert run_words.is_inner("timer", "timer", "cancelled")
    assert not run_words.is_inner("timer", "timer", "completed")
    assert not run_words.is_inner("timer", "sleep", "cancelled")


def test_a_clean_up_that_failed_is_shown() -> None:
    assert run_words.is_inner("step", "close_workspace", "completed", repo=True)
    assert not run_words.is_inner("step", "close_workspace", "failed", repo=True)
    assert not run_words.is_inner("step", "close_workspace", "completed")  # somebody's own


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("tool refund", {"call_id": "c", "arguments": {"order": "A-1"}, "approval": None}, "A-1"),
        ("fetch", {"city": "Oslo", "days": 3, "unit": None}, "city=Oslo  days=3"),
        ("generate_text a/b", {"model": "a/b"}, ""),
        (
            "ask for approval",
            {"question": {"title": "Deploy", "arguments": {"build": 4}}},
            "Deploy  build=4",
        ),
    ],
)
def test_a_step_is_told_apart_by_its_arguments(
    name: str, given: dict[str, Any], words: str
) -> None:
    assert run_words.step_arguments(name, given) == words


def test_the_outcome_of_a_models_turn_is_what_it_said_and_calls() -> None:
    reply = {
        "parts": [
            {"type": "text", "text": "Let me look."},
            {"type": "tool_call", "name": "look_up", "arguments": "{}"},
        ]
    }
    assert run_words.step_outcome("generate_text a/b", reply) == "Let me look.  → look_up"
    told = {"content": [{"type": "text", "text": "paid 40"}]}
    assert run_words.step_outcome("tool look_up", told) == "paid 40"
