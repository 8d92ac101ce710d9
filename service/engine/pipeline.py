"""The road that data takes, in one place.

bytes - image - descriptors - leaf ids - codes - pooled vector - scores - labels

Training and serving both go through `Engine`, starting from encoded bytes, so that
they cannot drift apart.
"""

import logging
import os
from collections.abc import Callable
from functools import partial

import numpy as np

from service.engine import image, pooling, ranking, sift
from service.engine.arrays import Float32Array
from service.engine.bundle import Bundle, BundleFiles, read_bundle
from service.engine.classifier import LinearClassifier
from service.engine.codes import Codes
from service.engine.coding import Coder
from service.engine.config import DESCRIPTOR_WIDTH, EngineConfig
from service.engine.encoding import encode_by_tree
from service.engine.errors import BundleError, DescriptorError, ImageError
from service.engine.fixedpoint import Descriptors
from service.engine.hashing import Hash, hash_from_tensors
from service.engine.image_limits import ImageLimits
from service.engine.manifest import Manifest
from service.engine.ranking import Prediction
from service.engine.stopwatch import Stopwatch
from service.engine.threads import Threads
from service.engine.tree import Tree

__all__ = ["Engine", "FeatureExtractor"]

logger = logging.getLogger(__name__)

# Another CPU may round a descriptor across a threshold of the tree; measured, that
# moves a score in the fourth digit, while a wrong tensor moves it in the first. Of the
# probe's largest score if that exceeds one: those of a logistic classifier reach tens.
_PROBE_TOLERANCE = 5e-3


class FeatureExtractor:
    """Bytes to pooled vector: all of the engine that needs no classifier."""

    def __init__(self, config: EngineConfig, hash_: Hash, coder: Coder, threads: int = 1) -> None:
        self.config = config
        self.hash = hash_
        self.coder = coder
        self.threads = Threads(threads)

    def decode(self, data: bytes, limits: ImageLimits | None = None) -> Float32Array:
        """Encoded image -> grey float32 (h, w) in [0, 1] at working size."""
        return image.decode(data, self.config.max_side, limits)

    def describe(self, gray: Float32Array) -> Float32Array:
        """Grey image (h, w) -> descriptors (rows, cols, 128)."""
        return sift.describe(gray, self.config.descriptor)

    def encode(self, descriptors: Float32Array) -> Codes:
        """Descriptors (n, 128) -> codes; rejects what is not finite or not 128 wide."""
        found = Descriptors.of(_valid_descriptors(descriptors))

        def fill(codes: Codes, lengths: Float32Array, begin: int, end: int) -> None:
            self._encode_into(codes, lengths, slice(begin, end), found.part(slice(begin, end)))

        return self._coded(fill, len(found))

    def encode_image(
        self, gray: Float32Array, watch: Stopwatch | None = None
    ) -> tuple[Codes, tuple[int, int]]:
        """Grey image (h, w) -> codes of its descriptors, and their grid (rows, cols).

        Each thread describes the rows that it codes, because they are still in its cache
        and because waking a thread twice takes long. `watch` times the first thread.
        """
        height, width = gray.shape
        rows, cols = sift.grid_shape(height, width, self.config.descriptor)

        def fill(codes: Codes, lengths: Float32Array, begin: int, end: int) -> None:
            descriptors = sift.locate(gray, self.config.descriptor, begin, end).descriptors
            if watch is not None and begin == 0:
                watch.lap("sift")
            self._encode_into(codes, lengths, slice(begin * cols, end * cols), descriptors)

        codes = self._coded(fill, rows, cols)
        if watch is not None:
            watch.lap("coding")
        return codes, (rows, cols)

    def _coded(
        self, fill: Callable[[Codes, Float32Array, int, int], None], size: int, width: int = 1
    ) -> Codes:
        """Codes of `size` rows of `width` descriptors; each thread fills some of the rows."""
        codes = Codes.empty(np.empty(size * width, np.int32), self.config.nonzeros)
        lengths = np.empty(size * width, np.float32)
        self.threads.split(partial(fill, codes, lengths), size)
        _check_lengths(lengths)
        return codes

    def _encode_into(
        self, codes: Codes, lengths: Float32Array, rows: slice, descriptors: Descriptors
    ) -> None:
        """Fill some rows of `codes` and `lengths` with the codes of `descriptors`."""
        codes = codes.part(rows)
        if isinstance(self.hash, Tree):
            encode_by_tree(descriptors, self.hash, self.coder, codes, lengths[rows])
        else:
            codes.leaf_ids[:] = self.hash.route(descriptors)
            lengths[rows] = self.coder.encode_into(codes, descriptors)

    def pool(self, codes: Codes, grid: tuple[int, int]) -> Float32Array:
        """Codes of a grid of (rows, cols) descriptors -> pooled vector (n_features,)."""
        _check_codes(codes, grid, self.config)
        return pooling.pool(codes, grid, self.config, self.threads)

    def pooled_vector(
        self, data: bytes, limits: ImageLimits | None = None, watch: Stopwatch | None = None
    ) -> Float32Array:
        """Encoded image -> pooled vector (n_features,)."""
        watch = watch or Stopwatch()
        gray = self.decode(data, limits)
        watch.lap("decode")
        # Not `pool`: these codes are the engine's own and need no check.
        pooled = pooling.pool(*self.encode_image(gray, watch), self.config, self.threads)
        watch.lap("pooling")
        return pooled


