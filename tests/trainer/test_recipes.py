"""Recipes: which views and blocks a fit is made of."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from service.engine import Engine
from service.engine.config import CodesConfig, ResidualsConfig, ViewConfig
from tests.support.samples import random_png
from trainer.config import FitConfig
from trainer.data.dataset import Dataset, scan
from trainer.features import FeaturePlan, learn_features
from trainer.fit import fit
from trainer.recipes import RecipeName, recipe_of

VIEW, CODES = ViewConfig(depth=9), CodesConfig(n_atoms=64, nonzeros=3)
TINY = FitConfig(samples=2000, atoms=16, nonzeros=2, iterations=1, folds=2, regularisation=3.0)


def test_the_paper_s_recipe_is_one_view_and_one_block() -> None:
    recipe = recipe_of("paper", VIEW, CODES)
    assert (recipe.views, recipe.blocks) == ((VIEW,), (CODES,))


@pytest.mark.parametrize("name", ["paper", "fast", "best"])
def test_the_first_block_is_the_codes_of_the_first_view(name: RecipeName) -> None:
    first = recipe_of(name, VIEW, CODES).blocks[0]
    assert isinstance(first, CodesConfig)
    assert first.view == 0


def test_the_fast_recipe_describes_fewer_places() -> None:
    assert recipe_of("fast", VIEW, CODES).views[0].step == 2 * VIEW.step


def test_a_projection_hash_has_no_residuals() -> None:
    recipe = recipe_of("best", ViewConfig(depth=9, hash="tanh"), CODES)
    assert not any(isinstance(block, ResidualsConfig) for block in recipe.blocks_of(0))


def test_grey_images_get_no_view_of_colours() -> None:
    recipe = recipe_of("best", VIEW, CODES)
    grey = recipe.without_colours()
    assert [view.descriptor for view in grey.views] == ["fast-sift", "contour-sift"]
    assert grey.blocks == tuple(block for block in recipe.blocks if block.view < 2)


def write_images(folder: Path, side: int, mode: str) -> Dataset:
    """Two classes of noise, three images each."""
    rng = np.random.default_rng(0)
    for label in ("one", "other"):
        (folder / label).mkdir()
        for number in range(3):
            pixels = rng.integers(0, 256, (side, side, 3), np.uint8)
            picture = Image.fromarray(pixels).convert(mode)
            picture.save(folder / label / f"{number}.png")
    return scan(folder)


def descriptors_of(dataset: Dataset) -> list[str]:
    learned = learn_features(dataset.images, FeaturePlan(TINY))
    return [view.descriptor for view in learned.extractor.config.views]


def test_views_follow_the_images(tmp_path: Path) -> None:
    for mode, expected in (("RGB", ["fast-sift", "contour-sift", "colour"]), ("L", None)):
        (tmp_path / mode).mkdir()
        found = descriptors_of(write_images(tmp_path / mode, 72, mode))
        assert found == (expected or ["fast-sift", "contour-sift"])


def test_images_too_small_for_contours_go_without(tmp_path: Path) -> None:
    assert descriptors_of(write_images(tmp_path, 36, "L")) == ["fast-sift"]


def test_a_fit_classifies_images_that_are_too_small_for_some_views(tmp_path: Path) -> None:
    bundle = fit(write_images(tmp_path, 72, "RGB"), TINY, "noise")
    assert Engine(bundle).scores(random_png(0, 24, 30)).shape == (2,)


def test_weights_are_of_a_pooled_vector_of_any_blocks(tmp_path: Path) -> None:
    """What the classifier learned from Gram matrices is what the engine computes."""
    dataset = write_images(tmp_path, 72, "RGB")
    engine = Engine(fit(dataset, TINY, "noise"))
    labels = [image.label for image in dataset.images]
    found = [int(engine.scores(image.path.read_bytes()).argmax()) for image in dataset.images]
    assert found == labels
