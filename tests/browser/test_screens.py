"""Every screen: it shows what it should, nobody is shut out, and nothing is fetched elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from .conftest import Demo, Visit

SCREENS: dict[str, tuple[str, str]] = {
    "runs": ("/runs", "Parse ISO 8601 durations"),
    "runs, filtered": ("/runs?status=failed&workflow=import_orders&since=24h", "IntegrityError"),
    "runs, none": ("/runs?q=nothing+like+this", "No run fits"),
    "a passed run": ("/runs/{passed}?step=0/2", "2 failed, 3 passed"),
    "a failed run": ("/runs/{failed}", "Retry from failure"),
    "a run under way": ("/runs/{running}", "generate code"),
    "a waiting run": ("/runs/{event}", "Send this event"),
    "a conversation": ("/runs/{support}", "paid back 640.00, receipt R-7731"),
    "a conversation that waits": ("/runs/{waiting}", "asked by support_agent"),
    "a long run": ("/runs/{long}", "of 2,000 steps"),
    "a stuck run": ("/runs/{stuck}", "NonDeterminismError"),
    "a repo run": ("/runs/{repo}", "tests before"),
    "a parallel run": ("/runs/{parallel}", "sum region south"),
    "a run with children": ("/runs/{family}", "write notes"),
    "compare": ("/runs/{parallel}/compare/{forked}", "First difference: convert"),
    "start": ("/runs/start", "Workflow"),
    "transcript": ("/runs/{passed}/transcript", "changed since attempt 1"),
    "events": ("/runs/{failed}/events", "step.retrying"),
    "json": ("/runs/{passed}/json", '"workflow"'),
    "approvals": ("/approvals", "Deploy checkout, build 412, to production"),
    "a run that asks": ("/runs/{approval}", "refused in"),
    "models": ("/models?since=7d", "anthropic/claude-opus-4.5"),
    "calls": ("/calls?status=failed", "RateLimited"),
    "a call": ("/calls/{call}", "ProviderUnavailable"),
    "sandboxes": ("/sandboxes", "1 refused"),
    "a sandbox": ("/sandboxes/{sandbox}", "limit: time"),
    "workers": ("/workers", "build-01"),
    "cancel": ("/runs/{running}/do/cancel", "Cancel the run"),
    "fork": ("/runs/{passed}/fork?step=0/7", "Run again"),
    "send": ("/runs/{event}/send", "parcel_arrived"),
    "bulk": ("/runs/cancel", "Cancel 9 runs"),
    "not found": ("/runs/run_none", "there is no run run_none"),
    "nowhere": ("/nowhere", "there is nothing at /nowhere"),
}
MISSING = ("not found", "nowhere")


def opened(visit: Visit, demo: Demo, name: str) -> None:
    place, _ = SCREENS[name]
    visit.expected = ("404 (Not Found)",) if name in MISSING else ()
    visit.page.goto(demo.url + place.format(**demo.ids))


@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_shows_what_it_is_for(demo: Demo, visit: Visit, name: str) -> None:
    opened(visit, demo, name)
    expect(visit.page.locator("main")).to_contain_text(SCREENS[name][1])
    expect(visit.page.locator("h1")).to_have_count(1)


def serious(found: Any) -> list[str]:
    return [
        f"{each['id']}: {each['help']}: {[node['html'][:160] for node in each['nodes'][:3]]}"
        for each in found.response["violations"]
        if each["impact"] in ("serious", "critical")
    ]


# What WCAG's criterion 1.4.12 asks a page to bear: wider than any font that may be the only one there.
WIDE_TEXT = "* { letter-spacing: .12em !important; word-spacing: .16em !important }"

# The longest word that stands at the right of the header, put there when the server is gone.
LOST = """() => { const live = document.getElementById("live");
  live.dataset.state = "lost"; live.textContent = "reconnecting" }"""


@pytest.fixture(scope="module")
def measured(browser: Browser) -> Iterator[Visit]:
    """A window whose policy lets axe in, for one screen after another."""
    visit = Visit(browser.new_context(reduced_motion="reduce", bypass_csp=True))
    yield visit
    visit.context.close()


@pytest.mark.parametrize("name", SCREENS)
def test_nobody_is_shut_out_of_a_screen_in_light_in_dark_or_on_a_phone(
    demo: Demo, measured: Visit, name: str
) -> None:
    """One page is looked at three times: loading it thrice took most of the suite's time."""
    page = measured.page
    page.set_viewport_size({"width": 1440, "height": 900})
    page.emulate_media(color_scheme="light")
    opened(measured, demo, name)
    assert serious(Axe().run(page)) == []
    page.emulate_media(color_scheme="dark")
    ground = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert ground != "rgb(255, 255, 255)"
    assert serious(Axe().run(page)) == []
    page.set_viewport_size({"width": 360, "height": 780})
    page.add_style_tag(content=WIDE_TEXT)
    page.evaluate(LOST)
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 360, f"{name} is {wide} pixels wide: {page.evaluate(WHAT_IS_WIDE)}"
    measured.check()


