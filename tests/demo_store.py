"""A store as it looks after a week of use: what the screenshots and the browser tests look at."""

from __future__ import annotations

import json
import math
from typing import Any

from seeding import Seed, SeededRun

HOUR, DAY = 3600.0, 86400.0
SONNET, OPUS, MINI = "anthropic/claude-sonnet-4.6", "anthropic/claude-opus-4.5", "openai/gpt-5-mini"

TASK = "Write slugify(text): lower case, words joined by single hyphens, no other characters"
CODE_1 = '''import re


def slugify(text: str) -> str:
    """Turn a text into a slug: `Hello, World!` becomes `hello-world`."""
    text = text.lower()
    text = re.sub(r"[^a-z0-9]", "-", text)
    return text.strip("-")
'''
CODE_2 = '''import re


def slugify(text: str) -> str:
    """Turn a text into a slug: `Hello, World!` becomes `hello-world`."""
    text = text.lower()
    text = re.sub(r"[^a-z0-9]+", "-", text)
    return text.strip("-")
'''
CODE_3 = '''import re
import unicodedata


def slugify(text: str) -> str:
    """Turn a text into a slug: `Héllo, World!` becomes `hello-world`."""
    text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    text = re.sub(r"[^a-z0-9]+", "-", text.lower())
    return text.strip("-")
'''
TESTS = """import pytest

from solution import slugify


@pytest.mark.parametrize(
    ("text", "slug"),
    [
        ("Hello, World!", "hello-world"),
        ("a  b", "a-b"),
        ("--a--", "a"),
        ("Crème brûlée", "creme-brulee"),
        ("", ""),
    ],
)
def test_slugify(text: str, slug: str) -> None:
    assert slugify(text) == slug
"""
FAILED_1 = """..F.F                                                                    [100%]
=================================== FAILURES ===================================
_________________________ test_slugify[a  b-a-b] _______________________________

text = 'a  b', slug = 'a-b'

    def test_slugify(text: str, slug: str) -> None:
>       assert slugify(text) == slug
E       AssertionError: assert 'a--b' == 'a-b'
E
E         - a-b
E         + a--b
E         ?  +

test_solution.py:18: AssertionError
=========================== short test summary info ============================
FAILED test_solution.py::test_slugify[a  b-a-b] - AssertionError: assert 'a--b' == 'a-b'
FAILED test_solution.py::test_slugify[Cr\\xe8me] - AssertionError: assert 'cr-me-br-l-e' == 'creme-brulee'
2 failed, 3 passed in 0.04s
"""
FAILED_2 = """....F                                                                    [100%]
=========================== short test summary info ============================
FAILED test_solution.py::test_slugify[Cr\\xe8me] - AssertionError: assert 'cr-me-br-l-e' == 'creme-brulee'
1 failed, 4 passed in 0.03s
"""
PASSED = ".....                                                                    [100%]\n5 passed in 0.03s\n"
SYSTEM = "You write small, correct Python modules. Answer with one fenced block and a short note."


