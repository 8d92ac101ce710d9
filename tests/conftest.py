"""Data, models and servers that tests share, each made once."""

import gc
import os
import signal
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import settings

from service.examples import shapes
from tests.support import bundles, processes
from tests.support.training import SMALL
from trainer.cli import main

# Properties are tried with the same 50 examples in every run, and on a busy machine too; new
# ones are drawn by `pytest --hypothesis-profile explore`, many of them by `make hostile`.
settings.register_profile("explore", deadline=None)
settings.register_profile("hostile", deadline=None, max_examples=500)
settings.register_profile("fixed", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("fixed")


# Tests of the images need root and Debian, those of the page a browser; `make image-test` and
# `make test-browser` name their folders.
collect_ignore = ["browser", "image"]

# A shell that starts the tests in the background has SIGINT ignored, which all processes
# below would inherit: those that a test interrupts would never end.
signal.signal(signal.SIGINT, signal.default_int_handler)


# The files that take longest, from half a minute to four seconds: they begin first, so that no
# process is left with a long one at the end. Those of the service come before those that train,
# whose kernels `make test` compiles meanwhile, and those that mostly wait before all others.
LONGEST = (
    "tests/service/http/test_protocol.py",
    "tests/service/client/test_client.py",
    "tests/service/test_lifecycle.py",
    "tests/service/front_ends/test_front_ends.py",
    "tests/service/test_reload.py",
    "tests/service/pool/test_worker_process.py",
    "tests/service/pool/test_pool.py",
    "tests/service/test_cli.py",
    "tests/service/routes/test_schemathesis.py",
    "tests/service/engine/test_portable.py",
    "tests/service/engine/test_compiling.py",
    "tests/service/observability/test_logs.py",
    "tests/test_readme.py",
    "tests/trainer/bench/test_command.py",
    "tests/trainer/cluster/test_fit.py",
    "tests/trainer/test_cli.py",
    "tests/test_embedded_model.py",
    "tests/trainer/bench/test_service_bench.py",
    "tests/trainer/predict/test_predict.py",
    "tests/hostile/test_corpus.py",
    "tests/service/loadtest/test_cli.py",
    "tests/trainer/cluster/test_subtrees.py",
    "tests/trainer/test_bursts.py",
    "tests/service/observability/test_tracing.py",
    "tests/test_packaging.py",
    "tests/trainer/reproduce/test_accuracy.py",
    "tests/service/routes/test_v2_hostile.py",
    "tests/trainer/data/test_scratch.py",
    "tests/trainer/test_estimator.py",
    "tests/service/pool/test_dispatching.py",
    "tests/trainer/exact/test_baseline.py",
    "tests/service/test_draining.py",
    "tests/trainer/predict/test_cluster.py",
    "tests/test_architecture.py",
    "tests/service/loadtest/chaos/test_chaos.py",
    "tests/trainer/learn/test_algorithm2.py",
)


class _Clock:
    """The time of day, which can be put forward."""

    def __init__(self) -> None:
        self._time, self._time_ns, self._ahead = time.time, time.time_ns, 0

    def time(self) -> float:
        return self._time() + self._ahead

    def time_ns(self) -> int:
        return self._time_ns() + self._ahead * 10**9

    @contextmanager
    def ahead(self, seconds: int) -> Iterator[None]:
        """Whoever keeps the functions of that time has the real time again afterwards."""
        self._ahead = seconds
        time.time, time.time_ns = self.time, self.time_ns
        try:
            yield
        finally:
            self._ahead = 0
            time.time, time.time_ns = self._time, self._time_ns


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Every other process of pytest-xdist collects an hour later.

    xdist refuses to run when its processes have collected different tests, which would
    happen by luck if the id of a test depended on the clock; so it happens always.
    """
    number = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    with _Clock().ahead(3600 * (int(number) % 2)), _without_garbage():
        return (yield)


@contextmanager
def _without_garbage() -> Iterator[None]:
    """What is imported and collected stays, so nobody needs to look for garbage among it."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the files; the tests of a file keep their order."""
    places = {file: place for place, file in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(places)))


@pytest.fixture(scope="session", autouse=True)
def _own_caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests find no pooled vectors of the user's, and leave none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("caches")))
        yield


@pytest.fixture(scope="session")
def drawn_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of four drawn classes; read only."""
    return shapes.write_dataset(tmp_path_factory.mktemp("images") / "drawn")


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


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models, one of them in two versions, and a bundle that is being written.

    Blank images are not known to the second version of `apples`.
    """
    repository = tmp_path_factory.mktemp("models")
    bundles.write_model(repository, "apples", 1, seed=1)
    bundles.write_model(repository, "apples", 2, seed=2, config=bundles.WITH_THRESHOLD)
    bundles.write_model(repository, "tiny", 1, seed=3)
    (repository / "tiny" / ".2-staging").mkdir()
    return repository


@pytest.fixture(scope="session")
def server(models: Path) -> Iterator[processes.Server]:
    """A server with limits that are small enough to run into."""
    limits = ("--max-body-bytes", "1000000", "--max-images", "4", "--max-descriptors", "100")
    with processes.Server("--models", str(models), *limits) as running:
        yield running