# The innermost elements past the right edge, of those that nothing around them scrolls or cuts.
WHAT_IS_WIDE = """() => [...document.querySelectorAll("body *")]
  .filter(each => each.getBoundingClientRect().right > innerWidth + 0.5)
  .filter(each => {
    for (let up = each.parentElement; up; up = up.parentElement)
      if (up !== document.documentElement && getComputedStyle(up).overflowX !== "visible") return false;
    return true;
  })
  .map(each => `${each.tagName}.${each.className?.baseVal ?? each.className}`).slice(-6)"""


def test_the_login_s_ground_is_the_login_s_alone(demo: Demo, visit: Visit) -> None:
    """A value without a name was once drawn `bare`, and the whole page took the login's ground."""
    grounds = set[str]()
    for place in ("/runs", "/runs/{passed}?step=0/2", "/runs/{waiting}", "/sandboxes/{sandbox}"):
        visit.page.goto(demo.url + place.format(**demo.ids))
        grounds.add(
            visit.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        )
    assert len(grounds) == 1


@pytest.mark.parametrize("name", [name for name in SCREENS if name not in MISSING])
def test_a_screen_answers_as_json_too(demo: Demo, name: str) -> None:
    place = SCREENS[name][0].format(**demo.ids)
    path, mark, query = place.partition("?")
    assert isinstance(demo.ask(f"{path}.json{mark}{query}"), dict)


def test_the_selected_step_is_in_the_address_and_can_be_gone_back_from(
    demo: Demo, visit: Visit
) -> None:
    page = visit.page
    page.goto(f"{demo.url}/runs/{demo.ids['passed']}")
    panel = page.get_by_role("complementary", name="Selected step")
    page.get_by_role("link", name="generate code").first.click()
    expect(panel.get_by_role("heading", level=2)).to_have_text("generate code")
    expect(page).to_have_url(re.compile(r"\?step=0%2F0$"))
    page.get_by_role("link", name="wait approval").click()
    expect(panel.get_by_role("heading", level=2)).to_have_text("approval")
    page.go_back()
    expect(panel.get_by_role("heading", level=2)).to_have_text("generate code")
    page.reload()
    expect(panel.get_by_role("heading", level=2)).to_have_text("generate code")


def test_status_is_told_by_symbol_and_word_and_pattern(demo: Demo, visit: Visit) -> None:
    page = visit.page
    page.goto(f"{demo.url}/runs/{demo.ids['failed']}")
    row = page.locator("tr.chosen")
    expect(row.locator("use").first).to_have_attribute("href", "#i-failed")
    expect(row.locator(".state")).to_contain_text("failed")
    expect(row.locator("rect.failed").first).to_have_attribute("fill", "url(#p-failed)")
    # The gap of two hours is folded: its label stands where the wait is drawn.
    page.goto(f"{demo.url}/runs/{demo.ids['passed']}")
    expect(page.locator(".fold-text")).to_have_text("2 h")


def test_a_call_and_a_sandbox_are_a_link_away_from_their_step(demo: Demo, visit: Visit) -> None:
    page = visit.page
    page.goto(f"{demo.url}/runs/{demo.ids['passed']}?step=0%2F3")
    panel = page.get_by_role("complementary", name="Selected step")
    expect(panel).to_contain_text("anthropic/claude-sonnet-4.6 529 → bedrock/claude-sonnet-4.6")
    panel.get_by_role("region", name="Model calls").get_by_role("link").click()
    expect(page.locator("main")).to_contain_text("HTTP 529")
    page.get_by_role("link", name="generate code").click()
    page.get_by_role("link", name="run tests").first.click()
    panel.get_by_role("link", name="sbx_").click()
    expect(page.locator("main")).to_contain_text("169.254.169.254:80")
    expect(page.locator("main")).to_contain_text("refused: a link-local address")


