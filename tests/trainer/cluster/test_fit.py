"""Whole fits on a real scheduler and real workers: what they give, and what death costs."""

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from service.engine import Bundle
from tests.support import clusters
from tests.support.training import SIZES
from trainer.cli import main
from trainer.cluster import connection, features, sampling, vectors, workplace
from trainer.cluster.connection import connected
from trainer.cluster.features import require_cluster_settings
from trainer.cluster.workplace import ClusterWorkplace
from trainer.config import FitConfig
from trainer.data.dataset import scan
from trainer.errors import ConfigError
from trainer.fit import WorkFiles, train
from trainer.learn import tree

CONFIG = FitConfig(
    recipe="best",
    samples=4000,
    depth=7,
    atoms=96,
    nonzeros=3,
    iterations=3,
    folds=2,
    train_per_class=6,
    mirroring="always",
)


@pytest.fixture(scope="module", autouse=True)
def _small(trained_bundle: Path) -> Iterator[None]:  # noqa: ARG001
    """As many parts and subtrees of few images as there are of many.

    Not of the bundle that tests share, which is trained before.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree, "_PER_SUBTREE", 500)
        patch.setattr(sampling, "_IMAGES", 5)
        patch.setattr(vectors, "_IMAGES", 5)
        patch.setattr(workplace, "_ITEMS", 9)
        yield


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[clusters.Cluster]:
    with clusters.cluster(tmp_path_factory.mktemp("cluster"), n_workers=2) as started:
        yield started


def _fit(address: str, images: Path, files: WorkFiles = WorkFiles()) -> Bundle:  # noqa: B008
    with connected(address, timeout=300) as client:
        place = ClusterWorkplace(client)
        return train(scan(images), CONFIG, "drawn", files, workplace=place).bundle


@contextmanager
def _at(message: str, action: Callable[[], None]) -> Iterator[None]:
    """Do something when a line of the log begins like this, once."""

    class Watching(logging.Handler):
        done = False

        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage().startswith(message) and not self.done:
                self.done = True
                action()

    handler, logger = Watching(), logging.getLogger("trainer")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    assert handler.done


@pytest.fixture(scope="module")
def undisturbed(running: clusters.Cluster, drawn_images: Path, _small: None) -> Bundle:
    return _fit(running.address, drawn_images)


def _assert_same(found: Bundle, expected: Bundle) -> None:
    assert found.manifest.config == expected.manifest.config
    for name, tensor in expected.tensors.items():
        assert found.tensors[name].tobytes() == tensor.tobytes(), name


def test_a_fit_on_a_cluster_is_that_of_one_machine(undisturbed: Bundle, drawn_images: Path) -> None:
    """Trees and tables are equal, and what is made of sums is so to rounding."""
    alone = train(scan(drawn_images), CONFIG, "drawn").bundle
    assert undisturbed.manifest.config == alone.manifest.config
    for name, expected in alone.tensors.items():
        rounding = 0 if "tree" in name or "table" in name else 1e-5 * np.abs(expected).max()
        np.testing.assert_allclose(undisturbed.tensors[name], expected, atol=rounding, err_msg=name)
    for part in ("folds", "test"):
        qualities = [bundle.manifest.quality[part] for bundle in (undisturbed, alone)]
        assert qualities[0]["mean_class_accuracy"] == qualities[1]["mean_class_accuracy"]  # type: ignore[index]
    told, expected_told = (bundle.manifest.provenance for bundle in (undisturbed, alone))
    assert told["relative_errors"] == pytest.approx(expected_told["relative_errors"], rel=1e-6)
    assert told["n_descriptors"] == expected_told["n_descriptors"]
    assert told["mirrored"] is True


def test_an_interrupted_fit_goes_on_from_the_checkpoint_of_the_driver(
    running: clusters.Cluster, undisturbed: Bundle, drawn_images: Path, tmp_path: Path
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), _at("iteration 2/3", interrupt):
        _fit(running.address, drawn_images, WorkFiles(tmp_path))
    assert list(tmp_path.glob("*/iterations.npz"))
    with _at("resuming after iteration 1", lambda: None):
        resumed = _fit(running.address, drawn_images, WorkFiles(tmp_path, resume=True))
    _assert_same(resumed, undisturbed)


def test_a_killed_worker_changes_no_tensor(
    running: clusters.Cluster, undisturbed: Bundle, drawn_images: Path
) -> None:
    """The last one: a worker is left for what comes after."""
    with _at("iteration 1/3", lambda: running.kill_worker(0)):
        found = _fit(running.address, drawn_images)
    _assert_same(found, undisturbed)


def test_the_command_fits_on_processes_of_this_machine(
    drawn_images: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "n_threads", lambda: 1)  # processes, each takes seconds
    out = str(tmp_path / "drawn")
    images = drawn_images.as_uri()  # as from an object store
    command = ["fit", images, "--out", out, "--recipe", "paper", *SIZES, "--no-report"]
    assert main([*command, "--no-cache", "--cluster", "local", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["folds"]["mean_class_accuracy"] > 0.8


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("hash", "tanh"),
        ("groups", 20),
        ("given_groups", "groups.json"),
        ("refinements", 1),
        ("dictionary_update", "ksvd"),
    ],
)
def test_what_needs_one_machine_is_rejected(setting: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"{setting} is {value!r} with --cluster, expected"):
        require_cluster_settings(FitConfig.of({setting: value}))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--cluster", "nonsense"], "nonsense cannot be reached, expected the address"),
        (["--cluster", "local", "--from-bundle", "BUNDLE"], "--from-bundle with --cluster"),
    ],
)
def test_a_command_that_cannot_work_says_so_in_a_sentence(
    trained_bundle: Path,
    drawn_images: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    sentence: str,
) -> None:
    named = [str(trained_bundle) if each == "BUNDLE" else each for each in options]
    command = ["fit", str(drawn_images), "--out", str(tmp_path / "drawn"), "--no-cache"]
    assert main([*command, *named]) in (1, 2)
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "drawn").exists()


def test_settings_that_are_checked_are_settings() -> None:
    assert features._ON_ONE_MACHINE.keys() <= FitConfig.model_fields.keys()
