"""More images than Gram matrices are kept of: the same classifier, by passes over a file."""

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from service.engine import Engine
from service.engine.config import CodesConfig, EngineConfig, ResidualsConfig, ViewConfig
from tests.support.samples import random_bundle
from tests.support.training import SMALL
from trainer import cost, many_images
from trainer.classification import learn_classification
from trainer.cli import main
from trainer.config import FitConfig
from trainer.cost import MOST_ON_GRAMS, FitCost, expected_cost, require_resources
from trainer.data.dataset import LabelledImage
from trainer.errors import DataError
from trainer.features import LearnedFeatures
from trainer.learn.classifier import ClassifierSettings
from trainer.learn.held_out import UNKNOWN
from trainer.many_images import learn_from_many, representative_part

CONFIG = EngineConfig(
    views=(ViewConfig(3, step=4), ViewConfig(2, "colour", step=4, reduction=2)),
    blocks=(CodesConfig(20, 3), ResidualsConfig((1, 0), 5, (2, 1), weight=0.4, view=1)),
    max_side=90,
)
ENGINE = Engine(random_bundle(CONFIG))
SETTINGS = ClassifierSettings("svm", 1.0, folds=4, seed=0, fixed_weights=True)
N_LABELS = 3


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> tuple[LabelledImage, ...]:
    """Noisy versions of three patterns, 20 each, every second one a copy of that before it."""
    folder = tmp_path_factory.mktemp("patterns")
    rng = np.random.default_rng(0)
    patterns = rng.integers(0, 256, (N_LABELS, 8, 8, 3), np.uint8)
    made: list[LabelledImage] = []
    for number in range(60):
        path = folder / f"{number}.png"
        label = number % 6 // 2
        if number % 2:
            path.write_bytes(made[-1].path.read_bytes())
        else:
            pattern = np.asarray(Image.fromarray(patterns[label]).resize((48, 48)), np.float64)
            noise = np.random.default_rng(number).integers(0, 256, (48, 48, 3))
            Image.fromarray((0.5 * pattern + 0.5 * noise).astype(np.uint8)).save(path)
        made.append(LabelledImage(path, label))
    return tuple(made)


def _learned(images: tuple[LabelledImage, ...]) -> LearnedFeatures:
    return LearnedFeatures(ENGINE, images, (), 0, ())


def test_scores_are_those_of_the_classifier_on_gram_matrices(
    images: tuple[LabelledImage, ...], tmp_path: Path
) -> None:
    many = learn_from_many(_learned(images), N_LABELS, SETTINGS, tmp_path)
    few = learn_classification(_learned(images), N_LABELS, SETTINGS)
    assert many.extractor.config == few.extractor.config
    for image in images[::7]:
        pooled = many.extractor.pooled_vector(image.path.read_bytes())
        found, expected = (model.classifier().scores(pooled) for model in (many, few))
        # Passes over a file end before the last digits; scores are around one.
        np.testing.assert_allclose(found, expected, atol=0.08)
    assert list(tmp_path.iterdir()) == []


def test_held_out_images_are_no_copies_of_training_images(
    images: tuple[LabelledImage, ...],
) -> None:
    held_out = learn_from_many(_learned(images), N_LABELS, SETTINGS).fitted.held_out
    assert held_out is not None
    np.testing.assert_array_equal(held_out.places, np.unique(held_out.places))
    assert 10 <= len(held_out.places) <= 20
    assert set(held_out.places) == {place ^ 1 for place in held_out.places}
    np.testing.assert_array_equal(held_out.labels, [images[i].label for i in held_out.places])
    assert held_out.scores.shape == (len(held_out.places), N_LABELS)


def test_mirrored_copies_train_and_are_not_tested(images: tuple[LabelledImage, ...]) -> None:
    plain = learn_from_many(_learned(images), N_LABELS, SETTINGS)
    mirrored = learn_from_many(_learned(images), N_LABELS, SETTINGS, mirrored=True)
    assert (plain.has_copies, mirrored.has_copies) == (False, True)
    assert plain.fitted.held_out is not None
    assert mirrored.fitted.held_out is not None
    np.testing.assert_array_equal(mirrored.fitted.held_out.places, plain.fitted.held_out.places)
    assert np.abs(mirrored.weights - plain.weights).max() > 0.01


def test_images_of_unknown_label_are_learned_from_and_stand_apart(
    images: tuple[LabelledImage, ...],
) -> None:
    """The third pattern is none of two classes."""
    two = tuple(replace(each, label=UNKNOWN if each.label == 2 else each.label) for each in images)
    many = learn_from_many(_learned(two), 2, SETTINGS).fitted.held_out
    few = learn_classification(_learned(two), 2, SETTINGS).fitted
    assert many is not None
    assert few.rejection is not None
    assert set(many.labels) == {0, 1}
    assert {images[place].label for place in many.unknown_places} == {2}
    assert many.unknown_scores.shape == (len(many.unknown_places), 2)
    assert many.unknown_scores.max() < many.scores.max(axis=1).min()
    fitted = learn_from_many(_learned(two), 2, SETTINGS).fitted
    assert fitted.rejection is not None
    assert (fitted.rejection.rejected, fitted.rejection.auroc) == (1.0, 1.0)
    assert fitted.known_threshold == pytest.approx(few.rejection.threshold, abs=0.3)