def test_what_a_sandbox_used_stands_beside_its_limits(demo: Demo, visit: Visit) -> None:
    page = visit.page
    page.goto(f"{demo.url}/runs/{demo.ids['passed']}?step=0%2F2")
    panel = page.get_by_role("complementary", name="Selected step")
    expect(panel).to_contain_text("CPU 1.4 s · memory 44.7 MiB")
    panel.get_by_role("link", name="sbx_").click()
    aside = page.get_by_role("complementary", name="Limits, use and network")
    expect(aside).to_contain_text("1.4 s on 1 processor at most")
    expect(aside).to_contain_text("44.7 MiB of 512 MiB")
    expect(aside).to_contain_text("60 KiB of 1 GiB")
    expect(aside.get_by_role("img", name="9 % of its memory")).to_be_visible()
    # Of one that lives, what its commands used; its files are counted when it stops.
    page.goto(f"{demo.url}/sandboxes/{demo.ids['sandbox']}")
    expect(aside).to_contain_text("11.9 s on 1 processor at most")
    expect(aside).to_contain_text("484.7 MiB of 512 MiB")
    expect(aside).to_contain_text("not known yet of 1 GiB")


def test_what_nobody_could_tell_is_shown_as_unknown(demo: Demo, visit: Visit) -> None:
    page = visit.page
    page.goto(f"{demo.url}/sandboxes")
    row = page.locator(f"tr[data-key={demo.ids['lost']}]")
    expect(row).to_contain_text("unknown of 512 MiB")
    page.goto(f"{demo.url}/sandboxes/{demo.ids['lost']}")
    aside = page.get_by_role("complementary", name="Limits, use and network")
    expect(aside).to_contain_text("unknown on 1 processor at most")
    expect(aside).to_contain_text("unknown of 512 MiB")
    expect(aside).to_contain_text("unknown of 1 GiB")
    told = demo.ask(f"/sandboxes/{demo.ids['lost']}.json")
    assert (told["cpu_seconds"], told["peak_memory"], told["disk_used"]) == (None, None, None)


def test_filters_of_runs_are_in_the_address(demo: Demo, visit: Visit) -> None:
    page = visit.page
    page.goto(f"{demo.url}/runs")
    page.get_by_role("link", name="Completed").click()
    page.get_by_label("Workflow").select_option("import_orders")
    page.get_by_label("Attribute").fill("customer=acme")
    page.get_by_role("button", name="Filter").click()
    expect(page).to_have_url(re.compile("status=completed.*attribute=customer%3Dacme"))
    # The address changes before the page has come.
    page.wait_for_load_state()
    found = page.locator("tbody tr")
    expect(found.first).to_be_visible()
    for row in found.all():
        expect(row).to_contain_text("import_orders")
    page.get_by_label("Search runs").fill("nothing like this")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_contain_text("No run fits “nothing like this”")
    page.get_by_role("link", name="Show all runs").click()
    expect(page.locator("tbody tr")).to_have_count(50)


def test_the_pages_of_the_list_follow_one_another(demo: Demo, visit: Visit) -> None:
    page = visit.page
    page.goto(f"{demo.url}/runs")
    total = demo.ask("/runs.json")["found"]
    page.get_by_role("link", name="Older", exact=True).click()
    expect(page.locator("tbody tr")).to_have_count(total - 50)
    page.get_by_role("link", name="Newer", exact=True).click()
    expect(page.locator("tbody tr")).to_have_count(50)


def test_the_keyboard_is_enough(demo: Demo, visit: Visit) -> None:
    page = visit.page
    page.goto(f"{demo.url}/runs")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    expect(page.get_by_label("Search runs")).to_be_focused()
    page.keyboard.press("Escape")
    for _ in range(3):
        page.keyboard.press("j")
    page.keyboard.press("k")
    second = page.locator("[data-row]").nth(1)
    expect(second).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/run_*")
    page.goto(f"{demo.url}/runs/{demo.ids['passed']}?step=0%2F0")
    page.keyboard.press("j")
    expect(page.get_by_role("complementary").get_by_role("heading", level=2)).to_have_text(
        "generate tests"
    )


