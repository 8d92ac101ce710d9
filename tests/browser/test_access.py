"""The page for everyone: by keyboard alone, by screen reader, on a phone, in the dark."""

import json
from typing import Any

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.browser.conftest import OpenVisit
from tests.browser.visit import File, Visit

DESKTOP = {"viewport": {"width": 1280, "height": 900}}
PHONE = {
    "viewport": {"width": 390, "height": 844},
    "device_scale_factor": 2,
    "is_mobile": True,
    "has_touch": True,
}
SMALLEST = {"viewport": {"width": 320, "height": 640}}
DARK = {"color_scheme": "dark"}


def violations(visit: Visit) -> list[str]:
    """What axe-core finds, whatever its weight: identifier and the elements."""
    found: list[dict[str, Any]] = Axe().run(visit.page).response["violations"]
    return [f"{item['id']}: {[node['target'] for node in item['nodes']]}" for item in found]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("screen", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_axe_finds_nothing_wrong_anywhere(
    open_visit: OpenVisit, yin_yang: File, screen: dict[str, object], scheme: str
) -> None:
    visit = open_visit(**screen, color_scheme=scheme)
    visit.until_loaded()
    assert violations(visit) == []
    visit.pick(yin_yang, File("bad", b"bad"))
    visit.until_done()
    expect(visit.one(".thumbnail[data-state=failed]")).to_have_count(1)
    assert violations(visit) == []
    visit.one("#show-codes").click()
    visit.until("#patch")
    visit.one("#key-toggle").click()
    assert violations(visit) == []
    visit.one(".thumbnail[data-state=failed]").click()
    visit.until_done("failed")
    assert violations(visit) == []
    visit.complaints.clear()  # about the bad one


def test_axe_finds_nothing_wrong_with_the_camera(visit: Visit) -> None:
    visit.one("#camera").click()
    visit.until("#camera-dialog")
    expect(visit.one("#shoot")).to_be_enabled()
    assert violations(visit) == []
    visit.page.keyboard.press("Escape")
    expect(visit.one("#camera-dialog")).to_be_hidden()
    expect(visit.one("#camera")).to_be_focused()


def test_axe_does_find_what_is_wrong(visit: Visit) -> None:
    visit.page.evaluate("document.documentElement.removeAttribute('lang')")
    visit.page.evaluate("document.querySelector('.drop-words').style.color = '#eee'")
    assert [line.partition(":")[0] for line in violations(visit)] == [
        "color-contrast",
        "html-has-lang",
    ]


def test_everything_can_be_done_by_the_keyboard(visit: Visit) -> None:
    tab_to(visit, "[data-example=yin_yang]")
    visit.page.keyboard.press("Enter")
    visit.until_done()
    second = visit.labels()[1]
    tab_to(visit, ".label >> nth=1")
    visit.page.keyboard.press("Enter")
    visit.until(f'#heat[aria-label="Heat map of {second}"]')
    # The list was drawn again, and nobody lost the place.
    expect(visit.one(".label >> nth=1")).to_be_focused()
    tab_to(visit, "#why-not")
    visit.page.keyboard.press("Space")
    visit.until(f'#heat[aria-label="Heat map of yin yang against {second}"]')
    tab_to(visit, "#strength")
    before = visit.seen()
    visit.page.keyboard.press("Home")
    assert np.abs(visit.seen().astype(int) - before).max() > 20
    tab_to(visit, "#show-codes")
    visit.page.keyboard.press("Enter")
    visit.until("#patch")
    tab_to(visit, "#stage")
    place = visit.one("#patch").get_attribute("style")
    visit.page.keyboard.press("ArrowRight")
    expect(visit.one("#patch")).not_to_have_attribute("style", place or "")


def tab_to(visit: Visit, selector: str) -> None:
    """Press Tab until an element has the focus, and see that this is visible."""
    target = visit.one(selector)
    for _ in range(60):
        if target.evaluate("element => element === document.activeElement"):
            outline = target.evaluate("element => getComputedStyle(element).outlineStyle")
            assert outline != "none"
            return
        visit.page.keyboard.press("Tab")
    pytest.fail(f"Tab never comes to {selector}")


def test_a_screen_reader_is_told_the_result(visit: Visit, stop_sign: File) -> None:
    visit.pick(stop_sign)
    visit.until_done()
    expect(visit.one("[role=status]")).to_contain_text("stop sign")


def test_the_picker_is_reached_by_a_button_with_a_name(visit: Visit) -> None:
    expect(visit.page.get_by_role("button", name="Choose images")).to_be_visible()
    expect(visit.page.get_by_role("main")).to_be_visible()
    expect(visit.page.get_by_role("slider", include_hidden=True)).to_have_count(1)


def test_the_dark_page_is_dark(open_visit: OpenVisit) -> None:
    visit = open_visit(**DESKTOP, **DARK)
    visit.show_example("stop_sign")
    background = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
    levels = json.loads(str(background).replace("rgb(", "[").replace(")", "]"))
    assert max(levels) < 40
    visit.screenshot("dark")


@pytest.mark.parametrize("screen", [PHONE, SMALLEST], ids=["phone", "smallest"])
def test_a_narrow_screen_needs_no_scrolling_sideways(
    open_visit: OpenVisit, yin_yang: File, stop_sign: File, screen: dict[str, object]
) -> None:
    visit = open_visit(**screen)
    visit.until_loaded()
    assert_fits(visit)
    visit.pick(yin_yang, stop_sign)
    expect(visit.one(".thumbnail[data-state=done]")).to_have_count(2)
    assert_fits(visit)
    visit.screenshot(f"phone_{visit.page.evaluate('innerWidth')}")
    visit.one("#show-codes").click()
    visit.until("#patch")
    assert_fits(visit)


def assert_fits(visit: Visit) -> None:
    too_wide = """() => Array.from(document.querySelectorAll("body *"))
      .filter(element => !element.closest("#thumbnails, .visually-hidden, .skip"))
      .filter(element => element.getBoundingClientRect().right > innerWidth + 1)
      .map(element => element.outerHTML.slice(0, 80))"""
    assert visit.page.evaluate(too_wide) == []
    assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
