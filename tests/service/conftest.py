"""A client of the server that all tests share, and versions to publish."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support import publishing
from tests.support.overload import ONE_WORKER
from tests.support.processes import Server


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    """A client of the running server."""
    with httpx.Client(base_url=server.url, verify=False, timeout=60) as connected:
        yield connected


@pytest.fixture(scope="session")
def small_server(models: Path) -> Iterator[Server]:
    """One pinned worker and a queue for one; a test that stops the worker lets it go on."""
    with Server("--models", str(models), *ONE_WORKER, "--pin", "always") as running:
        yield running


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Versions to publish; read only."""
    folder = tmp_path_factory.mktemp("shelf")
    publishing.fill_shelf(folder)
    return folder


@pytest.fixture
def own_repository(shelf: Path, tmp_path: Path) -> Path:
    """Version 1, for a test that starts its own server or pool."""
    publishing.publish(shelf / "tiny" / "1", tmp_path)
    return tmp_path
