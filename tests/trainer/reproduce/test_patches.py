"""Groups of image patches: sampling, statistics, figure and command."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from trainer.cli import main
from trainer.errors import DataError
from trainer.reproduce.patches import PatchStudy, draw_figure, sample_patches


def _study() -> PatchStudy:
    atoms = np.random.default_rng(0).normal(size=(5, 64)).astype(np.float32)
    table = np.array([[0, 1], [0, 2], [0, 3], [0, 1]], np.int32)
    return PatchStudy(atoms, table, (0.5,))


def test_patches_are_mean_free_and_come_from_every_image(drawn_images: Path) -> None:
    patches = sample_patches(drawn_images, 480, np.random.default_rng(0))
    assert patches.shape == (480, 64)
    np.testing.assert_allclose(patches.mean(axis=1), 0, atol=1e-6)


def test_same_seed_draws_the_same_patches(drawn_images: Path) -> None:
    first, again = (sample_patches(drawn_images, 96, np.random.default_rng(3)) for _ in range(2))
    assert first.tobytes() == again.tobytes()


def test_folder_without_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no images below it"):
        sample_patches(tmp_path, 10, np.random.default_rng(0))


def test_folder_of_tiny_or_broken_images_is_refused(tmp_path: Path) -> None:
    Image.new("L", (5, 5)).save(tmp_path / "tiny.png")
    (tmp_path / "broken.png").write_bytes(b"no image")
    with pytest.raises(DataError, match="no readable image"):
        sample_patches(tmp_path, 10, np.random.default_rng(0))


def test_figures_count_the_groups_of_each_atom() -> None:
    study = _study()
    np.testing.assert_array_equal(study.popularity, [4, 2, 1, 1, 0])
    assert study.figures() == {
        "median_groups_per_atom": 1.0,
        "atoms_in_one_group": 2,
        "atoms_in_more_than_30": 0,
    }


def test_figure_shows_every_atom_and_the_groups_of_chosen_ones() -> None:
    picture = draw_figure(_study())
    # Mosaic of 3 columns of 2 atoms; beneath, four chosen atoms with 1, 1, 2 and 4 groups.
    assert picture.width == 5 * 26 + 2
    assert picture.height == (2 * 26 + 2) * 5 + 4 * 24


def test_command_prints_both_columns_and_writes_the_figure(
    drawn_images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "figure.png"
    small = ["--patches", "3000", "--atoms", "16", "--groups", "12", "--nonzeros", "3"]
    command = ["reproduce", "patches", "--data", str(drawn_images), "--out", str(out)]
    assert main([*command, *small, "--iterations", "2", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["paper"]["median_groups_per_atom"] == 6
    assert set(printed["ours"]) == set(printed["paper"])
    with Image.open(out) as picture:
        assert picture.width > 100
