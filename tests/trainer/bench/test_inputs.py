"""Cores, images, models and peers that are measured, on tiny models."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from service.engine import Engine
from tests.trainer.bench.sizes import TINY
from trainer.bench.machine import pinned, separate_cores
from trainer.bench.models import Models, draw_descriptors
from trainer.bench.peers import opencv_sift
from trainer.bench.photographs import find_photographs
from trainer.bench.settings import ModelSize
from trainer.errors import TrainingError


def test_cores_are_separate_and_pinning_ends_with_its_block() -> None:
    allowed = os.sched_getaffinity(0)
    (core,) = separate_cores(1)
    with pinned([core]):
        assert os.sched_getaffinity(0) == {core}
        with pytest.raises(TrainingError, match="expected at least 2"):
            separate_cores(2)
    assert os.sched_getaffinity(0) == allowed


def test_absent_data_sets_are_replaced_by_images_of_their_size(tmp_path: Path) -> None:
    found = find_photographs(tmp_path / "nowhere", tmp_path / "scratch", TINY)
    assert found.made == ("berkeley", "caltech101")
    assert len(found.training) == 5
    assert set(found.training).isdisjoint(found.measured)
    with Image.open(found.measured[0]) as picture:
        assert (picture.format, picture.size) == ("JPEG", (TINY.width, TINY.height))
    with Image.open(found.caltech[0]) as picture:
        assert max(picture.size) == 300


def test_images_that_are_there_are_used(drawn_images: Path, tmp_path: Path) -> None:
    (tmp_path / "caltech101").symlink_to(drawn_images)
    found = find_photographs(tmp_path, tmp_path / "scratch", TINY)
    assert found.made == ("berkeley",)
    assert found.caltech[0].is_relative_to(tmp_path / "caltech101")


def test_a_kept_model_is_loaded_again_and_a_smaller_tree_is_the_top_of_it(tmp_path: Path) -> None:
    photographs = find_photographs(tmp_path / "nowhere", tmp_path / "scratch", TINY)
    models = Models(tmp_path / "kept", photographs.training, TINY)
    whole, top = models.load(), models.load(ModelSize(2, TINY.atoms, TINY.nonzeros))
    again = Models(tmp_path / "kept", photographs.training, TINY)
    assert again.load().manifest.digest == whole.manifest.digest
    vectors = draw_descriptors(photographs.measured, 50, seed=1)
    np.testing.assert_array_equal(whole.encode(vectors).leaf_ids >> 2, top.encode(vectors).leaf_ids)
    other = Models(tmp_path / "kept", photographs.training, TINY.model_copy(update={"seed": 1}))
    assert other.bundle() != again.bundle()


def test_opencv_describes_the_patches_that_we_do(trained_bundle: Path) -> None:
    pytest.importorskip("cv2", reason="needs opencv of the extra bench, absent here")
    pixels = np.zeros((40, 50), np.uint8)
    pixels[:, 30:] = 200  # one edge: seen by the patches that reach it, and by no other
    theirs = np.asarray(opencv_sift(pixels)()).reshape(11, 16, 128)
    ours = Engine.load(trained_bundle).describe(np.float32(1 / 255) * pixels)
    assert ours.shape == theirs.shape
    # OpenCV smooths first and looks beyond the patch: it sees an edge a few pixels further.
    assert (theirs.max(axis=2) > 0)[ours.max(axis=2) > 0].all()
    assert not theirs[:, 0].any()
    assert not ours[:, 0].any()
