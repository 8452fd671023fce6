"""What can be done on pages: each action asks first, does what it says, and works without script."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from holdfast.ids import new_id
from waiting import until

from .conftest import Site, Visit


@pytest.fixture(params=["with script", "without script"])
def either(request: pytest.FixtureRequest, visiting: Callable[..., Visit]) -> Page:
    return visiting(java_script_enabled=request.param == "with script").page


def press(page: Page, name: str) -> None:
    """Ask for an action: a dialog with script, a page without."""
    page.locator("#head, #panel, main").get_by_role("link", name=name).first.click()
    expect(page.locator(".ask").last).to_be_visible()


def keys(site: Site, run: str) -> list[str]:
    return [step["key"] for step in site.ask(f"/runs/{run}.json")["steps"]]


def test_a_run_is_cancelled(site: Site, either: Page) -> None:
    run = site.run("slow", name="never")
    site.until(run, "running")
    either.goto(f"{site.url}/runs/{run}")
    press(either, "Cancel")
    expect(either.locator(".ask").last).to_contain_text("finally blocks run")
    either.get_by_role("button", name="Cancel the run").click()
    assert site.until(run, "cancelled")
    either.goto(f"{site.url}/runs/{run}")
    expect(either.locator("#head")).to_contain_text("cancelled")


def test_thinking_better_of_it_changes_nothing(site: Site, page: Page) -> None:
    run = site.run("slow", name="kept")
    site.until(run, "running")
    page.goto(f"{site.url}/runs/{run}")
    press(page, "Cancel")
    page.get_by_role("link", name="Keep it as it is").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert site.ask(f"/api/runs/{run}")["status"] == "running"
    site.tell("kept")
    site.until(run, "completed")


def test_a_run_is_paused_and_resumed(site: Site, either: Page) -> None:
    run = site.run("waiting", order="P1")
    site.until(run, "running", "waiting")
    either.goto(f"{site.url}/runs/{run}")
    press(either, "Pause")
    either.get_by_role("button", name="Pause the run").click()
    site.until(run, "paused")
    either.goto(f"{site.url}/runs/{run}")
    press(either, "Resume")
    either.get_by_role("button", name="Resume the run").click()
    site.until(run, "running", "waiting")
    site.ask(f"/api/runs/{run}/cancel", {})


def test_a_failed_run_is_retried_from_its_failed_step(site: Site, either: Page) -> None:
    (site.folder / "mended").unlink(missing_ok=True)
    run = site.run("failing", amount=-2)
    site.until(run, "failed")
    either.goto(f"{site.url}/runs/{run}")
    panel = either.get_by_role("complementary", name="Selected step")
    expect(panel.get_by_role("heading", level=2)).to_have_text("fragile")
    expect(panel).to_contain_text("-2 is less than nothing")
    panel.get_by_role("link", name="Retry from failure").click()
    expect(either.locator(".ask").last).to_contain_text("1 step kept; runs again: fragile")
    (site.folder / "mended").touch()
    either.get_by_role("button", name="Retry from failure").click()
    site.until(run, "completed")
    either.goto(f"{site.url}/runs/{run}?step={keys(site, run)[1]}")
    expect(panel).to_contain_text("Failed attempts")
    expect(panel).to_contain_text("-2 is less than nothing")


def test_a_run_is_run_again_with_other_input(site: Site, either: Page) -> None:
    run = site.run("steps", count=2, task="Before")
    site.until(run, "completed")
    either.goto(f"{site.url}/runs/{run}")
    press(either, "Rerun")
    either.get_by_label("Input of steps").last.fill('{"count": 4, "task": "After"}')
    either.get_by_role("button", name="Run again").click()
    either.wait_for_url(
        lambda url: "/runs/run_" in url and run not in url and not url.endswith("rerun")
    )
    made = either.url.rpartition("/")[2]
    assert site.until(made, "completed")["result"] == 12
    assert site.ask(f"/api/runs/{made}")["forked_from"] == run


def test_a_fork_says_what_is_reused_and_takes_edited_input(site: Site, either: Page) -> None:
    run = site.run("steps", count=4, task="Fork me")
    site.until(run, "completed")
    either.goto(f"{site.url}/runs/{run}?step={keys(site, run)[2]}")
    either.get_by_role("complementary").get_by_role("link", name="Fork from this step").click()
    ask = either.locator(".ask").last
    expect(ask.get_by_role("heading", name="Reused")).to_contain_text("2")
    expect(ask.get_by_role("heading", name="Run again")).to_contain_text("2")
    ask.get_by_label("Input of work").fill('{"number": 100}')
    ask.get_by_role("button", name="Fork the run").click()
    either.wait_for_url(lambda url: "/runs/run_" in url and run not in url)
    made = either.url.rpartition("/")[2]
    assert site.until(made, "completed")["result"] == 0 + 2 + 200 + 6


def test_input_that_is_no_json_is_refused_with_a_reason(site: Site, visit: Visit) -> None:
    visit.expected = ("400 (Bad Request)",)
    run = site.run("steps", count=1, task="x")
    site.until(run, "completed")
    visit.page.goto(f"{site.url}/runs/{run}/rerun")
    visit.page.get_by_label("Input of steps").fill("{not json")
    visit.page.get_by_role("button", name="Run again").click()
    expect(visit.page.locator("main")).to_contain_text("the input is no JSON")


def test_an_event_is_sent_to_the_run_that_waits_for_it(site: Site, either: Page) -> None:
    run = site.run("waiting", order="A-7")
    until(lambda: site.ask(f"/runs/{run}.json")["steps"], "the wait")
    either.goto(f"{site.url}/runs/{run}")
    either.get_by_role("complementary").get_by_role("link", name="Send this event").click()
    ask = either.locator(".ask").last
    expect(ask.get_by_label("Name")).to_have_value("paid")
    ask.get_by_label("Payload").fill('{"order": "A-7", "amount": 3}')
    ask.get_by_role("button", name="Send to this run").click()
    assert site.until(run, "completed")["result"] == "thanks"


@pytest.mark.parametrize(("button", "outcome"), [("Approve", "refunded"), ("Reject", "refused")])
def test_an_approval_is_decided_with_a_name_and_a_note(
    site: Site, either: Page, button: str, outcome: str
) -> None:
    run = site.run("refund", amount=40)
    until(
        lambda: [a for a in site.ask("/approvals.json")["waiting"] if a["run_id"] == run],
        "the question",
    )
    either.goto(f"{site.url}/runs/{run}")
    expect(either.locator("#head")).to_contain_text("Refund 40 €")
    either.locator(".approval").get_by_role("link", name=button).click()
    ask = either.locator(".ask").last
    ask.get_by_label("Your name").fill("dana")
    ask.get_by_label("Note").fill("as agreed")
    ask.get_by_role("button", name=button).click()
    assert site.until(run, "completed")["result"] == f"{outcome} by dana: as agreed"
    either.goto(f"{site.url}/approvals")
    expect(either.locator("main")).to_contain_text("as agreed")


def test_chosen_runs_are_cancelled_together(site: Site, either: Page) -> None:
    chosen = [site.run("slow", name="bulk") for _ in range(3)]
    name = new_id("file")
    spared = site.run("slow", name=name)
    for run in (*chosen, spared):
        site.until(run, "running")
    either.goto(f"{site.url}/runs?workflow=slow&status=active")
    for run in chosen:
        either.get_by_label(f"Choose {run}").check()
    either.get_by_role("button", name="Cancel chosen").click()
    ask = either.locator(".ask").last
    expect(ask.get_by_role("heading")).to_have_text("Cancel 3 runs?")
    ask.get_by_role("button", name="Cancel 3 runs").click()
    for run in chosen:
        site.until(run, "cancelled")
    assert "workflow=slow" in either.url
    assert site.ask(f"/api/runs/{spared}")["status"] == "running"
    site.tell(name)
    site.until(spared, "completed")


def test_a_live_sandbox_is_seen_and_stopped(site: Site, either: Page) -> None:
    run = site.run("boxed", name="boxed")
    found = until(
        lambda: (
            [
                b
                for b in site.ask("/sandboxes.json?which=live")["sandboxes"]
                if b["run_id"] == run and b["commands"]
            ]
            or site.ask(f"/api/runs/{run}")["status"] == "failed"
        ),
        "the sandbox",
    )
    if found is True:
        pytest.skip(f"no sandbox here: {site.ask(f'/api/runs/{run}')['error']}")
    either.goto(f"{site.url}/sandboxes/{found[0]['id']}")
    expect(either.locator("main")).to_contain_text("from inside")
    press(either, "Stop")
    either.get_by_role("button", name="Stop the sandbox").click()
    until(
        lambda: (
            not [
                b for b in site.ask("/sandboxes.json?which=live")["sandboxes"] if b["run_id"] == run
            ]
        ),
        "the end of the sandbox",
    )
    expect(either.locator("main")).to_contain_text("stopped in the inspector")
    site.ask(f"/api/runs/{run}/cancel", {})
    site.until(run, "cancelled", "failed")


def test_a_form_without_its_token_is_refused(site: Site, visit: Visit) -> None:
    visit.expected = ("403 (Forbidden)",)
    run = site.run("slow", name="guarded")
    site.until(run, "running")
    visit.page.goto(f"{site.url}/runs/{run}/do/cancel")
    visit.page.locator("input[name=csrf]").evaluate("field => field.remove()")
    visit.page.get_by_role("button", name="Cancel the run").click()
    expect(visit.page.locator("body")).to_contain_text("CSRF")
    assert site.ask(f"/api/runs/{run}")["status"] == "running"
    site.tell("guarded")


@pytest.mark.parametrize("script", [True, False])
def test_a_run_is_started_by_a_form_made_from_type_hints(
    site: Site, visiting: Callable[..., Visit], script: bool
) -> None:
    visit = visiting(java_script_enabled=script)
    visit.expected = ("400 (Bad Request)",)
    either = visit.page
    either.goto(f"{site.url}/runs/start?workflow=failing")
    field = either.get_by_label("amount")
    field.fill("seven")
    either.get_by_role("button", name="Start the run").click()
    expect(either.get_by_role("alert")).to_contain_text("amount is invalid JSON")
    field.fill("7")
    key = new_id("key")
    either.get_by_role("textbox", name="Key").fill(key)
    either.get_by_role("combobox", name="Profile").select_option("prod")
    either.get_by_role("button", name="Start the run").click()
    expect(either.locator("h1")).to_contain_text("failing")
    run = either.url.rpartition("/")[2]
    found = site.until(run, "completed", "failed")
    assert (found["input"], found["key"]) == ({"amount": 7}, key)
    assert found["attributes"]["profile"] == "prod"
    expect(either.get_by_role("link", name="profile=prod")).to_be_visible()