def test_everything_can_be_seen_without_script(demo: Demo, visiting: Callable[..., Visit]) -> None:
    visit = visiting(java_script_enabled=False)
    page = visit.page
    page.goto(f"{demo.url}/runs?status=failed")
    page.locator("[data-row]").first.click()
    expect(page.locator("main")).to_contain_text("IntegrityError")
    page.get_by_role("link", name="read file").click()
    expect(page.get_by_role("complementary").get_by_role("heading", level=2)).to_have_text(
        "read file"
    )
    for tab in ("Transcript", "Events", "JSON"):
        page.get_by_role("link", name=tab, exact=True).click()
        expect(page.locator("nav.tabs [aria-current]")).to_have_text(tab)
    for section in ("Models", "Sandboxes", "Workers", "Approvals"):
        page.get_by_role("navigation", name="Sections").get_by_role("link", name=section).click()
        expect(page.get_by_role("heading", level=1)).to_have_text(section)
    expect(page.locator(".js").first).to_be_hidden()


def test_a_repo_run_opens_on_its_patch_and_folds_inner_steps(demo: Demo, visit: Visit) -> None:
    page, run = visit.page, demo.ids["repo"]
    page.goto(f"{demo.url}/runs/{run}")
    result = page.get_by_role("region", name="Result")
    expect(result).to_contain_text("1 failed, 41 passed")
    expect(result).to_contain_text("tests/test_prices.py: added")
    changes = page.get_by_role("region", name="Changes of shop/prices.py")
    expect(changes.locator(".d-added code")).to_have_text("    for line in lines:")
    expect(changes.locator(".d-removed code")).to_have_text("    for line in lines[1:]:")
    hostile = page.get_by_role("region", name="Changes of tests/test_prices.py")
    expect(hostile).to_contain_text("<b>bread</b>")
    expect(page.locator(".timeline .round th")).to_contain_text(["attempt 1", "attempt 2"])
    names = page.locator(".timeline tbody th")
    expect(names).to_have_count(11)
    expect(page.locator(".timeline")).to_contain_text("think")
    page.get_by_role("link", name="2 inner steps not shown").click()
    expect(names).to_have_count(13)
    with page.expect_download() as downloaded:
        page.get_by_role("link", name="Download the patch").click()
    assert downloaded.value.path().read_text().startswith("diff --git a/shop/prices.py")


def test_the_first_difference_of_two_runs_is_marked(demo: Demo, visit: Visit) -> None:
    visit.page.goto(f"{demo.url}/runs/{demo.ids['forked']}")
    visit.page.get_by_role("link", name="Compare").click()
    first = visit.page.locator("tr[aria-current=true]")
    expect(first).to_contain_text("≠ first: input, result")
    expect(visit.page.locator("table.compare")).to_contain_text("= same")
    difference = visit.page.get_by_role("region", name="First difference")
    expect(difference).to_contain_text("1.08")
    expect(difference).to_contain_text("1.11")


def test_the_navigation_counts_what_waits_for_a_decision(demo: Demo, visit: Visit) -> None:
    visit.page.goto(f"{demo.url}/workers")
    expect(visit.page.get_by_role("navigation", name="Sections")).to_contain_text("Approvals 2")
    visit.page.get_by_role("link", name="Approvals 2 waiting").click()
    expect(visit.page.locator("blockquote").first).to_contain_text("Deploy checkout, build 412")


