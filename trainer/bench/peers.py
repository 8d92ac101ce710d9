"""The libraries that the engine is compared with, each at its best.

Every function returns a workload that is ready to be timed: inputs are prepared and outputs
allocated before. The libraries are those of the extra `bench`, loaded when first needed.
"""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from service.engine.arrays import Float32Array, UInt8Array
from service.engine.config import STEPS
from service.engine.sift import SMALLEST_SIDE, grid_shape
from trainer.errors import TrainingError
from trainer.exact.omp import prepare_pursuit
from trainer.learn.dictionary import unit_rows

__all__ = ["blas_product", "opencv_sift", "optional", "sklearn_omp", "spams_omp"]

Workload = Callable[[], object]

# OpenCV's histogram cells are 1.5 times the size of a keypoint wide, and ours 4 pixels.
_KEYPOINT_SIZE = 4 / 1.5


def optional(module: str, package: str) -> Any:
    """A module of the extra `bench`."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise TrainingError(
            f"needs the package {package}; install it with: pip install 'leafcode[bench]'"
        ) from error


def blas_product(descriptors: Float32Array, dictionary: Float32Array) -> Workload:
    """Descriptors (n, d) times dictionary (K, d): the least that any exact method pays."""
    atoms = np.ascontiguousarray(dictionary.T)
    products = np.empty((descriptors.shape[0], dictionary.shape[0]), np.float32)
    return lambda: np.dot(descriptors, atoms, out=products)


def spams_omp(
    descriptors: Float32Array,
    dictionary: Float32Array,
    nonzeros: int,
    precision: type[np.floating[Any]],
) -> Workload:
    """SPAMS's greedy pursuit over the whole dictionary, on one thread."""
    atoms = unit_rows(dictionary).astype(precision)
    return prepare_pursuit(descriptors.astype(precision), atoms, nonzeros)


def sklearn_omp(descriptors: Float32Array, dictionary: Float32Array, nonzeros: int) -> Workload:
    """scikit-learn's pursuit; it is slow, so let the descriptors be few."""
    module = optional("sklearn.decomposition", "scikit-learn")
    coder = module.SparseCoder(
        dictionary, transform_algorithm="omp", transform_n_nonzero_coefs=nonzeros, n_jobs=1
    )
    return lambda: coder.transform(descriptors)


def opencv_sift(pixels: UInt8Array) -> Workload:
    """OpenCV's SIFT of an image (h, w), keypoints on the centres of our patches."""
    cv2 = optional("cv2", "opencv-python-headless")
    cv2.setNumThreads(1)
    height, width = pixels.shape
    step, margin = STEPS["fast-sift"], (SMALLEST_SIDE - 1) / 2
    rows, cols = grid_shape(height, width, step)
    keypoints = [
        cv2.KeyPoint(step * x + margin, step * y + margin, _KEYPOINT_SIZE, 0)
        for y in range(rows)
        for x in range(cols)
    ]
    sift = cv2.SIFT_create()

    def compute() -> Float32Array:
        _, descriptors = sift.compute(pixels, keypoints)
        if descriptors.shape[0] != rows * cols:
            raise TrainingError(f"OpenCV described {descriptors.shape[0]} of {rows * cols} patches")
        result: Float32Array = descriptors
        return result

    return compute