def healed(seed: Seed, age: float, worker: str | None = None) -> SeededRun:
    """The code agent's run that passed on its third attempt, after somebody approved."""
    run = seed.run(
        "evaluate_code",
        age,
        {
            "prompt": TASK + ".\nAccents are dropped: é becomes e.",
            "language": "python",
            "model": SONNET,
            "max_attempts": 3,
            "packages": [],
        },
        attributes={"task": TASK, "language": "python", "attempt": 3, "passed": True},
    )
    run.begin()
    error: str | None = None
    rounds = [
        (
            CODE_1,
            False,
            "2 failed, 3 passed",
            FAILED_1,
            "Collapses nothing yet: every other character becomes a hyphen.",
        ),
        (
            CODE_2,
            False,
            "1 failed, 4 passed",
            FAILED_2,
            "Runs of other characters now become one hyphen.",
        ),
        (
            CODE_3,
            True,
            "5 passed",
            PASSED,
            "Accents are taken apart first, so that the letter stays.",
        ),
    ]
    for number, (code, passed, summary, output, note) in enumerate(rounds, 1):
        if number == 3:
            run.wait("approval", {"task": "slugify"}, 2 * HOUR, {"approved": True, "by": "dana"})
        asked = TASK if error is None else f"{TASK}\n\nYour last version failed:\n{error}"
        key = run.next_key()
        tried = None
        if number == 2:
            tried = [
                ("anthropic", "claude-sonnet-4.6", 529, "ProviderUnavailable", "Overloaded"),
                ("bedrock", "claude-sonnet-4.6", 200, None, None),
            ]
        seed.call(
            SONNET,
            run.at + 0.02,
            5.1 + number,
            (1520 + 900 * number, 410 + 120 * number),
            0.0088 + 0.0031 * number,
            reply=f"{note}\n\n```python\n{code}```",
            messages=[("system", SYSTEM), ("user", asked)],
            run=run,
            step=("generate_code", key),
            cached=0 if number == 1 else 1400,
            first_token=1.1 + 0.4 * number,
            tried=tried,
        )
        run.step(
            "generate_code",
            {"prompt": TASK, "error": error, "attempt": number},
            {"filename": "solution.py", "code": code, "note": note, "problem": None},
            5.2 + number,
            key=key,
        )
        key = run.next_key()
        seed.call(
            MINI,
            run.at + 0.02,
            3.8,
            (1240, 380),
            0.0021,
            reply=f"```python\n{TESTS}```",
            messages=[("system", "You write pytest tests."), ("user", TASK)],
            run=run,
            step=("generate_tests", key),
            first_token=0.7,
        )
        run.step(
            "generate_tests",
            {"prompt": TASK, "code": code, "attempt": number},
            {"filename": "test_solution.py", "code": TESTS, "note": "", "problem": None},
            3.9,
            key=key,
        )
        key = run.next_key()
        box = seed.sandbox(
            run.at + 0.01,
            1.9,
            run=run,
            step=("run_tests", key),
            network=("packages.example.com:443",) if number == 1 else (),
            used=(1.32 + number / 10, 46_100_000 + number * 740_000, 61_440 * number),
        )
        if number == 1:
            seed.egress(box, run.at + 0.3, "packages.example.com", 443, True, "allowed")
            seed.egress(box, run.at + 0.5, "169.254.169.254", 80, False, "a link-local address")
        seed.command(
            box,
            run.at + 0.02,
            1.6,
            ("python", "-m", "pytest", "-q", "test_solution.py"),
            code=0 if passed else 1,
            stdout=output,
            used=(1.29 + number / 10, 46_100_000 + number * 740_000),
        )
        result = {
            "passed": passed,
            "summary": summary,
            "error": None if passed else output.splitlines()[-2],
            "output": output,
        }
        run.step(
            "run_tests", {"code": code, "tests": TESTS, "attempt": number}, result, 1.9, key=key
        )
        error = result["error"]
    run.complete(
        {
            "passed": True,
            "code": CODE_3,
            "tests": TESTS,
            "output": PASSED,
            "error": None,
            "attempts": 3,
        }
    )
    return run


def broken(seed: Seed, age: float) -> SeededRun:
    """A user's own workflow that failed: retried steps, parallel branches, a traceback."""
    run = seed.run(
        "import_orders",
        age,
        {"file": "orders-2026-11-15.csv", "dry_run": False},
        attributes={"customer": "acme", "region": "eu"},
        key="orders-2026-11-15",
    )
    run.begin()
    run.step(
        "read_file",
        {"file": "orders-2026-11-15.csv"},
        {"rows": 1204, "columns": ["id", "sku", "amount"]},
        0.8,
    )
    run.step("check_rows", {"rows": 1204}, {"good": 1201, "bad": [17, 230, 811]}, 1.4)
    run.timer(3.0)
    run.step(
        "fetch_rates",
        {"currencies": ["EUR", "USD", "CHF"]},
        {"EUR": 1, "USD": 1.08, "CHF": 0.94},
        0.6,
        key="0.0/0",
    )
    run.step("reserve_stock", {"rows": 1201}, {"reserved": 1201}, 2.7, key="0.1/0")
    trace = (
        "Traceback (most recent call last):\n"
        '  File "shop/orders.py", line 88, in write_orders\n'
        "    await warehouse.insert(batch)\n"
        '  File "shop/warehouse.py", line 31, in insert\n'
        "    raise IntegrityError(f\"duplicate key {row['id']!r} in batch {number}\")\n"
        "shop.warehouse.IntegrityError: duplicate key 'A-2291' in batch 4\n"
    )
    message = "duplicate key 'A-2291' in batch 4"
    run.step(
        "write_orders",
        {"rows": 1201, "batch": 300},
        None,
        1.1,
        retries=[
            (1.2, 1.0, "TimeoutError", "the warehouse did not answer within 1 s"),
            (0.9, 2.1, "IntegrityError", message),
        ],
        error=("IntegrityError", message, trace),
    )
    run.fail("IntegrityError", message, trace)
    return run


