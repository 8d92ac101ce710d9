"""A data set that we draw ourselves and a bundle trained on it, once for all tests."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support import drawings, processes
from tests.support.training import SMALL
from trainer.cli import main

# Properties are tried with the same examples in every run, and on a busy machine too; new
# ones are drawn by `pytest --hypothesis-profile explore`.
settings.register_profile("explore", deadline=None)
settings.register_profile("fixed", deadline=None, derandomize=True)
settings.load_profile("fixed")


# A shell that starts the tests in the background has SIGINT ignored, which all processes
# below would inherit: those that a test interrupts would never end.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def drawn_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of four drawn classes; read only."""
    return drawings.write_dataset(tmp_path_factory.mktemp("images") / "drawn")


@pytest.fixture(scope="session")
def trained_bundle(drawn_images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The version folder of a bundle that `trainer fit` made from eight images a class."""
    out = tmp_path_factory.mktemp("trained") / "drawn"
    assert (
        main(["fit", str(drawn_images), "--out", str(out), *SMALL, "--train-per-class", "8"]) == 0
    )
    return out / "1"


@pytest.fixture(scope="session")
def trained_server(trained_bundle: Path) -> Iterator[processes.Server]:
    """A running server of the trained bundle."""
    with processes.Server("--models", str(trained_bundle.parents[1])) as running:
        yield running
