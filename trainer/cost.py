"""What a fit will take, before it is started: an estimate by a few measured rates.

Rates are those of fits of 300 images of 10 classes, 1200 of 3 and 3030 of 101 of Caltech 101, the
last with a million descriptors, on one machine beside other work. Their CPU time differs from what
it gives by 7 % at most. Of 1500 images of 15 scenes it gives 16 % less than was measured, because
nobody knows before whether mirrored copies will be used.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from trainer.config import FitConfig
from trainer.errors import DataError
from trainer.parallel import n_threads
from trainer.progress import duration_text
from trainer.resources import available_memory, free_disk
from trainer.stages import StageName

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

# Images are read for descriptors of three views, pooled, and some pooled again mirrored.
_TIMES_DRAWN = 1.2
_TIMES_POOLED = 1.2
_TIMES_MIRRORED = 1.2
_SECONDS_PER_PAIR_OF_COPIES = 4e-6
_SECONDS_PER_DESCRIPTOR: dict[StageName, float] = {
    "tree": 24e-6,
    "dictionary": 36e-6,
    "residuals": 6e-6,
}
_SECONDS_PER_PAIR = 2.2e-6  # of images: Gram matrices of all blocks
_SECONDS_OF_CLASSIFIER = 0.6  # libraries are loaded
_SECONDS_PER_CUBE = 2.1e-9  # of images: the search for weights between blocks
_SECONDS_PER_PAIR_AND_LABEL = 2.1e-8  # the search for a regularisation
_SECONDS_PER_SCORE = 1.7e-4  # of an image and a label, in all passes over a file
_SECONDS_PER_SKETCH_PAIR = 1.1e-8  # to find near-duplicates of many

# Learning from descriptors comes first, then from pooled vectors; the larger one is what counts.
_LEAST_BYTES = 130e6  # libraries and kernels
_BYTES_PER_DESCRIPTOR = 2200.0  # 512 of its own, the rest copies and products
_VECTOR_BYTES = 4.0 * _FEATURES
_BYTES_PER_IMAGE = 0.78e6  # of which a pooled vector has 553 kB
_BYTES_PER_COPY = 1.0e6  # mirrored
_BYTES_PER_PAIR = 110.0  # Gram matrices, and those of the solvers on two threads
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

    stage_seconds: Mapping[StageName, float]
    cores: int
    memory_bytes: float
    vector_bytes: float
    disk_bytes: float

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of all stages."""
        return sum(self.stage_seconds.values())

    def with_evaluation(self, n_images: int) -> "FitCost":
        """The same, and so many images that are classified in the end."""
        seconds = {**self.stage_seconds, "evaluation": _POOLING_SECONDS * n_images}
        return replace(self, stage_seconds=seconds)

    def to_json(self) -> dict[str, float]:
        """The figures as plain JSON values."""
        return {
            "cpu_seconds": round(self.cpu_seconds),
            "cores": self.cores,
            "memory_bytes": round(self.memory_bytes),
            "vector_bytes": round(self.vector_bytes),
            "disk_bytes": round(self.disk_bytes),
        }


def are_many(n_images: int, config: FitConfig) -> bool:
    """Whether a classifier of so many images is solved by passes over a file."""
    return n_images > MOST_ON_GRAMS and config.classifier == "svm"


def expected_cost(
    n_images: int,
    n_labels: int,
    pooling_seconds: float = _POOLING_SECONDS,
    config: FitConfig | None = None,
    *,
    is_reused: bool = False,
) -> FitCost:
    """The cost for this many images that take `pooling_seconds` each to their pooled vectors.

    Rates are those of default settings. Of other ones, only the width of pooled vectors and the
    number of descriptors count. Of a model that is reused, there is only the classifier.
    """
    config = config or FitConfig()
    size = _Size(
        n_images,
        n_labels,
        0 if is_reused else min(config.samples, _DESCRIPTORS_PER_IMAGE * n_images),
        sum(block.n_features for block in config.recipe_for(colours=True).blocks) / _FEATURES,
        is_many=are_many(n_images, config),
        is_mirrored=not is_reused and config.recipe_mirroring != "never",
    )
    return FitCost(
        _stage_seconds(size, pooling_seconds),
        n_threads(),
        _memory(size),
        vector_bytes=size.width * _VECTOR_BYTES * size.solved,
        disk_bytes=size.width * _FEATURES * n_images if size.is_many else 0.0,  # a byte each
    )


@dataclass(frozen=True)
class _Size:
    """What the cost of a fit depends on; `width` is relative to the recipe `best`."""

    images: int
    labels: int
    descriptors: int
    width: float
    is_many: bool
    is_mirrored: bool

    @property
    def solved(self) -> int:
        """Images that have Gram matrices."""
        return min(self.images, PART_OF_MANY) if self.is_many else self.images

    @property
    def copies(self) -> int:
        """Images that are mirrored, at least for a first look."""
        return min(self.images, _MOST_COPIES) if self.is_mirrored and not self.is_many else 0


def _stage_seconds(size: _Size, pooling_seconds: float) -> dict[StageName, float]:
    """CPU seconds of every stage."""
    search = _SECONDS_PER_CUBE * size.solved**3 if size.descriptors else 0.0
    search += _SECONDS_PER_PAIR_AND_LABEL * size.solved**2 * size.labels
    classifier = _SECONDS_OF_CLASSIFIER + _SECONDS_PER_PAIR * size.width * size.solved**2
    if size.is_many:
        classifier += _SECONDS_PER_SCORE * size.width * size.images * size.labels
        classifier += _SECONDS_PER_SKETCH_PAIR * size.images**2
    is_drawn = size.descriptors > 0
    return {
        "descriptors": is_drawn * _TIMES_DRAWN * pooling_seconds * size.images,
        **{name: rate * size.descriptors for name, rate in _SECONDS_PER_DESCRIPTOR.items()},
        "pooled vectors": _TIMES_POOLED * pooling_seconds * size.images,
        "search": search,
        "classifier": classifier,
        "mirrored copies": _TIMES_MIRRORED * pooling_seconds * size.copies
        + _SECONDS_PER_PAIR_OF_COPIES * size.copies**2,
    }


def _memory(size: _Size) -> float:
    """Bytes at the highest point."""
    pooled = _BYTES_PER_IMAGE * size.solved + _BYTES_PER_COPY * size.copies
    solving = size.width * pooled + _BYTES_PER_PAIR * size.solved**2
    learning = max(_BYTES_PER_DESCRIPTOR * size.descriptors, solving)
    if not size.is_many:
        return _LEAST_BYTES + learning
    labels = min(size.labels, _LABELS_AT_A_TIME)
    passes = size.width * (_BYTES_OF_CHUNKS + _BYTES_PER_LABEL * labels)
    passes += size.images * (_BYTES_PER_ROW + _BYTES_PER_SCORE * labels)
    return _LEAST_BYTES + max(learning, passes)


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
        f"about {duration_text(cost.cpu_seconds)} of CPU time, "
        f"{duration_text(cost.cpu_seconds / cost.cores)} at best on these {cost.cores} cores, and "
        f"up to {_gigabytes(cost.memory_bytes)} of memory{disk} (an estimate)"
    )


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.1f} GB"