def under_way(seed: Seed, worker: str) -> SeededRun:
    """A run that is at its second attempt now."""
    task = "Parse ISO 8601 durations into seconds, rejecting what is ambiguous"
    run = seed.run(
        "evaluate_code",
        34,
        {"prompt": task, "language": "python", "model": SONNET},
        attributes={"task": task, "language": "python", "attempt": 2},
    )
    run.begin(worker)
    key = run.next_key()
    seed.call(
        SONNET,
        run.at,
        7.1,
        (1610, 620),
        0.0141,
        run=run,
        step=("generate_code", key),
        first_token=1.2,
        reply="Here it is.",
    )
    run.step(
        "generate_code",
        {"prompt": task, "attempt": 1},
        {"filename": "solution.py", "code": CODE_1, "note": ""},
        7.2,
        key=key,
    )
    key = run.next_key()
    seed.call(
        MINI,
        run.at,
        4.4,
        (1300, 420),
        0.0023,
        run=run,
        step=("generate_tests", key),
        first_token=0.8,
        reply="Tests.",
    )
    run.step(
        "generate_tests",
        {"prompt": task, "attempt": 1},
        {"filename": "test_solution.py", "code": TESTS},
        4.5,
        key=key,
    )
    run.step(
        "run_tests",
        {"attempt": 1},
        {"passed": False, "summary": "1 failed, 6 passed", "error": "assert 90 is None"},
        2.2,
    )
    run.open("generate_code", {"prompt": task, "attempt": 2})
    run.status("running", owner=worker)
    return run


PATCH = """\
diff --git a/shop/prices.py b/shop/prices.py
index 1f2e3d4..5a6b7c8 100644
--- a/shop/prices.py
+++ b/shop/prices.py
@@ -8,6 +8,6 @@ from decimal import Decimal
 def total(lines: list[Line]) -> Decimal:
     \"\"\"What is to be paid.\"\"\"
     found = Decimal(0)
-    for line in lines[1:]:
+    for line in lines:
         found += line.price * line.count
     return found
diff --git a/tests/test_prices.py b/tests/test_prices.py
new file mode 100644
index 0000000..9d8e7f6
--- /dev/null
+++ b/tests/test_prices.py
@@ -0,0 +1,2 @@
+def test_the_first_line_counts() -> None:
+    assert total([Line("<b>bread</b>", Decimal(3), 2)]) == 6
"""


def repaired(seed: Seed, age: float) -> SeededRun:
    """A run on a repo that passed at its second try, with its patch."""
    task = "The total leaves out the first line of an order"
    run = seed.run("fix_repo", age, {"task": task}, attributes={"task": task, "passed": True})
    run.begin()
    run.step("settle", {}, {"model": OPUS}, 0.1)
    run.step("take_repo", {"source": "."}, {"files": 212, "tests": {"command": "pytest -q"}}, 3.0)
    before = {"ok": False, "summary": "1 failed, 41 passed"}
    run.step("run_tests", {"command": "pytest -q"}, before, 9.0)
    think(seed, run, [("user", task)], "I look for where it is added up.", [("search", {})])
    run.step("search", {"pattern": "def total"}, {"text": "shop/prices.py:8"}, 0.2)
    run.step("edit", {"path": "shop/prices.py"}, {"text": "edited"}, 0.1)
    failed = {"passed": False, "summary": "1 failed, 42 passed"}
    run.step("judge", {"round": 1}, failed, 8.2)
    think(seed, run, [], "The new test has a wrong price.", [("edit", {})])
    run.step("edit", {"path": "tests/test_prices.py"}, {"text": "edited"}, 0.1)
    run.step("judge", {"round": 2}, {"passed": True, "summary": "43 passed"}, 8.1)
    run.step("close_workspace", {}, None, 0.1)
    run.complete(
        {
            "passed": True,
            "patch": {"text": PATCH, "encoding": "utf-8"},
            "summary": "`total` skipped the first line; it counts all of them now.",
            "verdict": {
                "passed": True,
                "summary": "43 passed",
                "tests": {"summary": "43 passed", "output": "43 passed in 8.1s"},
                "changed_tests": [{"path": "tests/test_prices.py", "how": "added"}],
            },
            "before": before,
        }
    )
    return run


