"""What goes wrong is told as a sentence with what to do, and can be put right."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import OpenVisit
from tests.browser.visit import File, Visit
from tests.support.overload import ONE_WORKER, fill, held
from tests.support.processes import Server, environment

KEY = "a-key-of-the-page-0123"


@pytest.fixture(scope="module")
def small(models: Path) -> Iterator[Server]:
    """One worker, a queue for one, and bodies of a megabyte."""
    limits = (*ONE_WORKER, "--max-body-bytes", "1000000")
    with Server("--models", str(models), *limits) as running:
        yield running


@pytest.fixture
def locked() -> Iterator[Server]:
    """A service that asks for a key."""
    with Server(env=environment(LEAFCODE_API_KEYS=KEY)) as running:
        yield running


def forgive(visit: Visit, status: int) -> None:
    """Chromium complains about every answer that is an error; these are wanted."""
    assert visit.complaints
    assert all(f"status of {status}" in text for text in visit.complaints)
    visit.complaints.clear()


def test_a_file_that_is_no_image_is_told_so_beside_good_ones(
    visit: Visit, yin_yang: File, stop_sign: File
) -> None:
    visit.pick(File("notes.txt", b"hello", "text/plain"), yin_yang, stop_sign)
    visit.until_done("failed")
    expect(visit.one("#failure-title")).to_have_text("This is not an image")
    expect(visit.one("#failure-text")).to_contain_text("Save it as JPEG, PNG, WebP")
    expect(visit.one("#retry")).to_be_hidden()
    expect(visit.one(".thumbnail[data-state=done]")).to_have_count(2)
    visit.screenshot("bad_file")
    visit.one(".thumbnail").nth(1).click()
    visit.until_done()
    assert visit.labels()[0] == "yin yang"
    forgive(visit, 415)


def test_a_json_file_is_not_taken_for_a_request(visit: Visit) -> None:
    visit.pick(File("request.json", b'{"image": ""}', "application/json"))
    visit.until_done("failed")
    expect(visit.one("#failure-title")).to_have_text("This is not an image")
    forgive(visit, 415)


def test_an_image_over_the_limit_is_not_even_sent(open_visit: OpenVisit, small: Server) -> None:
    visit = open_visit(small.url)
    visit.until_loaded()
    visit.pick(File("huge.png", bytes(1_200_000)))
    visit.until_done("failed")
    expect(visit.one("#failure-text")).to_contain_text("It has 1.2 MB, at most 1.0 MB are read")
    assert [url for url in visit.requests if "classify" in url] == []


def test_an_overloaded_service_is_asked_again_by_a_button(
    open_visit: OpenVisit, small: Server, yin_yang: File
) -> None:
    visit = open_visit(small.url)
    visit.until_loaded()
    with ThreadPoolExecutor(1) as clients:
        with held(small):
            waiting = fill(small, clients)
            visit.pick(yin_yang)
            visit.until_done("failed")
            expect(visit.one("#failure-title")).to_have_text("The service is busy")
            expect(visit.one("#failure-text")).to_contain_text("Try again in 1 second.")
            visit.screenshot("overload")
        assert waiting.result().status_code == 200
    visit.one("#retry").click()
    visit.until_done()
    forgive(visit, 429)


def test_a_key_is_asked_for_and_kept_nowhere(
    open_visit: OpenVisit, locked: Server, yin_yang: File
) -> None:
    visit = open_visit(locked.url)
    visit.until("#key-section")
    expect(visit.one("#key")).to_be_focused()
    visit.pick(yin_yang)
    enter(visit, "a-wrong-key-9876543210")
    expect(visit.one("#message")).to_contain_text("The key is not known. Enter a key that")
    visit.screenshot("wrong_key")
    enter(visit, KEY)
    visit.until_done()
    assert visit.labels()[0] == "yin yang"
    expect(visit.one("#message")).to_be_hidden()
    expect(visit.one("#key-section")).to_be_hidden()
    expect(visit.one("#commands")).to_contain_text("$LEAFCODE_KEY")
    assert kept(visit) == ""
    forgive(visit, 401)


def enter(visit: Visit, key: str) -> None:
    visit.one("#key").fill(key)
    visit.one("#key").press("Enter")


def kept(visit: Visit) -> str:
    """Everything that would outlive the page, or that somebody could read on it."""
    assert KEY not in visit.page.content()
    assert KEY not in visit.page.url
    stored = visit.page.evaluate("JSON.stringify([localStorage, sessionStorage]) + document.cookie")
    return str(stored).replace("[{},{}]", "")


def test_a_service_that_has_gone_is_told_so(open_visit: OpenVisit, yin_yang: File) -> None:
    with Server() as leaving:
        visit = open_visit(leaving.url)
        visit.until_loaded()
    visit.pick(yin_yang)
    visit.until_done("failed")
    expect(visit.one("#failure-title")).to_have_text("The service does not answer")
    expect(visit.one("#failure-text")).to_contain_text("make serve")
    expect(visit.one("#state")).to_have_attribute("data-kind", "away")
    assert all("ERR_CONNECTION" in text for text in visit.complaints)
    visit.complaints.clear()
