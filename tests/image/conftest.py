"""One running service for tests that only ask, and the figures that are printed at the end."""

from collections.abc import Iterator

import pytest

from tests.image.containers import Container

FIGURES = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def container() -> Iterator[Container]:
    """The image as `docker run` has it, without options."""
    with Container() as running:
        yield running


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> list[str]:
    """Sentences with figures that were seen, printed when all tests have run."""
    return request.config.stash.setdefault(FIGURES, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures."""
    if found := terminalreporter.config.stash.get(FIGURES, []):
        terminalreporter.section("figures of the image")
        for sentence in found:
            terminalreporter.line(sentence)
