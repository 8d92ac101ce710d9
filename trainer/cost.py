"""What a fit will take, before it is started: an estimate by a few measured rates.

Rates are those of 300, 1200 and 2400 images of Caltech 101, 30 a class, with default settings, on
one machine. Two other runs gave no rate, but the form: scaling all by the time that images took was
off by a third, so only images are counted by that. They took 6 and 10 % more CPU time than it gives
now, and three quarters of the memory or less.
"""

import logging
from dataclasses import asdict, dataclass
from pathlib import Path

from trainer.config import FitConfig
from trainer.errors import DataError
from trainer.parallel import n_threads
from trainer.resources import available_memory, free_disk

__all__ = [
    "MOST_ON_GRAMS",
    "PART_OF_MANY",
    "FitCost",
    "are_many",
    "cost_text",
    "expected_cost",
    "require_resources",
]

logger = logging.getLogger(__name__)

MOST_ON_GRAMS = 5000
"""Images whose classifier is solved on Gram matrices in memory; of more, over a file."""

PART_OF_MANY = 3000
"""Images with which weights and regularisation of more are chosen, on Gram matrices."""

# CPU seconds that an image of 300x225 pixels takes to its pooled vector, and the width of that.
_POOLING_SECONDS = 0.0085
_FEATURES = 138_240

# An image is read for three views, pooled, and pooled again mirrored; many are not mirrored.
_TIMES_POOLED = 3.3
_TIMES_POOLED_OF_MANY = 2.6
_SECONDS_PER_DESCRIPTOR = 60e-6  # trees and dictionary
_SECONDS_PER_PAIR = 11.5e-6  # of images: Gram matrices of all blocks
_SECONDS_OF_FOLDS = 1.6e-10  # times labels: the search on folds, nearly cubic
_SECONDS_PER_SCORE = 1.7e-4  # of an image and a label, in all passes over a file
_SECONDS_PER_SKETCH_PAIR = 1.1e-8  # to find near-duplicates of many

# Learning from descriptors comes first, then from pooled vectors; the larger one is what counts.
_LEAST_BYTES = 130e6  # libraries and kernels
_BYTES_PER_DESCRIPTOR = 1900.0  # 512 of its own, the rest copies and products
_VECTOR_BYTES = 4.0 * _FEATURES
_BYTES_PER_IMAGE = 0.85e6  # of which a pooled vector has 553 kB; Gram matrices
_BYTES_PER_COPY = 1.5e6  # mirrored
_MOST_COPIES = 1000

# The grid of an image of 300x225 pixels has about as many.
_DESCRIPTORS_PER_IMAGE = 14_000

# Of many images: chunks of the file, a dozen arrays of weights for up to 128 labels, sketches, and
# inner products with the images of a chunk.
_BYTES_OF_CHUNKS = 0.8e9
_BYTES_PER_LABEL = 7.5e6
_LABELS_AT_A_TIME = 128
_BYTES_PER_ROW = 7000.0
_BYTES_PER_SCORE = 32.0


@dataclass(frozen=True)
class FitCost:
    """CPU seconds of a fit, and the bytes of memory and of scratch files that it takes at most.

    `vector_bytes` is what pooled vectors alone take of the memory, whatever images show.
    """

    cpu_seconds: float
    cores: int
    memory_bytes: float
    vector_bytes: float
    disk_bytes: float

    def to_json(self) -> dict[str, float]:
        """The figures as plain JSON values."""
        return {name: round(value) for name, value in asdict(self).items()}


def are_many(n_images: int, config: FitConfig) -> bool:
    """Whether a classifier of so many images is solved by passes over a file."""
    return n_images > MOST_ON_GRAMS and config.classifier == "svm"


def expected_cost(
    n_images: int,
    n_labels: int,
    pooling_seconds: float = _POOLING_SECONDS,
    config: FitConfig | None = None,
) -> FitCost:
    """The cost for this many images that take `pooling_seconds` each to their pooled vectors.

    Rates are those of default settings. Of other ones, only the width of pooled vectors and the
    number of descriptors count.
    """
    config = config or FitConfig()
    width = sum(block.n_features for block in config.recipe_for(colours=True).blocks) / _FEATURES
    descriptors = min(config.samples, _DESCRIPTORS_PER_IMAGE * n_images)
    is_many = are_many(n_images, config)
    solved = min(n_images, PART_OF_MANY) if is_many else n_images
    seconds = (
        (_TIMES_POOLED_OF_MANY if is_many else _TIMES_POOLED) * pooling_seconds * n_images
        + _SECONDS_PER_DESCRIPTOR * descriptors
        + _SECONDS_PER_PAIR * width * solved**2
        + _SECONDS_OF_FOLDS * solved**3 * n_labels
    )
    copies = 0 if is_many else min(n_images, _MOST_COPIES)
    memory = max(
        _BYTES_PER_DESCRIPTOR * descriptors,
        width * (_BYTES_PER_IMAGE * solved + _BYTES_PER_COPY * copies),
    )
    vectors = width * _VECTOR_BYTES * solved
    if not is_many:
        return FitCost(seconds, n_threads(), _LEAST_BYTES + memory, vectors, 0.0)
    seconds += _SECONDS_PER_SCORE * width * n_images * n_labels
    seconds += _SECONDS_PER_SKETCH_PAIR * n_images**2
    labels = min(n_labels, _LABELS_AT_A_TIME)
    passes = width * (_BYTES_OF_CHUNKS + _BYTES_PER_LABEL * labels)
    passes += n_images * (_BYTES_PER_ROW + _BYTES_PER_SCORE * labels)
    disk = width * _FEATURES * n_images  # a byte each
    return FitCost(seconds, n_threads(), _LEAST_BYTES + max(memory, passes), vectors, disk)


def require_resources(cost: FitCost, scratch: Path) -> None:
    """Reject a fit that cannot end here, before hours are spent on it."""
    memory, disk = available_memory(), free_disk(scratch)
    if memory is not None and cost.vector_bytes > memory:
        raise DataError(
            f"pooled vectors alone take {_gigabytes(cost.vector_bytes)} of memory, and "
            f"{_gigabytes(memory)} can be had: take fewer images or the recipe fast"
        )
    if memory is not None and cost.memory_bytes > memory:
        logger.warning(
            "training takes up to %s of memory, and %s can be had: it may not be enough",
            _gigabytes(cost.memory_bytes),
            _gigabytes(memory),
        )
    if cost.disk_bytes > disk:
        raise DataError(
            f"the pooled vectors take up to {_gigabytes(cost.disk_bytes)} on disk, and {scratch} "
            f"has {_gigabytes(disk)} left: --scratch names another folder"
        )


def cost_text(cost: FitCost) -> str:
    """What a fit takes, for people."""
    disk = f" and {_gigabytes(cost.disk_bytes)} of scratch files" if cost.disk_bytes else ""
    return (
        f"about {_duration(cost.cpu_seconds)} of CPU time, "
        f"{_duration(cost.cpu_seconds / cost.cores)} at best on these {cost.cores} cores, and "
        f"up to {_gigabytes(cost.memory_bytes)} of memory{disk} (an estimate)"
    )


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.1f} GB"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"
