"""The pages in a real browser: how they lie on the screen, the keys, and that hostile texts do nothing there."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from .conftest import ORDINARY
from .page_client import Viewer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
# What follows a click or a key comes when the browser gets to it: expect() looks until it is so.
expect = api.expect
pytestmark = pytest.mark.browser
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WIDTHS = (360, 800, 1440)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine (Debian: apt install chromium)")
    with api.sync_playwright() as playwright:
        # Its own sandbox needs a user other than root; what it opens here is ours.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, viewer: Viewer, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page that fails the test on any error, any refused content, and any request to elsewhere."""
    options: dict[str, Any] = getattr(request, "param", {})
    context = browser.new_context(base_url=viewer.url, **options)
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("request", lambda asked: wrong.append(asked.url) if not asked.url.startswith(viewer.url) else None)
    yield page
    context.close()
    assert wrong == []


ODD_PAGES = [
    *(f"/t/{ORDINARY + number}" for number in range(1, 27)),
    *(f"/t/{ORDINARY + number}/tokens" for number in (1, 3, 4, 6, 8)),
    "/?page=201",
    "/questions?page=26",
    "/question?id=s0",
    f"/diff?a={ORDINARY + 4}&b={ORDINARY + 8}",
    f"/diff?a={ORDINARY + 1}&b={ORDINARY + 6}",
]


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_runs_and_nothing_sticks_out(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    for path in [*ODD_PAGES, "/", "/t/1", "/t/1/tokens", "/questions", "/diff?a=1&b=2"]:
        page.goto(path)
        assert "owned" not in page.title(), path
        for details in page.locator("details").all():
            details.evaluate("element => { element.open = true }")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["/", "/t/1", "/t/1/tokens", "/questions", "/question?id=question-3", "/diff?a=1&b=2"])
def test_texts_stand_out_from_what_is_behind_them(page: Page, path: str, scheme: Any) -> None:
    """The contrast of WCAG's level AA: 4.5 to 1."""
    page.emulate_media(color_scheme=scheme)
    page.goto(path)
    assert page.evaluate(CONTRAST) == []


def test_rows_and_pages_by_keys(page: Page) -> None:
    page.goto("/?outcome=wrong")
    page.keyboard.press("j")
    page.keyboard.press("j")
    second = page.locator("a.open").nth(1).get_attribute("href")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{second}")
    page.keyboard.press("j")
    page.wait_for_url(lambda url: str(second) not in url)
    page.keyboard.press("k")
    page.wait_for_url(f"**{second}")
    page.keyboard.press("t")
    page.wait_for_url("**/tokens?outcome=wrong")
    page.keyboard.press("t")
    page.wait_for_url(f"**{second}")
    page.keyboard.press("u")
    page.wait_for_url("**/?outcome=wrong")
    page.keyboard.press("n")
    page.wait_for_url("**page=2")


def test_search_by_keys(page: Page) -> None:
    page.goto("/?outcome=wrong")
    page.keyboard.press("/")
    page.keyboard.type("question 7:")
    page.keyboard.press("Enter")
    page.wait_for_url("**/?q=question+7*")
    assert "outcome=wrong" in page.url
    expect(page.locator(".chip")).to_have_count(2)


def test_tokens_one_by_one(page: Page) -> None:
    page.goto("/t/1/tokens")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#inspector")).to_have_text(re.compile("^position 0, id "))
    page.keyboard.press("ArrowRight")
    expect(page.locator("#inspector")).to_have_text(re.compile("^position 1, id "))
    page.keyboard.press("Escape")
    expect(page.locator("#inspector")).to_be_hidden()
    page.locator("section .tok").nth(5).click()
    expect(page.locator("#inspector")).to_have_text(re.compile("^position 5, id "))


@pytest.mark.parametrize("page", [{"java_script_enabled": False}], indirect=True)
def test_everything_can_be_reached_without_javascript(page: Page) -> None:
    page.goto("/questions?kind=mixed")
    page.locator("a.open").first.click()
    page.get_by_role("button", name="Compare A with B").click()
    expect(page.locator("mark.b")).not_to_have_count(0)
    page.get_by_role("link", name="Trajectory").first.click()
    page.get_by_role("link", name="Tokens", exact=True).click()
    page.get_by_text("Prompt", exact=True).click()
    expect(page.locator("details.prompt .tok").first).to_be_visible()
    page.goto("/")
    page.get_by_role("link", name="wrong").first.click()
    page.get_by_role("searchbox").fill("words")
    page.get_by_role("button", name="Search").click()
    page.wait_for_url("**/?q=words*")
    assert "outcome=wrong" in page.url
    expect(page.locator("a.open")).to_have_count(50)


# Every element with text of its own, against the first background behind it that is not transparent.
CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (color) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = (color) => { const [r, g, b] = rgba(color).slice(0, 3).map((value) => value / 255)
    .map((value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = (element) => { for (let at = element; at; at = at.parentElement) {
    const color = getComputedStyle(at).backgroundColor; if (rgba(color)[3] > 200) return color; } return "white"; };
  const poor = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !element.checkVisibility() || element.closest(".off, :disabled, .nl, svg")) continue;
    const [a, b] = [light(getComputedStyle(element).color), light(behind(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push(`${element.tagName}.${element.className} ${ratio.toFixed(2)}`);
  }
  return [...new Set(poor)];
}"""
