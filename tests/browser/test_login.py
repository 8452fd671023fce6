"""The login, as people see it: in the inspector's look, and the way to the page they wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from .conftest import Site, Visit
from .test_screens import serious

TOKEN = "the token of the browser tests"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("guarded"), worker=False, token=TOKEN)
    made.start()
    yield made
    made.kill()


@pytest.mark.parametrize("scripted", [True, False])
def test_who_is_not_logged_in_comes_to_the_page_they_wanted(
    guarded: Site, visiting: Callable[..., Visit], scripted: bool
) -> None:
    visit = visiting(java_script_enabled=scripted)
    visit.expected = ("401 (Unauthorized)",)
    page = visit.page
    page.goto(f"{guarded.url}/models?since=7d")
    field = page.get_by_label("The server’s token")
    expect(field).to_be_focused()
    field.fill("not it")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_have_text("That is not the token.")
    field.fill(TOKEN)
    page.get_by_role("button", name="Log in").click()
    expect(page).to_have_url(f"{guarded.url}/models?since=7d")
    expect(page.locator("h1")).to_have_text("Models")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nobody_is_shut_out_of_the_login(
    guarded: Site, visiting: Callable[..., Visit], scheme: str
) -> None:
    visit = visiting(color_scheme=scheme, bypass_csp=True)
    visit.expected = ("401 (Unauthorized)",)
    visit.page.goto(f"{guarded.url}/login?token=wrong")
    expect(visit.page.get_by_role("alert")).to_be_visible()
    assert serious(Axe().run(visit.page)) == []


def test_the_login_is_styled_and_fits_a_phone(
    guarded: Site, visiting: Callable[..., Visit]
) -> None:
    visit = visiting(viewport={"width": 390, "height": 844})
    page = visit.page
    page.goto(f"{guarded.url}/login")
    card = page.locator(".ask")
    assert card.evaluate("e => getComputedStyle(e).borderTopWidth") == "1px"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_form_sent_from_a_forgotten_page_ends_on_a_page_that_says_so(
    guarded: Site, visit: Visit
) -> None:
    visit.expected = ("401 (Unauthorized)", "403 (Forbidden)")
    page = visit.page
    page.goto(f"{guarded.url}/login?token={TOKEN.replace(' ', '%20')}&next=/runs/cancel")
    page.context.clear_cookies()
    page.evaluate(
        "const form = document.createElement('form'); form.method = 'post';"
        " form.action = '/runs/cancel'; document.body.append(form); form.submit()"
    )
    expect(page.locator("h1")).to_have_text("Log in first")
    expect(page.get_by_role("link", name="Log in")).to_be_visible()
    expect(page.get_by_role("link", name="Sandboxes")).to_have_count(0)
