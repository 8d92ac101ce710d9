"""Pooled vectors of an image for several cells at once.

Cells that differ in their dictionary only share an image's description and its walk down
the tree, which is more than half of the work.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt

from service.engine import EngineConfig, image, pooling, sift
from service.engine.arrays import Float32Array
from service.engine.coding import Coder
from service.engine.description import sift_kind
from service.engine.tree import Tree
from trainer.exact.omp import OmpExtractor

__all__ = ["Features", "OmpFeatures", "TreeFeatures"]


class Features(Protocol):
    """From the bytes of an image to one pooled vector for each of several cells."""

    @property
    def widths(self) -> tuple[int, ...]:
        """The length of each pooled vector."""

    def tensors(self, place: int) -> tuple[npt.NDArray[Any], ...]:
        """All that was learned for the pooled vector at `place`."""

    def only(self, places: Sequence[int]) -> "Features":
        """The features of some of the cells."""

    def pooled(self, data: bytes) -> tuple[Float32Array, ...]:
        """Encoded image -> pooled vectors."""


@dataclass(frozen=True)
class TreeFeatures:
    """One tree, and for each cell a coder and its configuration."""

    tree: Tree
    coders: tuple[Coder, ...]
    configs: tuple[EngineConfig, ...]

    @property
    def widths(self) -> tuple[int, ...]:
        """The length of each cell's pooled vector."""
        return tuple(config.n_features for config in self.configs)

    def tensors(self, place: int) -> tuple[npt.NDArray[Any], ...]:
        """The tree, and the cell's table and dictionary."""
        coder = self.coders[place]
        return self.tree.directions, self.tree.cuts, coder.table, coder.dictionary

    def only(self, places: Sequence[int]) -> "TreeFeatures":
        """The same tree with some of the coders."""
        coders = tuple(self.coders[place] for place in places)
        return TreeFeatures(self.tree, coders, tuple(self.configs[place] for place in places))

    def pooled(self, data: bytes) -> tuple[Float32Array, ...]:
        """Described and routed once, coded and pooled for each cell."""
        shared = self.configs[0]
        gray = image.decode(data, shared.max_side)
        rows, cols, descriptors = sift.locate(gray, sift_kind(shared.view), shared.view.step)
        descriptors.fixed(wide=False)  # once, not for every coder again
        leaf_ids = self.tree.route(descriptors)
        return tuple(
            pooling.pool(coder.encode(descriptors, leaf_ids), (rows, cols), config.codes)
            for coder, config in zip(self.coders, self.configs, strict=True)
        )


@dataclass(frozen=True)
class OmpFeatures:
    """The pooled vector of OMP; its dictionaries have nothing to share."""

    extractor: OmpExtractor

    @property
    def widths(self) -> tuple[int, ...]:
        """The length of the pooled vector."""
        return (self.extractor.config.n_features,)

    def tensors(self, place: int) -> tuple[npt.NDArray[Any], ...]:
        """The dictionary."""
        del place  # there is one
        return (self.extractor.coder.dictionary,)

    def only(self, places: Sequence[int]) -> "OmpFeatures":
        """These features: there is nothing to leave out."""
        del places
        return self

    def pooled(self, data: bytes) -> tuple[Float32Array, ...]:
        """The pooled vector alone."""
        return (self.extractor.pooled_vector(data),)
