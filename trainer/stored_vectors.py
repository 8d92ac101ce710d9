"""Pooled vectors of many images on disk, as their classifier needs them.

It asks for sketches, by which near-duplicates are found, and for products with the matrix of all
vectors. `VectorsHere` are in one file of this machine; `trainer.cluster` has workers write files in
a folder that all can read.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from service.engine import FeatureExtractor
from service.engine.arrays import Float32Array
from trainer.data.dataset import LabelledImage
from trainer.data.duplicates import Sketcher
from trainer.data.vectors import VectorFile
from trainer.learn.feature_matrix import FeatureMatrix
from trainer.learn.held_out import Mask
from trainer.vectors import pooled_vectors

__all__ = ["SKETCH_WIDTH", "ManyVectors", "VectorsHere"]

logger = logging.getLogger(__name__)

# Cosines of sketches of this width are off by .03 where those of others are .2.
SKETCH_WIDTH = 1024


class ManyVectors(Protocol):
    """Vectors of n rows on disk, and their sketches (n, SKETCH_WIDTH)."""

    @property
    def sketches(self) -> Float32Array:
        """Short vectors with about the same cosines."""

    def matrix(self, weights: Sequence[float]) -> AbstractContextManager[FeatureMatrix]:
        """The matrix of the vectors whose blocks have these weights."""


@dataclass(frozen=True)
class VectorsHere:
    """Vectors in a file of this machine."""

    file: VectorFile
    sketches: Float32Array

    @classmethod
    @contextmanager
    def stored(
        cls,
        extractor: FeatureExtractor,
        images: Sequence[LabelledImage],
        are_mirrored: Mask,
        folder: Path,
    ) -> Iterator["VectorsHere"]:
        """Vectors of images, some of them mirrored, in a file that is gone at the end."""
        sketch = Sketcher(extractor.config.n_features, SKETCH_WIDTH)
        sketches = np.empty((len(images), SKETCH_WIDTH), np.float32)
        with VectorFile.opened(folder, extractor.config.slices) as file:
            vectors = pooled_vectors(extractor, images, are_mirrored.tolist())
            for row, vector in enumerate(vectors):
                file.append(vector)
                sketches[row] = sketch(vector)
            yield cls(file, sketches)

    def matrix(self, weights: Sequence[float]) -> FeatureMatrix:
        """The matrix of the vectors whose blocks have these weights."""
        return FeatureMatrix(self.file, weights)
