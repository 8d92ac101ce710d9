"""A browser, a service with the embedded models, and visits that must leave nothing behind."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser.visit import SCREENSHOTS, File, Visit
from tests.support.processes import ROOT, Server

OpenVisit = Callable[..., Visit]

# A camera that shows moving shapes, and permission for it.
FAKE_CAMERA = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's Chromium by its path: Playwright's own download is not needed."""
    chromium = shutil.which("chromium")
    assert chromium, "Debian's package chromium is missing: apt-get install chromium"
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=[*FAKE_CAMERA])
        yield running
        running.close()


@pytest.fixture(scope="session")
def embedded() -> Iterator[Server]:
    """The service as `make serve` starts it, on a port that the system chose."""
    with Server() as running:
        yield running


@pytest.fixture
def open_visit(browser: Browser, embedded: Server) -> Iterator[OpenVisit]:
    """Opens pages, each in a profile of its own, with options of `Browser.new_context`.

    When the test has ended, none of them may have complained, or have asked another host
    for anything. A test that provokes complaints takes them out of `complaints`.
    """
    visits: list[Visit] = []

    def visit(url: str = embedded.url, **options: Any) -> Visit:
        context = browser.new_context(**options)
        visits.append(Visit(context.new_page(), url))
        visits[-1].open()
        return visits[-1]

    yield visit
    for ended in visits:
        ended.page.context.close()
    assert [text for ended in visits for text in ended.complaints] == []
    inside = ("blob:", "data:")
    foreign = [
        url
        for ended in visits
        for url in ended.requests
        if not url.startswith((f"{ended.url}/", *inside))
    ]
    assert foreign == []


@pytest.fixture
def visit(open_visit: OpenVisit) -> Visit:
    """The page, open, with the card of its model."""
    opened = open_visit()
    opened.until_loaded()
    return opened


def _example(name: str) -> File:
    return File(f"my {name}.png", (ROOT / "service" / "examples" / f"{name}.png").read_bytes())


@pytest.fixture(scope="session")
def yin_yang() -> File:
    """An image that the embedded model knows."""
    return _example("yin_yang")


@pytest.fixture(scope="session")
def stop_sign() -> File:
    """Another one."""
    return _example("stop_sign")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say where the screenshots are."""
    found = sorted(Path(SCREENSHOTS).glob("*.png"))
    if found:
        terminalreporter.section("screenshots, to be looked at (not under version control)")
        for file in found:
            terminalreporter.line(str(file))
