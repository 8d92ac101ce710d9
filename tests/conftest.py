"""A data set that we draw ourselves and a bundle trained on it, once for all tests."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests import drawings
from tests.service import processes
from tests.support.training import SMALL
from trainer.cli import main

# The same examples in every run, however busy the machine is: a failure is always one's own.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

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
