"""What programs, models and strangers wrote is shown as text, wherever it stands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from seeding import Seed

from .conftest import Demo, Visit

SCRIPT = "<script>window.hacked=1</script>"
IMAGE = "<img src=x onerror=window.hacked=1>"
BREAKOUT = "\"'><svg onload=window.hacked=1>"
STYLE = "</style></title></textarea><style>*{display:none}</style>"
LINK = "javascript:window.hacked=1"
TEMPLATE = "{{ 7 * 7 }}{% if 1 %}"
CONTROL = "\x00\x1b[2J\u202etxt"
HALF = "half a character \ud800"
EVIL = f"{SCRIPT}{IMAGE}{BREAKOUT}{STYLE}{TEMPLATE}{LINK}"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """A store in which every text that others can write is an attack."""
    site = Demo(tmp_path_factory.mktemp("hostile"), worker=False)
    seed = Seed(site.store)
    worker = seed.worker(1, EVIL, 10, lease=600)
    run = seed.run(
        EVIL,
        60,
        {"task": EVIL, EVIL: [EVIL, {EVIL: EVIL}], "code": f"x = '''{EVIL}'''\n" * 2},
        attributes={"task": EVIL, EVIL: EVIL, "other": CONTROL},
        key=EVIL,
    )
    run.begin(worker)
    key = run.next_key()
    seed.call(
        EVIL,
        run.at,
        1.0,
        (1, 1),
        0.1,
        reply=f"{EVIL}\n```{SCRIPT}\n{EVIL}\n```",
        messages=[("system", EVIL), ("user", EVIL)],
        run=run,
        step=(EVIL, key),
        tools=[(EVIL, json.dumps({EVIL: EVIL})), (EVIL, EVIL)],
        tags=(EVIL,),
        tried=[(EVIL, EVIL, 500, EVIL, EVIL), (EVIL, EVIL, 200, None, None)],
    )
    box = seed.sandbox(
        run.at, None, run=run, step=(EVIL, key), backend=EVIL, isolation=EVIL, network=(EVIL,)
    )
    seed.command(box, run.at, 1.0, (EVIL, EVIL), stdout=EVIL, stderr=EVIL, code=1, limits=(EVIL,))
    seed.egress(box, run.at, EVIL, 1, False, EVIL)
    run.step(
        EVIL,
        {EVIL: EVIL, "attempt": 1},
        {"code": EVIL + "\n", "filename": EVIL, "note": EVIL, "problem": EVIL},
        1.0,
        key=key,
    )
    run.step(EVIL, {"attempt": 2}, {"code": EVIL + "\nx", "filename": EVIL}, 1.0)
    run.step(
        "check",
        {"attempt": 2, "text": HALF, "list": [HALF]},
        {"passed": False, "summary": EVIL, "output": EVIL, "error": EVIL},
        1.0,
    )
    run.wait(EVIL, {EVIL: EVIL}, 1.0, {EVIL: EVIL})
    run.step(EVIL, {}, None, 1.0, retries=[(0.1, 0.1, EVIL, EVIL)], error=(EVIL, EVIL, EVIL))
    failed_at = run.next_key()
    run.fail(EVIL, EVIL, EVIL)
    waiting = seed.run(EVIL, 30, {EVIL: EVIL})
    waiting.begin(worker)
    waiting.wait(EVIL, {EVIL: EVIL}, None)
    waiting.status("waiting", due_at=seed.now + 1000)
    approval = "apr_" + run.id[4:]
    seed.connection.execute(
        "INSERT INTO approvals (id, run_id, title, tool, arguments, arguments_hash, asked_of, requested_at, expires_at, fallback)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'deny')",
        (
            approval,
            waiting.id,
            EVIL,
            EVIL,
            json.dumps({EVIL: EVIL}),
            EVIL,
            EVIL,
            seed.now,
            seed.now + 1000,
        ),
    )
    seed.limit(f"tag:{EVIL}", usd=1)
    call = seed.connection.execute("SELECT id FROM calls").fetchone()[0]
    site.ids = {
        "run": run.id,
        "waiting": waiting.id,
        "call": call,
        "sandbox": box.id,
        "approval": approval,
        "key": failed_at,
    }
    seed.close()
    site.start()
    yield site
    site.kill()
    seed.let_go()


PAGES = [
    "/runs", "/runs?q={evil}", "/runs?workflow={evil}&attribute=a%3D{evil}", "/runs?parent={evil}", "/runs/cancel",
    "/runs/{run}", "/runs/{run}?step=0%2F0", "/runs/{run}?step=0%2F2", "/runs/{run}?step=0%2F3", "/runs/{run}/transcript", "/runs/{run}/events", "/runs/{run}/json",
    "/runs/{run}/fork", "/runs/{run}/rerun", "/runs/{run}/do/retry", "/runs/{waiting}", "/runs/{waiting}/send?name={evil}",
    "/approvals", "/approvals/{approval}", "/models", "/calls", "/calls?model={evil}", "/calls/{call}",
    "/sandboxes", "/sandboxes/{sandbox}", "/sandboxes/{sandbox}/stop", "/workers",
    "/runs/{flat}", "/runs/{run}?step={evil}", "/runs?since={evil}", "/calls/{flat}",
]  # fmt: skip


@pytest.mark.parametrize("place", PAGES)
def test_an_attack_in_any_field_is_inert(hostile: Demo, visit: Visit, place: str) -> None:
    visit.expected = ("400 (Bad Request)", "404 (Not Found)")
    page = visit.page
    page.goto(
        hostile.url
        + place.format(
            evil=quote(EVIL, safe=""), flat=quote(EVIL.replace("/", ""), safe=""), **hostile.ids
        )
    )
    expect(page.locator("main")).to_be_visible()
    assert page.evaluate("window.hacked") is None
    found = page.evaluate(
        """() => ({
          scripts: [...document.scripts].filter(each => !each.src.includes('/static/inspector.js')).length,
          images: document.images.length,
          styles: document.querySelectorAll('style, [style]').length,
          handlers: [...document.querySelectorAll('*')].filter(each =>
            [...each.attributes].some(found => found.name.startsWith('on'))).length,
          links: [...document.querySelectorAll('a[href], form[action]')].filter(each =>
            /^(javascript|data|vbscript):/i.test(each.getAttribute('href') ?? each.getAttribute('action') ?? '')).length,
        })"""
    )
    assert found == {"scripts": 0, "images": 0, "styles": 0, "handlers": 0, "links": 0}
    expect(page.locator("h1")).not_to_contain_text("49")


def test_what_was_written_can_be_read(hostile: Demo, visit: Visit) -> None:
    visit.page.goto(f"{hostile.url}/runs/{hostile.ids['run']}/transcript")
    expect(visit.page.locator("main")).to_contain_text(SCRIPT)
    expect(visit.page.locator("main")).to_contain_text(TEMPLATE)


def test_a_payload_is_sent_as_text_that_no_browser_takes_for_a_page(
    hostile: Demo, visit: Visit
) -> None:
    answer = visit.page.goto(f"{hostile.url}/runs/{hostile.ids['run']}/events/1/value")
    assert answer is not None
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    expect(visit.page.locator("body")).to_contain_text(SCRIPT)
    assert visit.page.evaluate("window.hacked") is None


def test_the_pages_policy_allows_no_script_but_our_own(hostile: Demo, visit: Visit) -> None:
    answer = visit.page.goto(f"{hostile.url}/runs")
    assert answer is not None
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    visit.expected = ("Content Security Policy", "violates")
    visit.page.evaluate(
        "() => { const made = document.createElement('script'); made.textContent = 'window.hacked = 1';"
        " document.body.append(made); }"
    )
    assert visit.page.evaluate("window.hacked") is None