def test_a_support_run_is_a_conversation(demo: Demo, visit: Visit) -> None:
    page = visit.page
    page.goto(f"{demo.url}/runs/{demo.ids['support']}")
    expect(page.locator(".run-head .about")).to_contain_text("charged twice for order A-2291")
    turns = page.get_by_role("region", name="Conversation").locator(".turn")
    heads = [" ".join(each.split()) for each in turns.locator("h3").all_inner_texts()]
    assert heads == [
        "request",
        "completed think",
        "completed look up order",
        "completed think",
        "completed ask",
        "completed refund",
        "completed think",
        "completed tell the customer",
    ]
    expect(turns.nth(0)).to_contain_text("Could you pay one of them back?")
    looked_up = turns.nth(2).locator(".field dd")
    expect(looked_up).to_have_text(["A-2291", "A-2291", "armchair", "1280.00", "0"])
    expect(turns.nth(4)).to_contain_text("asked of manager")
    expect(turns.nth(4)).to_contain_text("approved by grace after 3.0 h")
    expect(turns.nth(4)).to_contain_text("bank statement seen")
    expect(turns.nth(5)).to_contain_text("paid back 640.00, receipt R-7731")
    assert '\\"' not in page.locator("main").inner_text()  # no JSON in JSON


def test_an_approval_says_whose_words_how_much_and_who_asks(demo: Demo, visit: Visit) -> None:
    page = visit.page
    page.goto(f"{demo.url}/runs/{demo.ids['waiting']}")
    card = page.get_by_role("region", name="Waits for a decision: refund")
    expect(card.locator(".what")).to_contain_text("refund 640.00")
    expect(card.locator("blockquote")).to_contain_text("I was charged twice for order A-2291")
    expect(card).to_contain_text("asked by support_agent, anthropic/claude-opus-4.5")
    card.get_by_role("link", name="Approve…").click()
    asked = page.locator("#ask")
    expect(asked).to_contain_text("I was charged twice for order A-2291")
    expect(asked).to_contain_text("640.00")


def test_parallel_steps_are_nested_below_the_branch_that_started_them(
    demo: Demo, visit: Visit
) -> None:
    visit.page.goto(f"{demo.url}/runs/{demo.ids['parallel']}")
    rows = visit.page.locator(".timeline tbody th")
    told = [" ".join(each.split()) for each in rows.all_inner_texts()]
    assert told[:5] == [
        "completed north",
        "completed fetch figures centre",
        "completed fetch figures station",
        "completed sum region north",
        "completed south",
    ]
    expect(rows.nth(1)).to_have_class("name d1")
    expect(rows.last).to_have_class("name d0")


def test_the_panel_is_as_wide_as_somebody_made_it(demo: Demo, visit: Visit) -> None:
    page = visit.page
    page.goto(f"{demo.url}/runs/{demo.ids['parallel']}")
    panel, grip = page.locator("#panel"), page.get_by_role("separator", name="Width of the panel")
    before = panel.bounding_box()
    place = grip.bounding_box()
    assert before is not None and place is not None
    page.mouse.move(place["x"] + 3, 300)
    page.mouse.down()
    page.mouse.move(place["x"] - 197, 300, steps=4)
    page.mouse.up()
    wider = panel.bounding_box()
    assert wider is not None and 150 < wider["width"] - before["width"] < 250
    grip.press("ArrowRight")
    page.reload()
    kept = panel.bounding_box()
    assert kept is not None and 20 < wider["width"] - kept["width"] < 40


def test_the_steps_of_child_runs_stand_below_the_row_that_started_them(
    demo: Demo, visit: Visit
) -> None:
    page = visit.page
    page.goto(f"{demo.url}/runs/{demo.ids['family']}")
    names = page.locator(".timeline tbody th")
    expect(names).to_have_count(10)
    words = [
        re.sub(r"^completed\s*", "", " ".join(text.split())) for text in names.all_inner_texts()
    ]
    assert words == [
        "tag version",
        "run build service api",
        "compile",
        "upload image",
        "run build service web",
        "compile",
        "run write notes",
        "ask model",
        "upload image",
        "announce",
    ]
    # What the innermost run spent stands beside the row of that run as well.
    expect(page.locator("tr", has_text="write notes").locator(".cost")).to_have_text("$0.0131")
    # And what all of them spent in the header of the run that started them.
    expect(page.locator("#head")).to_contain_text("3 child runs: ")
    expect(page.locator("#head")).to_contain_text(", $0.0131")
    page.get_by_role("link", name="ask model").click()
    expect(page.locator("h1")).to_contain_text("write_notes")
    expect(page.get_by_role("complementary", name="Selected step")).to_contain_text(
        "Faster search."
    )
    page.get_by_role("link", name="run_").first.click()
    expect(page.locator("h1")).to_contain_text("build_service")