def think(
    seed: Seed,
    run: SeededRun,
    added: list[tuple[str, str]],
    said: str,
    tools: list[tuple[str, dict[str, Any]]] | None = None,
) -> None:
    """A turn of the tool-calling loop: what is new to the model, and its reply."""
    key = run.next_key()
    wanted = [(name, json.dumps(arguments)) for name, arguments in tools or []]
    seed.call(
        OPUS,
        run.at,
        3.9,
        (2100, 240),
        0.0165,
        run=run,
        step=(f"generate_text {OPUS}", key),
        first_token=1.4,
        reply=said,
        messages=added or None,
        tools=wanted,
    )
    parts: list[dict[str, Any]] = [{"type": "text", "text": said, "cache": None}]
    parts += [
        {"type": "tool_call", "id": f"call_{place}", "name": name, "arguments": arguments}
        for place, (name, arguments) in enumerate(wanted)
    ]
    messages = [
        {"role": role, "parts": [{"type": "text", "text": text, "cache": None}]}
        for role, text in added
    ]
    run.step(
        f"generate_text {OPUS}",
        {"model": OPUS, "added": messages, "rest": "", "tags": [], "stream": None},
        {"parts": parts, "finish": "tool_calls" if tools else "stop", "model": OPUS},
        4.0,
        key=key,
    )


def use_tool(
    run: SeededRun,
    name: str,
    arguments: dict[str, Any],
    told: str,
    status: str = "done",
    approval: str | None = None,
) -> None:
    given = {"call_id": "call_0", "arguments": arguments, "max_result": 5, "approval": approval}
    content = [{"type": "text", "text": told, "cache": None}]
    output = {"content": content, "is_error": status != "done", "status": status}
    run.step(f"tool {name}", given, output, 0.4)


CHARGED_TWICE = (
    "Hello,\nI was charged twice for order A-2291, 640 € each. "
    "Could you pay one of them back?\nDana Whitfield"
)


def conversation(seed: Seed, age: float, decided: tuple[str, str] | None) -> SeededRun:
    """A support agent's run; `decided`: by whom and with which note, None while it waits."""
    run = seed.run("support_agent", age, {"ticket": {"customer": "dana", "text": CHARGED_TWICE}})
    run.begin()
    rules = "You answer customers of a shop. Look an order up before you say anything about it."
    look = [("look_up_order", {"order": "A-2291"})]
    think(seed, run, [("system", rules), ("user", CHARGED_TWICE)], "Let me look it up.", look)
    order = {"id": "A-2291", "item": "armchair", "paid": "1280.00", "refunded": "0"}
    use_tool(run, "look_up_order", {"order": "A-2291"}, json.dumps(order))
    refund = {"order": "A-2291", "amount": "640.00", "reason": "charged twice"}
    think(seed, run, [], "It was paid twice: I refund one of them.", [("refund", refund)])
    asked_at = run.at
    verdict = None if decided is None else ("approved", *decided)
    id = seed.approval(run, "refund", refund, tool="refund", asked_of="manager", decided=verdict)
    question = {"title": "refund", "tool": "refund", "arguments": refund, "asked_of": "manager"}
    run.step("ask for approval", {"question": question}, {"id": id, "status": "pending"}, 0.02)
    if decided is None:
        run.wait(f"@approval/{id}", {}, None, limit=DAY)
        run.status("waiting", due_at=run.at + DAY)
        return run
    run.wait(f"@approval/{id}", {}, 3 * HOUR, {"status": "approved"}, limit=DAY)
    read = {"id": id, "status": "approved", "decided_by": decided[0], "note": decided[1]}
    run.step("read the decision", {"id": id}, {**read, "decided_at": run.at}, 0.01)
    assert run.at > asked_at
    use_tool(run, "refund", refund, "paid back 640.00, receipt R-7731", approval=id)
    answer = "We are sorry: you paid twice. 640.00 € are on their way back (receipt R-7731)."
    think(seed, run, [], answer)
    run.step("tell the customer", {"customer": "dana", "text": answer}, None, 0.3)
    run.complete({"text": answer, "settled": True})
    return run


