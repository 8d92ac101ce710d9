"""The images that are measured: the paper's two data sets, or stand-ins made here.

`<data>/berkeley` holds photographs of 321x481 pixels, `<data>/caltech101` one sub-folder
a class. What is absent is drawn by rule, as JPEG files of the same size: noise whose
spectrum falls like that of photographs, with shapes before it.
"""

import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from service.engine.arrays import UInt8Array
from trainer.bench.settings import BenchSettings
from trainer.data.dataset import scan
from trainer.data.image_files import find_images

__all__ = ["Photographs", "find_photographs", "make_photographs"]

logger = logging.getLogger(__name__)

_SHAPES = 12

# As the preset of the embedded model has it.
_TRAIN_PER_CLASS = 30
_NO_CLASS = ("BACKGROUND_Google",)


@dataclass(frozen=True)
class Photographs:
    """Image files; `measured` are in no model's training, `made` names the sets drawn here.

    `caltech_test` is what the embedded model was tested on.
    """

    training: tuple[Path, ...]
    measured: tuple[Path, ...]
    caltech: tuple[Path, ...]
    caltech_test: tuple[Path, ...]
    made: tuple[str, ...]


def find_photographs(data: Path, scratch: Path, settings: BenchSettings) -> Photographs:
    """The data sets below `data`; what is absent is drawn into `scratch`."""
    made: list[str] = []

    def images(name: str, width: int, height: int) -> list[Path]:
        found = find_images(data / name).images
        if found:
            return list(found)
        made.append(name)
        logger.warning("%s has no images: measuring images made here instead", data / name)
        return make_photographs(scratch / name, settings, (width, height))

    berkeley = images("berkeley", settings.width, settings.height)
    caltech = images("caltech101", 300, 200)
    order = np.random.default_rng(settings.seed).permutation(len(berkeley))
    measured = max(settings.photographs, len(berkeley) // 5)
    shuffled = [berkeley[place] for place in order]
    return Photographs(
        tuple(shuffled[measured:] or shuffled),
        tuple(shuffled[:measured]),
        _spread(caltech, 8 * settings.photographs),
        _spread(_test_images(data / "caltech101") or caltech, settings.requests),
        tuple(made),
    )


def _test_images(folder: Path) -> list[Path]:
    """The images outside the embedded model's training; none where there is no data set."""
    if not find_images(folder).images:
        return []
    background = tuple(name for name in _NO_CLASS if (folder / name).is_dir())
    split = scan(folder, background).split(_TRAIN_PER_CLASS, seed=0)
    return [image.path for image in split.test]


def _spread(paths: list[Path], count: int) -> tuple[Path, ...]:
    """`count` of the files, as far apart as possible."""
    places = np.linspace(0, len(paths) - 1, min(count, len(paths))).round().astype(int)
    return tuple(paths[place] for place in places)


def make_photographs(folder: Path, settings: BenchSettings, size: tuple[int, int]) -> list[Path]:
    """JPEG files of (width, height), the same for the same seed."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng([settings.seed, *size])
    paths = []
    for number in range(settings.made):
        paths.append(folder / f"{number:03}.jpg")
        _draw(size, rng).save(paths[-1], quality=90)
    return paths


def _draw(size: tuple[int, int], rng: np.random.Generator) -> Image.Image:
    picture = Image.fromarray(_texture(size, rng))
    pen = ImageDraw.Draw(picture)
    for _ in range(_SHAPES):
        x, y = (float(place) for place in rng.uniform(0, 1, 2) * size)
        reach = float(rng.uniform(0.02, 0.15)) * min(size)
        box = (x - reach, y - reach, x + reach, y + 2 * reach)
        (pen.ellipse if rng.random() < 0.5 else pen.rectangle)(box, fill=int(rng.integers(256)))
    return Image.blend(picture, Image.fromarray(_texture(size, rng)), 0.2)


def _texture(size: tuple[int, int], rng: np.random.Generator) -> UInt8Array:
    """Noise whose amplitudes fall as one over the frequency, as those of photographs do."""
    width, height = size
    spectrum = np.fft.rfft2(rng.normal(size=(height, width)))
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width))
    spectrum /= np.maximum(frequency, 1 / max(size))
    waves = np.fft.irfft2(spectrum, (height, width))
    levels: UInt8Array = (128 + 50 * waves / waves.std()).clip(0, 255).astype(np.uint8)
    return levels
