"""`check`: what is in a folder of images, told before hours are spent on training with it."""

import hashlib
import itertools
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from service.engine import Engine, FeatureExtractor, ImageError, ImageLimits
from service.engine.arrays import Float32Array
from service.engine.image import stated_size
from service.engine.image_formats import HEIF_SUFFIXES
from trainer.cost import FitCost, expected_cost
from trainer.data.dataset import Dataset, LabelledImage
from trainer.data.duplicates import Sketcher, identical_groups, similar_groups
from trainer.data.image_files import printable
from trainer.data.notes import notes
from trainer.data.sampling import UnreadableImage
from trainer.embedded import EMBEDDED_MODELS
from trainer.parallel import map_ordered

__all__ = ["MOST_IMBALANCE", "TINY", "CheckReport", "check"]

TINY = 64
"""Pixels of the shorter side under which an image has few descriptors."""

MOST_IMBALANCE = 4.0
"""How many times the images of the smallest class the largest may have without a word."""

# Of the service's own models the one whose vectors `trainer.data.duplicates` was measured with.
_MODEL = EMBEDDED_MODELS / "caltech101" / "1"

Names = tuple[str, ...]


@dataclass(frozen=True)
class CheckReport:
    """What `check` found. Names are relative to the folder, and groups are tuples of names.

    `kinds` counts images that are nested, linked, HEIC or large; an image may be of several.
    `identical` files have the same bytes, `similar` ones look nearly the same, and
    `in_several_classes` are the groups of both kinds that have more than one label.
    """

    root: str
    images: dict[str, int]
    readable: dict[str, int]
    kinds: dict[str, int]
    notes: tuple[str, ...]
    unreadable: tuple[tuple[str, str], ...]
    tiny: Names
    identical: tuple[Names, ...]
    similar: tuple[Names, ...]
    in_several_classes: tuple[Names, ...]
    cost: FitCost

    @property
    def imbalance(self) -> float:
        """Readable images of the largest class for each one of the smallest that has any."""
        counts = [count for count in self.readable.values() if count]
        return max(counts) / min(counts) if counts else 0.0

    @property
    def can_be_fitted(self) -> bool:
        """Whether two classes have an image that can be read, which is what a fit needs."""
        return sum(count > 0 for count in self.readable.values()) >= 2

    def to_json(self) -> dict[str, object]:
        """All of it as plain JSON values."""
        return {
            "images": sum(self.images.values()),
            "readable": sum(self.readable.values()),
            "classes": {
                label: {"images": count, "readable": self.readable[label]}
                for label, count in self.images.items()
            },
            "kinds": self.kinds,
            "notes": list(self.notes),
            "unreadable": [{"path": path, "reason": reason} for path, reason in self.unreadable],
            "tiny": list(self.tiny),
            "identical": [list(group) for group in self.identical],
            "similar": [list(group) for group in self.similar],
            "in_several_classes": [list(group) for group in self.in_several_classes],
            "imbalance": self.imbalance,
            "expected_fit": self.cost.to_json(),
            "can_be_fitted": self.can_be_fitted,
        }


@dataclass(frozen=True)
class _Examined:
    """What one image showed: the digest of its bytes, its width and height, and its sketch."""

    image: LabelledImage
    digest: bytes
    size: tuple[int, int]
    sketch: Float32Array


def check(dataset: Dataset, labels: Path | None = None) -> CheckReport:
    """Read every image as a fit would; `labels` is the file that the labels are from, if any."""
    engine = Engine.load(_MODEL)
    started = time.process_time()
    results = _examine(dataset.images, engine)
    examined = [result for result in results if isinstance(result, _Examined)]
    unreadable = [result for result in results if isinstance(result, UnreadableImage)]
    seconds = (time.process_time() - started) / max(1, len(examined))
    images = Counter(image.label for image in dataset.images)
    readable = Counter(result.image.label for result in examined)
    identical, similar = _groups(examined)

    def named(groups: Iterable[Sequence[_Examined]]) -> tuple[Names, ...]:
        return tuple(tuple(_name(dataset, each.image.path) for each in group) for group in groups)

    return CheckReport(
        root=printable(dataset.root),
        images={label: images[number] for number, label in enumerate(dataset.labels)},
        readable={label: readable[number] for number, label in enumerate(dataset.labels)},
        kinds=_kinds(dataset, examined),
        notes=tuple(notes(dataset, labels)),
        unreadable=tuple(
            (_name(dataset, file.path), printable(file.reason)) for file in unreadable
        ),
        tiny=tuple(_name(dataset, e.image.path) for e in examined if min(e.size) < TINY),
        identical=named(identical),
        similar=named(similar),
        in_several_classes=named(
            group
            for group in (*identical, *similar)
            if len({each.image.label for each in group}) > 1
        ),
        cost=expected_cost(len(examined), len(readable), seconds),
    )


def _kinds(dataset: Dataset, examined: Sequence[_Examined]) -> dict[str, int]:
    paths = [image.path for image in dataset.images]
    most_pixels = ImageLimits().max_pixels
    return {
        "nested": sum(dataset.name_of(path).count("/") > 1 for path in paths),
        "linked": sum(_is_linked(path, dataset.root) for path in paths),
        "heic": sum(path.suffix.lower() in HEIF_SUFFIXES for path in paths),
        "large": sum(width * height > most_pixels for width, height in (e.size for e in examined)),
    }


def _is_linked(path: Path, root: Path) -> bool:
    """Whether a file, or a folder between it and `root`, is a link."""
    below = itertools.takewhile(lambda part: part != root, (path, *path.parents))
    return any(part.is_symlink() for part in below)


def _name(dataset: Dataset, path: Path) -> str:
    return printable(dataset.name_of(path))


def _examine(
    images: Sequence[LabelledImage], extractor: FeatureExtractor
) -> list[_Examined | UnreadableImage]:
    sketch = Sketcher(extractor.config.n_features)

    def examine(image: LabelledImage) -> _Examined | UnreadableImage:
        try:
            data = image.path.read_bytes()
            pooled = extractor.pooled_vector(data)
        except (ImageError, OSError) as error:
            return UnreadableImage(image.path, _reason(error))
        digest = hashlib.sha256(data).digest()
        return _Examined(image, digest, stated_size(data), sketch(pooled))

    return list(map_ordered(examine, images, "images"))


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be read: {error.strerror}"
    return str(error)


def _groups(
    examined: Sequence[_Examined],
) -> tuple[list[list[_Examined]], list[list[_Examined]]]:
    """Images of the same bytes, and different images that look nearly the same."""
    identical = identical_groups([each.digest for each in examined])
    again = {place for group in identical for place in group[1:]}
    different = [each for place, each in enumerate(examined) if place not in again]
    if not different:
        return [], []
    similar = similar_groups(np.stack([each.sketch for each in different]))
    return (
        [[examined[place] for place in group] for group in identical],
        [[different[place] for place in group] for group in similar],
    )