def long_import(seed: Seed, age: float, steps: int = 2000) -> SeededRun:
    """A run of many steps, three of which were tried twice."""
    run = seed.run("reindex_catalogue", age, {"pages": steps, "since": "2026-01-01"})
    run.begin()
    for page in range(steps):
        again = [(0.2, 0.5, "TimeoutError", "the search index did not answer")]
        retries = again if page % 700 == 650 else None
        run.step("index_page", {"page": page}, {"products": 48}, 0.15, retries=retries)
    run.complete({"products": 48 * steps})
    return run


def spread(seed: Seed, age: float, rate: str, forked_from: str | None = None) -> SeededRun:
    """A workflow of somebody's own, with steps side by side."""
    run = seed.run(
        "quarterly_report",
        age,
        {"quarter": "2026-Q3"},
        forked_from=forked_from,
    )
    run.begin()
    begun = run.at
    for place, region in enumerate(("north", "south", "west")):
        branch, run.at = f"0.{place} {region}", begun + 0.01 * place
        for inner, shop in enumerate(("centre", "station")):
            given = {"region": region, "shop": shop}
            figures = {**given, "revenue": 1200 + place}
            key, label = f"0.{place}.{inner}/1", shop
            run.step(
                "fetch_figures",
                given,
                figures,
                1.0 + inner / 5,
                key=key,
                branch=branch,
                label=label,
            )
        run.step("sum_region", {"region": region}, 2401, 0.3, key=f"0.{place}/1", branch=branch)
    run.step("convert", {"currency": "EUR", "rate": rate}, {"sum": f"3603 at {rate}"}, 0.4)
    run.step("write_report", {"quarter": "2026-Q3"}, {"pages": 4}, 2.0)
    run.complete({"pages": 4})
    return run


def family(seed: Seed, age: float) -> SeededRun:
    """A run that has others do its work: two side by side, one of which asks a third."""
    run = seed.run("release", age, {"version": "4.2.0"}, attributes={"task": "Release 4.2.0"})
    run.begin()
    run.step("tag_version", {"version": "4.2.0"}, {"commit": "9f3c1e7"}, 0.4)
    began = run.at
    api_key, api = run.child("build_service", {"service": "api"})
    web_key, web = run.child("build_service", {"service": "web"})
    for child, service, seconds in ((api, "api", 6.0), (web, "web", 3.5)):
        child.step("compile", {"service": service}, {"warnings": 0}, seconds)
    key, notes = web.child("write_notes", {"service": "web"})
    step = notes.step("ask_model", {"service": "web"}, {"text": "Faster search."}, 2.2)
    seed.call(
        OPUS,
        notes.at - 2.2,
        2.2,
        (1820, 240),
        0.0131,
        reply="Faster search.",
        run=notes,
        step=("ask_model", step),
    )
    notes.complete({"text": "Faster search."})
    web.ended(key, notes, {"text": "Faster search."})
    for child in (web, api):
        child.step("upload_image", {"tag": "4.2.0"}, {"bytes": 48_213_004}, 1.1)
        child.complete({"image": "4.2.0"})
    run.at = began
    run.ended(web_key, web, {"image": "4.2.0"})
    run.ended(api_key, api, {"image": "4.2.0"})
    run.step("announce", {"channel": "releases"}, None, 0.3)
    run.complete({"services": 2})
    return run