def test_one_image_of_each_label_is_learned_without_a_test(
    images: tuple[LabelledImage, ...],
) -> None:
    found = learn_from_many(_learned(images[:6:2]), N_LABELS, SETTINGS)
    assert found.fitted.held_out is None
    assert found.fitted.untested == (0, 1, 2)


def test_what_the_settings_leave_open_is_chosen_with_a_part(
    images: tuple[LabelledImage, ...], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    learn_from_many(_learned(images), N_LABELS, SETTINGS)
    assert "are chosen with" not in caplog.text
    settings = replace(SETTINGS, regularisation=None, fixed_weights=False)
    found = learn_from_many(_learned(images), N_LABELS, settings)
    assert "weights and regularisation are chosen with 60 of the images" in caplog.text
    few = learn_classification(_learned(images), N_LABELS, settings)
    assert found.fitted.regularisation == few.fitted.regularisation
    assert found.fitted.block_weights == tuple(w for w in few.fitted.block_weights if w)


@given(st.lists(st.integers(1, 300), min_size=2, max_size=30), st.integers(1, 500))
def test_a_part_has_a_fair_share_of_every_class(sizes: list[int], count: int) -> None:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    part = representative_part(labels, count, 0)
    assert (np.diff(part) > 0).all()
    found = np.bincount(labels[part], minlength=len(sizes))
    shares = count * np.array(sizes) / len(labels)
    assert (found >= np.minimum(sizes, 2)).all()
    assert (np.abs(found - np.clip(shares, np.minimum(sizes, 2), sizes)) <= 0.5).all()


def test_fit_of_many_images_goes_this_road(
    drawn_images: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(cost, "MOST_ON_GRAMS", 10)
    monkeypatch.setattr(many_images, "PART_OF_MANY", 24)
    fit = ["fit", str(drawn_images), "--out", str(tmp_path / "many"), *SMALL]
    assert main([*fit, "--train-per-class", "8", "--mirroring", "always"]) == 0
    assert "of scratch files (an estimate)" in caplog.text
    assert "weights and regularisation are chosen with 24 of the images" in caplog.text
    assert "64 pooled vectors of" in caplog.text
    engine = Engine.load(tmp_path / "many" / "1")
    assert engine.manifest.provenance["mirrored"] is True
    quality = engine.manifest.quality["test"]
    assert isinstance(quality, dict)
    assert quality["mean_class_accuracy"] > 0.8


@pytest.mark.parametrize(
    ("cost_here", "sentence"),
    [
        (FitCost({}, 1, 1e15, 1e15, 0.0), r"vectors alone take 1000000.0 GB of memory, and .* GB"),
        (FitCost({}, 1, 1e6, 1e6, 1e18), r"up to 1000000000.0 GB on disk, and .*--scratch"),
    ],
)
def test_what_does_not_fit_is_rejected(tmp_path: Path, cost_here: FitCost, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        require_resources(cost_here, tmp_path)


def test_what_may_not_fit_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    require_resources(FitCost({}, 1, 1e6, 1e6, 1e6), tmp_path)
    assert not caplog.records
    require_resources(FitCost({}, 1, 1e15, 1e6, 0.0), tmp_path)
    assert "training takes up to 1000000.0 GB of memory" in caplog.text


def test_memory_of_fits_on_gram_matrices_grows_and_of_larger_ones_hardly() -> None:
    few, most = expected_cost(2500, 100), expected_cost(MOST_ON_GRAMS, 100)
    more, many = expected_cost(MOST_ON_GRAMS + 1, 100), expected_cost(100_000, 100)
    assert few.memory_bytes < most.memory_bytes > more.memory_bytes
    assert many.memory_bytes < 6e9
    assert most.disk_bytes == 0
    assert many.disk_bytes == pytest.approx(13.8e9, rel=0.01)
    assert many.cpu_seconds > more.cpu_seconds


def test_a_narrow_recipe_takes_less_and_a_logistic_classifier_needs_gram_matrices() -> None:
    best = expected_cost(20_000, 100)
    paper = expected_cost(20_000, 100, config=FitConfig(recipe="paper"))
    logistic = expected_cost(20_000, 100, config=FitConfig(classifier="logistic"))
    assert paper.disk_bytes < 0.2 * best.disk_bytes
    assert logistic.disk_bytes == 0
    assert logistic.vector_bytes == pytest.approx(20_000 * 4 * 138_240)
