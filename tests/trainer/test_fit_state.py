"""What an unfinished fit keeps, and whom it is given to."""

import os
import time
from pathlib import Path

import numpy as np
import pytest

from trainer.config import FitConfig
from trainer.data.dataset import LabelledImage, scan
from trainer.data.sampling import UnreadableImage
from trainer.features import FeaturePlan, LearnedFeatures, learn_features
from trainer.fit_state import FitState

CONFIG = FitConfig.of({"recipe": "fast", "samples": 2000, "atoms": 64, "iterations": 1, "depth": 3})


@pytest.fixture(scope="module")
def features(drawn_images: Path) -> LearnedFeatures:
    return learn_features(scan(drawn_images).images, FeaturePlan(CONFIG))


def _begin(
    folder: Path, images: tuple[LabelledImage, ...], config: FitConfig = CONFIG, *, resume: bool
) -> FitState:
    state = FitState.begin(folder, images, config, resume=resume)
    assert state is not None
    return state


def test_features_come_back_as_they_were(features: LearnedFeatures, tmp_path: Path) -> None:
    broken = LabelledImage(features.images[0].path.parent / "broken.png", 0)
    images = (broken, *features.images)
    kept = LearnedFeatures(
        features.extractor, images[1:], (UnreadableImage(broken.path, "why"),), 7, (0.5, 0.25)
    )
    _begin(tmp_path, images, resume=False).keep(kept)
    found = _begin(tmp_path, images, resume=True).features()
    assert found is not None
    assert (found.images, found.unreadable) == (kept.images, kept.unreadable)
    assert (found.n_descriptors, found.relative_errors) == (7, (0.5, 0.25))
    assert found.extractor.config == features.extractor.config
    data = images[1].path.read_bytes()
    expected = features.extractor.pooled_vector(data)
    np.testing.assert_array_equal(found.extractor.pooled_vector(data), expected)


def test_a_fit_that_does_not_resume_begins_anew(features: LearnedFeatures, tmp_path: Path) -> None:
    _begin(tmp_path, features.images, resume=False).keep(features)
    assert _begin(tmp_path, features.images, resume=False).features() is None


def test_other_images_labels_or_settings_find_nothing(
    features: LearnedFeatures, tmp_path: Path
) -> None:
    images = features.images
    _begin(tmp_path, images, resume=False).keep(features)
    relabelled = (LabelledImage(images[0].path, 1 - images[0].label), *images[1:])
    other = FitConfig.of({**CONFIG.model_dump(), "seed": 1})
    assert _begin(tmp_path, images[1:], resume=True).features() is None
    assert _begin(tmp_path, relabelled, resume=True).features() is None
    assert _begin(tmp_path, images, other, resume=True).features() is None
    assert _begin(tmp_path, images, resume=True).features() is not None


def test_a_damaged_file_is_named_and_learned_anew(
    features: LearnedFeatures, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = _begin(tmp_path, features.images, resume=False)
    state.keep(features)
    (file,) = state.folder.iterdir()
    file.write_bytes(file.read_bytes()[:1000])
    assert state.features() is None
    assert f"{file} is damaged, so all is learned anew" in caplog.text


def test_a_folder_that_cannot_be_made_costs_only_a_warning(
    features: LearnedFeatures, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    assert FitState.begin(tmp_path / "file", features.images, CONFIG, resume=False) is None
    assert "an interrupted fit could not be resumed" in caplog.text


def test_what_fits_of_long_ago_left_is_removed(features: LearnedFeatures, tmp_path: Path) -> None:
    old, young = tmp_path / "old", tmp_path / "young"
    for folder, days in ((old, 30), (young, 1)):
        folder.mkdir()
        moment = time.time() - days * 24 * 3600
        os.utime(folder, (moment, moment))
    _begin(tmp_path, features.images, resume=False)
    assert (old.exists(), young.exists()) == (False, True)