def fill(seed: Seed) -> dict[str, str]:
    """A week's worth; the ids of the runs worth looking at."""
    luck = seed.luck
    mine = seed.worker(41288, "build-01", 3 * HOUR, lease=600)
    other = seed.worker(9120, "build-02", 26 * HOUR, lease=598)
    ids: dict[str, str] = {}
    _past(seed)
    _calls(seed)
    stuck = seed.run("nightly_report", 5 * HOUR, {"day": "2026-11-15"})
    stuck.begin()
    stuck.step("collect", {"day": "2026-11-15"}, {"rows": 88}, 2.0)
    stuck.stick(
        "NonDeterminismError",
        "step 0/1 was recorded as 'render', but the code now calls 'summarize'",
    )
    ids["stuck"] = stuck.id
    passed = healed(seed, 2 * HOUR + 240)
    ids["passed"] = passed.id
    ids["failed"] = broken(seed, 1500).id
    ids["repo"] = repaired(seed, 3000).id
    ids["parallel"] = spread(seed, 2900, "1.08").id
    ids["forked"] = spread(seed, 2800, "1.11", forked_from=ids["parallel"]).id
    ids["family"] = family(seed, 2700).id
    refund = conversation(seed, 2100, None)
    ids["waiting"] = refund.id
    parcel = seed.run("ship_order", 1900, {"order": "A-2107", "carrier": "north"})
    parcel.begin()
    parcel.step("book_pickup", {"order": "A-2107"}, {"pickup": "P-118"}, 1.2)
    parcel.wait("parcel_arrived", {"order": "A-2107"}, None)
    parcel.status("waiting", due_at=seed.now + 20 * HOUR)
    ids["event"] = parcel.id
    ids["support"] = conversation(seed, 5 * HOUR, ("grace", "bank statement seen")).id
    ids["long"] = long_import(seed, 2 * HOUR).id
    deploy = seed.run(
        "deploy",
        640,
        {"service": "checkout", "build": 412},
        attributes={"task": "Deploy checkout, build 412"},
    )
    deploy.begin()
    deploy.step(
        "build_image", {"service": "checkout", "build": 412}, {"digest": "sha256:9f2c…"}, 48.0
    )
    deploy.step("smoke_test", {"build": 412}, {"passed": True, "summary": "14 passed"}, 12.0)
    seed.approval(
        refund,
        "Refund 12 €",
        {"order": "A-2107"},
        tool="refund",
        decided=("approved", "dana", "a parcel was lost"),
    )
    asked = seed.approval(
        deploy,
        "Deploy checkout, build 412, to production",
        {"service": "checkout", "build": 412, "share": "5 %", "rollback": "build 409"},
        asked_of="on-call",
        limit=3600,
    )
    deploy.wait(f"@approval/{asked}", {}, None, limit=3600)
    deploy.status("waiting", due_at=deploy.at + 3600)
    ids["approval"] = deploy.id
    for number in range(3):
        run = seed.run(
            "evaluate_code",
            20 + number * 4,
            {"prompt": "p"},
            attributes={
                "task": [
                    "Merge overlapping intervals",
                    "Roman numerals to integers and back",
                    "An LRU cache with a time to live",
                ][number]
            },
        )
        if number == 2:
            run.begin(other)
            run.open("generate_code", {"prompt": "p", "attempt": 1})
            run.status("running", owner=other)
        else:
            run.status("pending", due_at=seed.now + 600)
    queued = seed.run(
        "import_orders",
        12,
        {"file": "orders-2026-11-16.csv", "dry_run": True},
        attributes={"customer": "globex"},
    )
    queued.status("queued")
    ids["running"] = under_way(seed, mine).id
    lost = seed.sandbox(seed.now - 5400, 240, because="process died")
    ids["lost"] = lost.id
    live = seed.sandbox(
        seed.now - 21, None, backend="gvisor", isolation="a user-space kernel (gVisor)"
    )
    seed.command(
        live,
        seed.now - 20,
        3.4,
        ("npm", "ci", "--ignore-scripts"),
        stdout="added 212 packages in 3s\n",
        used=(3.1, 214_900_000),
    )
    seed.command(
        live,
        seed.now - 15,
        9.0,
        ("node", "bench.js"),
        ended="timed_out",
        stderr="heap at 480 MB\n",
        limits=("time",),
        used=(8.8, 508_200_000),
    )
    ids["sandbox"] = live.id
    seed.limit("day:" + _day(seed.now), usd=20)
    seed.limit("workflow:support_agent", usd=12)
    seed.limit("tag:nightly", usd=6, tokens=2_000_000)
    seed.limit(f"run:{passed.id}", usd=0.05)
    ids["call"] = seed.connection.execute(
        "SELECT id FROM calls WHERE run_id = ? AND step = 'generate_code' ORDER BY started_at LIMIT 1 OFFSET 1",
        (passed.id,),
    ).fetchone()[0]
    ids["step"] = "0/2"
    luck.random()
    return ids


def _day(at: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at, UTC).date().isoformat()


