"""What a fit will take, before it is started: an estimate by a few measured rates.

Rates are those of 300, 1200 and 2400 images of Caltech 101, 30 a class, with default settings, on
one machine. Two other runs gave no rate, but the form: scaling all by the time that images took was
off by a third, so only images are counted by that. They took 6 and 10 % more CPU time than it gives
now, and three quarters of the memory or less.
"""

from dataclasses import asdict, dataclass

from trainer.config import FitConfig
from trainer.parallel import n_threads

__all__ = ["FitCost", "expected_cost"]

# An image is read for three views, pooled, and pooled again mirrored.
_TIMES_POOLED = 3.3
_SECONDS_PER_DESCRIPTOR = 60e-6  # trees and dictionary
_SECONDS_PER_PAIR = 11.5e-6  # of images: Gram matrices of all blocks
_SECONDS_OF_FOLDS = 1.6e-10  # times labels: the search on folds, nearly cubic

# Learning from descriptors comes first, then from pooled vectors; the larger one is what counts.
_LEAST_BYTES = 130e6  # libraries and kernels
_BYTES_PER_DESCRIPTOR = 1900.0  # 512 of its own, the rest copies and products
_BYTES_PER_IMAGE = 0.85e6  # a pooled vector has 553 kB; Gram matrices
_BYTES_PER_COPY = 1.5e6  # mirrored
_MOST_COPIES = 1000

# The grid of an image of 300x225 pixels has about as many.
_DESCRIPTORS_PER_IMAGE = 14_000


@dataclass(frozen=True)
class FitCost:
    """CPU seconds of a fit with default settings, and the bytes of memory that it takes at most."""

    cpu_seconds: float
    cores: int
    memory_bytes: float

    def to_json(self) -> dict[str, float]:
        """The figures as plain JSON values."""
        return {name: round(value) for name, value in asdict(self).items()}


def expected_cost(n_images: int, n_labels: int, pooling_seconds: float) -> FitCost:
    """The cost for this many images that took `pooling_seconds` each to their pooled vectors."""
    descriptors = min(FitConfig().samples, _DESCRIPTORS_PER_IMAGE * n_images)
    seconds = (
        _TIMES_POOLED * pooling_seconds * n_images
        + _SECONDS_PER_DESCRIPTOR * descriptors
        + _SECONDS_PER_PAIR * n_images**2
        + _SECONDS_OF_FOLDS * n_images**3 * n_labels
    )
    copies = min(n_images, _MOST_COPIES)
    pooled = _BYTES_PER_IMAGE * n_images + _BYTES_PER_COPY * copies
    memory = _LEAST_BYTES + max(_BYTES_PER_DESCRIPTOR * descriptors, pooled)
    return FitCost(seconds, n_threads(), memory)
