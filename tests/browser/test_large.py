"""Runs that are larger than life stay usable."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from seeding import Seed

from .conftest import Demo, Visit

STEPS = 5000
MEGABYTES = 50


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    site = Demo(tmp_path_factory.mktemp("large"), worker=False)
    seed = Seed(site.store)
    long = seed.run("crawl", 9000, {"pages": STEPS})
    long.begin()
    for number in range(STEPS):
        if number == 4321:
            long.step(
                "fetch",
                {"page": number},
                None,
                0.5,
                error=("TimeoutError", "page 4321 is silent", ""),
            )
        else:
            long.step("fetch", {"page": number}, {"bytes": number}, 0.5)
    long.fail("TimeoutError", "page 4321 is silent")
    heavy = seed.run("export", 100, {"table": "orders"})
    heavy.begin()
    heavy.step("dump", {"table": "orders"}, {"rows": "0123456789" * (MEGABYTES * 100_000)}, 3.0)
    heavy.complete("done")
    site.ids = {"long": long.id, "heavy": heavy.id}
    seed.close()
    site.start()
    yield site
    site.kill()
    seed.let_go()


def body(site: Demo, path: str) -> bytes:
    request = urllib.request.Request(site.url + path, headers={"accept": "text/html"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
        request, timeout=60
    ) as answer:
        return answer.read()


def test_a_run_of_five_thousand_steps_opens_on_the_one_that_failed(
    large: Demo, visit: Visit
) -> None:
    page = visit.page
    page.goto(f"{large.url}/runs/{large.ids['long']}")
    expect(page.locator("tr.chosen")).to_be_visible()
    expect(page.get_by_role("complementary", name="Selected step")).to_contain_text(
        "page 4321 is silent"
    )
    expect(page.locator(".pager")).to_contain_text("4,201–4,500 of 5,000 steps")
    expect(page.get_by_role("img", name="5,000 steps over time")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(300)
    page.get_by_role("link", name="First", exact=True).click()
    expect(page.locator(".pager")).to_contain_text("1–300 of 5,000 steps")
    page.locator("tbody tr[data-key]").nth(7).get_by_role("link").click()
    expect(page.get_by_role("complementary", name="Selected step")).to_contain_text("0/7")
    assert len(body(large, f"/runs/{large.ids['long']}")) < 1_000_000


@pytest.mark.parametrize("view", ["transcript", "events"])
def test_the_other_views_of_a_long_run_come_a_page_at_a_time(
    large: Demo, visit: Visit, view: str
) -> None:
    page = visit.page
    page.goto(f"{large.url}/runs/{large.ids['long']}/{view}")
    expect(page.locator(".pager")).to_contain_text(
        f"of {'5,000 steps' if view == 'transcript' else '10,0'}"
    )
    page.get_by_role("link", name="Last", exact=True).click()
    expect(page.locator(".pager")).to_contain_text("Previous")
    assert len(body(large, f"/runs/{large.ids['long']}/{view}")) < 1_000_000


def test_an_output_of_fifty_megabytes_is_cut_with_a_link_to_the_whole(
    large: Demo, visit: Visit
) -> None:
    page = visit.page
    page.goto(f"{large.url}/runs/{large.ids['heavy']}")
    link = page.get_by_role("link", name="The whole output, 50.0 MB")
    expect(link).to_be_visible()
    assert len(body(large, f"/runs/{large.ids['heavy']}")) < 200_000
    assert len(body(large, f"/runs/{large.ids['heavy']}/transcript")) < 200_000
    place = link.get_attribute("href")
    assert place is not None
    assert len(body(large, place)) == MEGABYTES * 1_000_000 + len('{"rows": ""}')
