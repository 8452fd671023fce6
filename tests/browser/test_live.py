"""Live: what happens is seen without reloading, and nothing is lost or doubled on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from waiting import until

from .conftest import HERE, Site, Visit


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Site]:
    """A server of the test's own, for it to kill."""
    made = Site(tmp_path, str(HERE / "flows.py"))
    made.start()
    yield made
    made.kill()


def keep(page: Page) -> None:
    """Mark the document: it is gone if the page is loaded again."""
    page.evaluate("window.kept = true")


def is_kept(page: Page) -> bool:
    return bool(page.evaluate("window.kept === true"))


def listed(page: Page) -> list[str]:
    return page.locator("tbody tr").evaluate_all("rows => rows.map(row => row.dataset.key)")


def test_a_run_shows_up_in_the_list_and_changes_as_it_goes_on(site: Site, page: Page) -> None:
    page.goto(f"{site.url}/runs")
    expect(page.locator("#live")).to_have_text("live")
    keep(page)
    run = site.run("slow", name="first")
    row = page.locator(f"tr[data-key={run}]")
    expect(row).to_contain_text("running")
    expect(row).to_contain_text("until told")
    expect(row).to_contain_text("Wait for first")
    site.tell("first")
    expect(row).to_contain_text("completed")
    assert is_kept(page)


def test_a_runs_page_grows_with_the_run_and_ends_with_it(site: Site, page: Page) -> None:
    run = site.run("slow", name="second")
    page.goto(f"{site.url}/runs/{run}")
    keep(page)
    rows = page.locator("tbody tr[data-key]")
    expect(rows).to_have_count(2)
    expect(page.locator("rect.open")).to_have_count(1)
    details = page.locator("details.outcome")
    details.locator("summary").click()
    site.tell("second")
    expect(page.locator("#head")).to_contain_text("completed")
    expect(page.locator("rect.open")).to_have_count(0)
    expect(page.locator("#live")).to_have_text("")
    assert is_kept(page)
    # What the reader had opened stays open.
    expect(details).to_have_attribute("open", "")


def test_the_steps_of_a_child_come_to_the_page_of_its_parent_as_they_begin(
    site: Site, page: Page
) -> None:
    run = site.run("parent_of_slow", name="child's")
    page.goto(f"{site.url}/runs/{run}")
    keep(page)
    names = page.locator(".timeline tbody th")
    expect(names).to_have_count(3)
    expect(names.nth(2)).to_contain_text("until told")
    expect(page.locator("rect.open")).to_have_count(2)
    site.tell("child's")
    expect(page.locator("#head")).to_contain_text("completed")
    expect(page.locator("rect.open")).to_have_count(0)
    expect(page.locator("#head")).to_contain_text("1 child run")
    assert is_kept(page)
    page.goto(f"{site.url}/runs")
    expect(page.locator(f"tr[data-key={run}]")).to_be_visible()
    expect(page.locator("td.c-flow", has_text="↳ slow")).to_have_count(1)
    page.get_by_label("Child runs").select_option("hidden")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator(f"tr[data-key={run}]")).to_be_visible()
    expect(page.locator("td.c-flow", has_text="↳")).to_have_count(0)


def test_the_events_of_a_run_come_in_order_and_once(site: Site, page: Page) -> None:
    run = site.run("slow", name="third")
    site.until(run, "running")
    page.goto(f"{site.url}/runs/{run}/events")
    keep(page)
    site.tell("third")
    expect(page.locator("tbody tr").last).to_contain_text("run.completed")
    numbers = [int(number) for number in listed(page)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) == site.ask(f"/runs/{run}/events.json")["total"]
    assert is_kept(page)


def test_after_a_restart_of_the_server_no_row_is_lost_or_doubled(own: Site, visit: Visit) -> None:
    visit.expected = (
        "ERR_CONNECTION_REFUSED",
        "ERR_INCOMPLETE",
        "ERR_EMPTY_RESPONSE",
        "ERR_CONNECTION_RESET",
        "Failed to fetch",
    )
    page = visit.page
    first = own.run("slow", name="one")
    page.goto(f"{own.url}/runs")
    expect(page.locator(f"tr[data-key={first}]")).to_contain_text("until told")
    keep(page)
    own.kill()
    expect(page.locator("#live")).to_have_text("reconnecting")
    own.tell("one")
    own.start()
    second = own.run("steps", count=2, task="Begun after the restart")
    # The page comes back by itself, with what happened while it was away.
    expect(page.locator("#live")).to_have_text("live")
    expect(page.locator(f"tr[data-key={second}]")).to_contain_text("completed")
    expect(page.locator(f"tr[data-key={first}]")).to_contain_text("completed")
    third = own.run("steps", count=1, task="And one more")
    expect(page.locator(f"tr[data-key={third}]")).to_contain_text("completed")
    assert listed(page) == [third, second, first]
    assert is_kept(page)


def test_many_changes_at_once_leave_the_page_as_the_server_has_it(site: Site, page: Page) -> None:
    page.goto(f"{site.url}/runs")
    keep(page)
    started = [site.run("steps", count=4, task=f"Number {n}") for n in range(30)]
    for run in started:
        site.until(run, "completed")
    for run in started:
        expect(page.locator(f"tr[data-key={run}]")).to_contain_text("completed")
    shown = listed(page)
    assert shown == [found["id"] for found in site.ask("/runs.json")["runs"]]
    assert len(set(shown)) == len(shown)
    assert is_kept(page)