class Engine(FeatureExtractor):
    """One bundle, ready to classify images and to code descriptors."""

    def __init__(self, bundle: Bundle, threads: int = 1) -> None:
        tensors, config = bundle.tensors, bundle.manifest.config
        super().__init__(
            config, hash_from_tensors(config, tensors), Coder.from_tensors(tensors), threads
        )
        self.manifest: Manifest = bundle.manifest
        self.classifier = LinearClassifier.from_tensors(tensors)

    @classmethod
    def load(cls, source: str | os.PathLike[str] | BundleFiles, threads: int = 1) -> "Engine":
        """The engine of the bundle in a version folder, its probes replayed.

        `threads` work on one image together; their number does not change any answer.
        """
        files = BundleFiles.of(source)
        engine = cls(read_bundle(files), threads)
        engine.replay_probes(str(files.folder))
        return engine

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the classifier, in the order of the scores."""
        return self.manifest.labels

    def scores(
        self, data: bytes, limits: ImageLimits | None = None, watch: Stopwatch | None = None
    ) -> Float32Array:
        """Encoded image -> scores (n_labels,); `watch` records how long each stage took."""
        watch = watch or Stopwatch()
        scores = self.classifier.scores(self.pooled_vector(data, limits, watch))
        watch.lap("classifier")
        return scores

    def classify(
        self, data: bytes, top_k: int = 5, limits: ImageLimits | None = None
    ) -> tuple[Prediction, ...]:
        """Encoded image -> the `top_k` best labels with probabilities, best first."""
        return self.rank(self.scores(data, limits), top_k)

    def rank(self, scores: Float32Array, top_k: int = 5) -> tuple[Prediction, ...]:
        """Scores (n_labels,) -> the `top_k` best labels with probabilities, best first."""
        return ranking.rank(scores, self.labels, self.config.probability_scale, top_k)

    def replay_probes(self, where: str) -> None:
        """Raise `BundleError` unless every probe image gets the scores it had in training."""
        for number, probe in enumerate(self.manifest.probes):
            try:
                found = self.scores(probe.image)
            except ImageError as error:
                raise BundleError(f"{where}: probe {number} is no usable image: {error}") from error
            if len(probe.scores) != len(self.labels):
                raise BundleError(
                    f"{where}: probe {number} has {len(probe.scores)} scores, "
                    f"expected {len(self.labels)}"
                )
            difference = float(np.abs(found - np.asarray(probe.scores)).max())
            allowed = _PROBE_TOLERANCE * max(1.0, float(np.abs(found).max()))
            if not difference <= allowed < np.inf:
                raise BundleError(
                    f"{where}: probe {number} scores differ by {difference:.2g} from the "
                    f"manifest's, expected at most {allowed:.2g}"
                )
        logger.debug("%s: %d probes replayed", where, len(self.manifest.probes))


def _check_codes(codes: Codes, grid: tuple[int, int], config: EngineConfig) -> None:
    """Reject what would make pooling, which checks nothing, write beyond its arrays."""
    count = codes.leaf_ids.shape[0]
    if min(grid) < 0 or grid[0] * grid[1] != count:
        raise DescriptorError(f"{count} codes do not fill a grid of {grid[0]}x{grid[1]}")
    expected = (count, config.nonzeros)
    for name, column in (("atom ids", codes.atom_ids), ("values", codes.values)):
        if column.shape != expected:
            raise DescriptorError(
                f"{name} have the shape {list(column.shape)}, expected {list(expected)}"
            )
    if count and not 0 <= codes.atom_ids.min() <= codes.atom_ids.max() < config.n_atoms:
        raise DescriptorError(
            f"codes name atoms {codes.atom_ids.min()} to {codes.atom_ids.max()}, "
            f"expected 0 to {config.n_atoms - 1}"
        )


def _check_lengths(lengths: Float32Array) -> None:
    if not np.isfinite(lengths).all():
        first = int(np.flatnonzero(~np.isfinite(lengths))[0])
        raise DescriptorError(
            f"descriptor {first} has no finite norm, expected finite values "
            "whose squares add up to a float32"
        )


def _valid_descriptors(descriptors: object) -> Float32Array:
    try:
        with np.errstate(over="ignore"):  # becomes infinite, which is rejected by its norm
            array = np.asarray(descriptors, dtype=np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise DescriptorError(f"descriptors are not an array of numbers: {error}") from error
    if array.ndim != 2 or array.shape[1] != DESCRIPTOR_WIDTH:
        raise DescriptorError(
            f"descriptors have the shape {list(array.shape)}, expected [n, {DESCRIPTOR_WIDTH}]"
        )
    return array
