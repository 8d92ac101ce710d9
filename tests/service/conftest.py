"""One model repository and one running server for all tests of the service."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support import bundles, publishing
from tests.support.processes import Server


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models, one of them in two versions, and a bundle that is being written."""
    repository = tmp_path_factory.mktemp("models")
    bundles.write_model(repository, "apples", 1, seed=1)
    bundles.write_model(repository, "apples", 2, seed=2)
    bundles.write_model(repository, "tiny", 1, seed=3)
    (repository / "tiny" / ".2-staging").mkdir()
    return repository


@pytest.fixture(scope="session")
def server(models: Path) -> Iterator[Server]:
    """A server with limits that are small enough to run into."""
    limits = ("--max-body-bytes", "1000000", "--max-images", "4", "--max-descriptors", "100")
    with Server("--models", str(models), *limits) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    """A client of the running server."""
    with httpx.Client(base_url=server.url, timeout=60) as connected:
        yield connected


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