def test_a_chosen_run_stays_chosen_while_the_list_changes(site: Site, page: Page) -> None:
    run = site.run("slow", name="fourth")
    page.goto(f"{site.url}/runs")
    page.get_by_label(f"Choose {run}").check()
    other = site.run("steps", count=1, task="Another")
    expect(page.locator(f"tr[data-key={other}]")).to_contain_text("completed")
    expect(page.get_by_label(f"Choose {run}")).to_be_checked()
    site.tell("fourth")


def last_event(site: Site, run: str) -> int:
    events = site.ask(f"/runs/{run}/events.json")
    return int(events["log"])


def fetched(visit: Visit, run: str) -> int:
    """How often the run's page was asked for."""
    return sum(1 for url in visit.asked if url.endswith(f"/runs/{run}"))


def test_a_call_that_ends_in_another_process_is_seen_without_an_event(
    apart: Site, page: Page
) -> None:
    run = apart.run("thinking", name="answer")
    until(lambda: apart.ask(f"/api/runs/{run}")["calls"], "the call")
    page.goto(f"{apart.url}/runs/{run}")
    calls = page.get_by_label("Model calls")
    expect(calls.locator(".s-started")).to_have_count(1)
    expect(page.locator("#live")).to_have_text("live")
    keep(page)
    before = last_event(apart, run)
    apart.tell("answer")
    expect(calls.locator(".s-completed")).to_have_count(1)
    expect(page.locator("#head")).to_contain_text("tokens")
    assert last_event(apart, run) == before
    assert is_kept(page)
    apart.tell("answer-step")
    expect(page.locator("#head")).to_contain_text("completed")


def test_a_call_that_ends_is_seen_in_the_list_and_among_the_models(
    apart: Site, visiting: Callable[..., Visit]
) -> None:
    run = apart.run("thinking", name="list")
    until(lambda: apart.ask(f"/api/runs/{run}")["calls"], "the call")
    listed, models = visiting().page, visiting().page
    listed.goto(f"{apart.url}/runs")
    models.goto(f"{apart.url}/models")
    tokens = listed.locator(f"tr[data-key={run}] .c-tok")
    expect(tokens).to_have_text("")
    expect(models.locator("#models")).to_contain_text("(1 now)")
    for page in (listed, models):
        expect(page.locator("#live")).to_have_text("live")
        keep(page)
    before = last_event(apart, run)
    apart.tell("list")
    expect(tokens).not_to_have_text("")
    expect(models.locator("#models")).not_to_contain_text("(1 now)")
    assert last_event(apart, run) == before
    assert is_kept(listed) and is_kept(models)
    apart.tell("list-step")
    apart.until(run, "completed")


def test_a_command_that_ends_is_seen_within_its_step(apart: Site, page: Page) -> None:
    run = apart.run("commanding", name="command")
    until(lambda: apart.ask(f"/api/runs/{run}")["commands"], "the command")
    page.goto(f"{apart.url}/runs/{run}")
    box = page.get_by_label("Sandbox", exact=True)
    expect(box).to_contain_text("running")
    expect(page.locator("#live")).to_have_text("live")
    keep(page)
    before = last_event(apart, run)
    apart.tell("command")
    expect(box).to_contain_text("signal")
    assert last_event(apart, run) == before
    assert is_kept(page)
    apart.tell("command-step")
    apart.until(run, "completed")


def test_a_busy_store_leaves_the_page_of_a_quiet_run_alone(apart: Site, visit: Visit) -> None:
    quiet = apart.run("slow", name="quiet")
    apart.until(quiet, "running")
    page = visit.page
    page.goto(f"{apart.url}/runs/{quiet}")
    expect(page.locator("tbody tr[data-key]")).to_have_count(2)
    expect(page.locator("#live")).to_have_text("live")
    before = fetched(visit, quiet)
    for number in range(5):
        apart.tell(f"busy{number}")
        apart.tell(f"busy{number}-step")
        apart.until(apart.run("thinking", name=f"busy{number}"), "completed")
    assert fetched(visit, quiet) == before
    apart.tell("quiet")
    expect(page.locator("#head")).to_contain_text("completed")
    assert fetched(visit, quiet) > before


def test_what_is_seen_after_the_end_is_what_was_recorded_last(apart: Site, page: Page) -> None:
    apart.tell("end")
    run = apart.run("commanding", name="end")
    until(lambda: apart.ask(f"/api/runs/{run}")["commands"], "the command")
    page.goto(f"{apart.url}/runs/{run}")
    keep(page)
    apart.tell("end-step")
    expect(page.locator("#head")).to_contain_text("completed")
    expect(page.locator("#live")).to_have_text("")
    expect(page.get_by_label("Sandbox", exact=True)).to_contain_text("signal")
    assert is_kept(page)


def test_the_page_of_a_call_shows_its_answer_when_it_comes(apart: Site, page: Page) -> None:
    run = apart.run("thinking", name="spoken")
    (call,) = until(lambda: apart.ask(f"/api/runs/{run}")["calls"], "the call")
    page.goto(f"{apart.url}/calls/{call['id']}")
    expect(page.locator("#call")).to_contain_text("is still to come")
    expect(page.locator("#live")).to_have_text("live")
    keep(page)
    apart.tell("spoken")
    expect(page.locator("#call")).to_contain_text("said of spoken")
    expect(page.locator("#live")).to_have_text("")
    assert is_kept(page)
    apart.tell("spoken-step")
    apart.until(run, "completed")