def _past(seed: Seed) -> None:
    """Many short runs of the days before."""
    tasks = [
        "Binary search over a rotated list",
        "Group anagrams",
        "Validate a Luhn number",
        "Flatten a nested dict with dotted keys",
        "Levenshtein distance in O(n) space",
        "Parse a cron expression",
        "Topological sort with cycle report",
        "Diff two JSON documents",
        "Render a table with aligned columns",
        "Rate limiter with a sliding window",
        "Retry decorator with jitter",
        "Trie with prefix counts",
    ]
    for number in range(64):
        age = 3 * HOUR + number * 1.9 * HOUR + seed.luck.uniform(0, 900)
        kind = seed.luck.random()
        if kind < 0.62:
            task, passed = tasks[number % len(tasks)], seed.luck.random() < 0.86
            attempts = seed.luck.choice([1, 1, 1, 2, 2, 3])
            run = seed.run(
                "evaluate_code",
                age,
                {"prompt": task},
                attributes={
                    "task": task,
                    "language": "python",
                    "attempt": attempts,
                    "passed": passed,
                },
            )
            run.begin()
            for attempt in range(1, attempts + 1):
                key = run.next_key()
                seed.call(
                    SONNET,
                    run.at,
                    5.0 + seed.luck.random(),
                    (1500, 420),
                    0.0112,
                    run=run,
                    step=("generate_code", key),
                    first_token=1.2,
                    reply="Done.",
                )
                run.step(
                    "generate_code",
                    {"prompt": task, "attempt": attempt},
                    {"code": CODE_1, "filename": "solution.py"},
                    6.0,
                    key=key,
                )
                run.step(
                    "run_tests",
                    {"attempt": attempt},
                    {"passed": passed and attempt == attempts, "summary": "5 passed"},
                    1.8,
                )
            run.complete({"passed": passed, "attempts": attempts})
        elif kind < 0.85:
            run = seed.run(
                "import_orders",
                age,
                {"file": f"orders-{number:03}.csv", "dry_run": False},
                attributes={"customer": seed.luck.choice(["acme", "globex", "initech"])},
            )
            run.begin()
            run.step("read_file", {"file": "f"}, {"rows": 900}, seed.luck.uniform(0.3, 2))
            run.step("write_orders", {"rows": 900}, {"written": 900}, seed.luck.uniform(1, 9))
            run.complete({"written": 900})
        elif kind < 0.93:
            run = seed.run(
                "support_agent",
                age,
                {"ticket": 4000 + number, "text": "Where is my order?"},
                attributes={"ticket": 4000 + number, "task": "Where is my order?"},
            )
            run.begin()
            run.step("decide", {"ticket": 1}, {"tool": None}, 3.0)
            run.complete({"answer": "It arrives tomorrow."})
        elif kind < 0.97:
            run = seed.run("nightly_report", age, {"day": "2026-11-14"})
            run.begin()
            run.open("collect", {"day": "2026-11-14"})
            run.at += 40
            run.cancel()
        else:
            run = seed.run("nightly_report", age, {"day": "2026-11-13"})
            run.begin()
            run.step(
                "collect",
                {"day": "2026-11-13"},
                None,
                4.0,
                error=("ConnectionError", "reports.internal:5432 refused the connection", ""),
            )
            run.fail("ConnectionError", "reports.internal:5432 refused the connection")


def _calls(seed: Seed) -> None:
    """A week of calls outside of runs: what the chart is made of."""
    prices: list[tuple[str, float, float, int]] = [
        (SONNET, 0.011, 5.2, 1500),
        (MINI, 0.0021, 2.4, 1200),
        (OPUS, 0.034, 9.8, 2400),
        ("groq/llama-4-70b", 0.0009, 0.8, 900),
    ]
    for hour in range(7 * 24):
        at = seed.now - (hour + 0.5) * HOUR
        busy = 1.2 + math.sin(hour / 24 * 2 * math.pi) + (0.5 if hour % 7 == 0 else 0)
        for model, cost, seconds, tokens in prices:
            for _ in range(int(busy * {SONNET: 3, MINI: 4, OPUS: 1.2}.get(model, 1.5))):
                took = seconds * seed.luck.lognormvariate(0, 0.45)
                moment = at + seed.luck.uniform(-1500, 1500)
                more: dict[str, Any] = {}
                if seed.luck.random() < 0.02:
                    more = {"status": "failed", "error": "RateLimited", "message": "429: slow down"}
                amount = int(tokens * seed.luck.lognormvariate(0, 0.3))
                seed.call(
                    model,
                    moment,
                    took,
                    (amount, amount // 4),
                    None if more else cost * amount / tokens,
                    cached=amount // 3 if hour % 3 else 0,
                    first_token=took / 4,
                    tags=("nightly",) if hour % 24 < 3 else (),
                    reply="…",
                    **more,
                )
