"""Mirrored copies win where things face either way, and lose where they tell classes apart."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from service.engine import Engine
from service.engine.arrays import UInt8Array
from service.engine.config import CodesConfig, EngineConfig, ResidualsConfig, ViewConfig
from service.engine.image import decode_picture
from tests.support.samples import random_bundle
from trainer import mirroring
from trainer.classification import Classification, learn_classification
from trainer.data.dataset import LabelledImage
from trainer.data.sampling import Sample
from trainer.features import LearnedFeatures
from trainer.learn.classifier import ClassifierSettings
from trainer.learn.held_out import UNKNOWN
from trainer.mirroring import MirrorTrial, first_look
from trainer.training_vectors import LocalVectors

CONFIG = EngineConfig(
    views=(ViewConfig(3, step=4), ViewConfig(2, "colour", step=4, reduction=2)),
    blocks=(CodesConfig(20, 3), ResidualsConfig((1, 0), 5, (2, 1), weight=0.4, view=1)),
    max_side=90,
)
ENGINE = Engine(random_bundle(CONFIG))
SETTINGS = ClassifierSettings("svm", 3.0, folds=5, seed=0, fixed_weights=True)
NOTHING = Sample(np.empty((0, 128), np.float32), np.empty(0, np.int32), (), ())

_PER_CLASS = 16


def _patterns(count: int) -> list[UInt8Array]:
    """Blotches of colour; no two are alike."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (count, 8, 8, 3), np.uint8)
    return [np.asarray(Image.fromarray(each).resize((48, 48))) for each in coarse]


def _written(folder: Path, pixels: npt.ArrayLike, number: int, label: int) -> LabelledImage:
    path = folder / f"{number}.png"
    noise = np.random.default_rng(number).integers(0, 16, (48, 48, 3))
    Image.fromarray((np.asarray(pixels) * (240 / 256) + noise).astype(np.uint8)).save(path)
    return LabelledImage(path, label)


def _either_way(folder: Path) -> list[LabelledImage]:
    """Every second image of two classes is the mirror image of the one before."""
    images = []
    for number, pattern in enumerate(_patterns(_PER_CLASS)):
        label = number % 2
        images.append(_written(folder, pattern, 2 * number, label))
        images.append(_written(folder, pattern[:, ::-1], 2 * number + 1, label))
    return images


def _one_way(folder: Path) -> list[LabelledImage]:
    """Images of one class are the mirror images of the other's."""
    (pattern,) = _patterns(1)
    return [
        _written(folder, pattern[:, ::-1] if number % 2 else pattern, number, number % 2)
        for number in range(2 * _PER_CLASS)
    ]


def _trial(images: list[LabelledImage]) -> MirrorTrial:
    features = LearnedFeatures(ENGINE, tuple(images), (), 0, ())
    plain = learn_classification(features, 2, SETTINGS)
    return MirrorTrial(plain, images, SETTINGS)


def _vectors(model: Classification) -> LocalVectors:
    assert isinstance(model.vectors, LocalVectors)
    return model.vectors


def _accuracy(model: Classification) -> float:
    assert model.fitted.fold_accuracy is not None
    return model.fitted.fold_accuracy


def test_copies_are_used_where_things_face_either_way(tmp_path: Path) -> None:
    trial = _trial(_either_way(tmp_path))
    found = trial.winner()
    assert found.has_copies
    assert _accuracy(found) > _accuracy(trial.plain) + 0.2


def test_copies_are_dropped_where_classes_are_mirror_images_of_each_other(tmp_path: Path) -> None:
    trial = _trial(_one_way(tmp_path))
    assert trial.winner() is trial.plain
    assert _accuracy(trial.plain) > 0.9
    assert _accuracy(trial.mirrored()) < 0.8


def test_many_images_are_tried_in_part_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(mirroring, "_FIRST_LOOK", 20)
    wins = _trial(_either_way(tmp_path))
    assert wins.winner().has_copies
    assert "first look at 20 images of 2 classes" in caplog.text
    loses = _trial(_one_way(tmp_path))
    assert loses.winner() is loses.plain
    assert _vectors(loses.plain).are_pooled.sum() == 20


def test_copies_of_very_many_images_are_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirroring, "_MOST_IMAGES", 31)
    trial = _trial(_either_way(tmp_path))
    assert trial.winner() is trial.plain
    assert not _vectors(trial.plain).are_pooled.any()


def test_classifier_with_copies_learns_from_the_pixels_the_other_way_round(tmp_path: Path) -> None:
    images = _either_way(tmp_path)
    mirrored = _trial(images).mirrored()
    turned = tmp_path / "turned.png"
    with Image.open(images[3].path) as picture:
        picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(turned)
    extractor = mirrored.extractor.weighted([1.0] * len(mirrored.extractor.blocks))
    expected = extractor.pooled_vector(turned.read_bytes())
    found = np.concatenate([copies[3] for copies in _vectors(mirrored).copies])
    np.testing.assert_array_equal(found, expected)


def test_same_seed_gives_the_same_classifier_with_copies(tmp_path: Path) -> None:
    images = _either_way(tmp_path)
    one, other = (_trial(images).mirrored().classifier() for _ in range(2))
    for name, tensor in one.tensors().items():
        assert tensor.tobytes() == other.tensors()[name].tobytes()


@given(
    st.lists(st.integers(1, 900), min_size=2, max_size=40),
    st.integers(0, 3),
)
def test_first_look_has_enough_images_of_several_classes_and_not_many(
    sizes: list[int], seed: int
) -> None:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    look = first_look(labels, seed)
    assert len(np.unique(look)) == len(look) <= 1000
    assert len(np.unique(labels[look])) >= min(len(sizes), 5)
    np.testing.assert_array_equal(look, first_look(labels, seed))
    if len(labels) <= 1000:
        assert len(look) == len(labels)


def test_first_look_at_many_classes_has_all_images_of_some() -> None:
    labels = np.repeat(np.arange(101), 30)
    names, sizes = np.unique(labels[first_look(labels, 0)], return_counts=True)
    assert len(names) == 33
    assert set(sizes) == {30}


def test_first_look_at_a_part_has_no_images_of_unknown_label() -> None:
    labels = np.concatenate([np.full(900, UNKNOWN), np.repeat(np.arange(8), 30)])
    look = first_look(labels, 0)
    assert set(labels[look]) == set(range(8))
    assert len(look) == 240


def test_picture_is_mirrored_with_its_colours(tmp_path: Path) -> None:
    (image,) = _either_way(tmp_path)[:1]
    picture = decode_picture(image.path.read_bytes(), 300)
    mirrored = picture.mirrored()
    assert picture.colours is not None
    np.testing.assert_array_equal(mirrored.gray, picture.gray[:, ::-1])
    np.testing.assert_array_equal(mirrored.colours, picture.colours[:, ::-1])
