"""The statements of the store, written for SQLite, as PostgreSQL takes them.

Most are taken as they are. What differs is spelled out here, by rule or, where a statement has to
be another one, by name. A statement is translated once.
"""

from __future__ import annotations

import re
from functools import cache

from holdfast.store.postgres import log_order
from holdfast.store.sqlite import events, queries, run_views

_RULES = (
    (re.compile(r"%"), "%%"),
    (re.compile(r"\bLIMIT \?"), "LIMIT nullif(?, -1)"),
    (re.compile(r"\?"), "%s"),
    (re.compile(r"(?<![:\w]):([a-z]\w*)"), r"%(\1)s"),
    (re.compile(r"\bIN \(\)"), "IN (NULL)"),
    (re.compile(r" INDEXED BY \w+"), ""),
    (re.compile(r"\bLIKE\b"), "ILIKE"),
    (re.compile(r"\bx'([0-9A-F]+)'"), r"'\\x\1'::bytea"),
    (re.compile(r"\b(\w+) IS (\w+\.\w+)\b"), r"\1 IS NOT DISTINCT FROM \2"),
    (re.compile(r"IN \(SELECT value FROM json_each\(([^()]+)\)\)"),
     r"IN (SELECT json_array_elements_text(\1::json))"),
    (re.compile(r"json_extract\(([\w.]+), '\$\.(\w+)\.(\w+)'\)"), r"\1::json #>> '{\2,\3}'"),
    # An integer by rounding towards zero, not to the nearest.
    (re.compile(r"CAST\(([^?]+?|\(.+?\) / %s) AS INTEGER\)"), r"trunc(\1)::bigint"),
    (re.compile(r"\bsubstr\((.+?), %s \+ 1, %s\)"), r"substr(\1, %s::integer + 1, %s::integer)"),
    (re.compile(r"\bCROSS JOIN (\w+ \w+) ON\b"), r"JOIN \1 ON"),
)  # fmt: skip
_NAMED = {
    events.LOG_END: log_order.END,
    queries.LAST_LOG: log_order.END,
    events.OF_ALL_RUNS: events.SELECT_EVENTS
    + f"WHERE e.log > ? AND e.log < {log_order.SETTLED} ORDER BY e.log LIMIT ?",
    events.OF_RUN_IN_LOG: events.SELECT_EVENTS
    + f"WHERE e.run_id = ? AND e.log > ? AND e.log < {log_order.SETTLED} ORDER BY e.seq LIMIT ?",
    run_views.COUNTS: "SELECT workflow, status, runs FROM run_counts WHERE runs > 0",
}


@cache
def translate(sql: str) -> bytes:
    """The statement for PostgreSQL, with `%s` or `%(name)s` for parameters."""
    text = _NAMED.get(sql, sql)
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return _greatest(text).encode()


def _greatest(text: str) -> str:
    """`max` and `min` of several values, which are other functions than those over rows."""
    for name, other in (("max", "greatest"), ("min", "least")):
        start = 0
        while (found := text.find(f"{name}(", start)) >= 0:
            start = found + len(name) + 1
            if not text[found - 1].isalnum() and _has_two(text, start):
                text = text[:found] + other + text[found + len(name) :]
    return text


def _has_two(text: str, start: int) -> bool:
    """Whether the parenthesis that opens before `start` has a comma of its own."""
    depth = 1
    for character in text[start:]:
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return False
        if character == "," and depth == 1:
            return True
    return False
