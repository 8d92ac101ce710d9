"""Descriptors drawn from images: evenly, reproducibly, and never flat ones."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from service.engine import image, sift
from service.engine.config import ViewConfig
from trainer.data.dataset import scan
from trainer.data.sampling import SampleSettings, sample_descriptors
from trainer.errors import DataError


def test_every_image_gives_equally_many(drawn_images: Path) -> None:
    images = scan(drawn_images).images
    sample = sample_descriptors(images, SampleSettings(10 * len(images)))
    assert sample.descriptors.shape == (10 * len(images), 128)


def test_every_descriptor_knows_its_image(drawn_images: Path) -> None:
    images = scan(drawn_images).images[::9]
    sample = sample_descriptors(images, SampleSettings(60))
    for place, source in enumerate(sample.images):
        grid = sift.describe(image.decode(source.path.read_bytes(), 300), "fast-sift", 2)
        described = {row.tobytes() for row in grid.reshape(-1, 128)}
        drawn = sample.descriptors[sample.image_ids == place]
        assert len(drawn) == 10
        assert all(row.tobytes() in described for row in drawn)


def test_near_zero_descriptors_are_left_out(drawn_images: Path) -> None:
    sample = sample_descriptors(scan(drawn_images).images, SampleSettings(10**6))
    assert np.linalg.norm(sample.descriptors, axis=1).min() > 0.049


def test_same_seed_draws_the_same_and_another_seed_others(drawn_images: Path) -> None:
    images = scan(drawn_images).images
    first, again, other = (
        sample_descriptors(images, SampleSettings(500, seed=s)).descriptors for s in (0, 0, 1)
    )
    assert first.tobytes() == again.tobytes()
    assert first.tobytes() != other.tobytes()


def test_unreadable_files_are_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "broken.jpg").write_bytes(b"no image")
    noise = np.random.default_rng(0).integers(0, 256, (40, 40), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "a" / "fine.png")
    sample = sample_descriptors(scan(tmp_path).images, SampleSettings(20))
    assert [file.path.name for file in sample.unreadable] == ["broken.jpg"]
    assert [image.path.name for image in sample.images] == ["fine.png"]


def test_flat_images_alone_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    Image.new("L", (50, 50), 255).save(tmp_path / "a" / "white.png")
    with pytest.raises(DataError, match="no descriptors"):
        sample_descriptors(scan(tmp_path).images, SampleSettings(20))


def test_descriptors_are_of_the_kind_asked_for(drawn_images: Path) -> None:
    images = scan(drawn_images).images[:1]
    gray = image.decode(images[0].path.read_bytes(), 300)
    grid = sift.describe(gray, "lazebnik-sift", 4).reshape(-1, 128)
    strong = grid[np.linalg.norm(grid, axis=1) > 0.05]
    sample = sample_descriptors(images, SampleSettings(10**6, view=ViewConfig(1, "lazebnik-sift")))
    np.testing.assert_array_equal(sample.descriptors, strong)


def test_scratch_folder_gives_the_same_descriptors_mapped(
    drawn_images: Path, tmp_path: Path
) -> None:
    images = scan(drawn_images).images
    mapped = sample_descriptors(images, SampleSettings(500, scratch=tmp_path)).descriptors
    assert isinstance(mapped, np.memmap)
    expected = sample_descriptors(images, SampleSettings(500)).descriptors
    np.testing.assert_array_equal(mapped, expected)
