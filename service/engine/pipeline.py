"""The road that data takes, in one place.

bytes - image - descriptors - leaf ids - codes - pooled vector - scores - labels

Training and serving both go through `Engine`, starting from encoded bytes, so that
they cannot drift apart.
"""

import logging
import os
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from service.engine import description, image, ranking
from service.engine.arrays import Float32Array, Tensors
from service.engine.blocks import Block, CodesBlock, ResidualsBlock, block_from_tensors
from service.engine.bundle import Bundle, BundleFiles, read_bundle
from service.engine.checks import check_codes, valid_descriptors
from service.engine.classifier import LinearClassifier, SharedScores
from service.engine.codes import Codes
from service.engine.coding import Coder
from service.engine.config import EXPLANATION_CELLS, EngineConfig
from service.engine.early_start import EarlyStart
from service.engine.encoding import Encoded
from service.engine.errors import BundleError, ImageError, LabelError
from service.engine.explanation import DescribedImage, Explanation, map_block
from service.engine.fixedpoint import Descriptors
from service.engine.freed_memory import keep_freed_memory
from service.engine.hashing import Hash, hash_from_tensors
from service.engine.image import Picture
from service.engine.image_limits import ImageLimits
from service.engine.jpeg_rows import OnRows
from service.engine.manifest import Manifest
from service.engine.ranking import Prediction, ScoredImage
from service.engine.stopwatch import Stopwatch
from service.engine.tensor_names import block_prefix, part_of, prefixed, view_prefix
from service.engine.threads import Threads
from service.engine.views import View

__all__ = ["Engine", "FeatureExtractor"]

logger = logging.getLogger(__name__)

# Another CPU may round a descriptor across a threshold of the tree; measured, that
# moves a score in the fourth digit, while a wrong tensor moves it in the first. Of the
# probe's largest score if that exceeds one: those of a logistic classifier reach tens.
_PROBE_TOLERANCE = 5e-3

_QUOTED_LENGTH = 80


class FeatureExtractor:
    """Bytes to pooled vector: all of the engine that needs no classifier.

    `hashes` belong to the views of the configuration and `blocks` to its blocks, in its order.
    """

    def __init__(
        self,
        config: EngineConfig,
        hashes: Sequence[Hash],
        blocks: Sequence[Block],
        threads: int = 1,
    ) -> None:
        # Here, so that every process that goes this road is as fast as a worker.
        keep_freed_memory()
        self.config = config
        self.blocks = tuple(blocks)
        self.views = tuple(
            View(view, hash_, *_blocks_of(blocks, number))
            for number, (view, hash_) in enumerate(zip(config.views, hashes, strict=True))
        )
        self.threads = Threads(threads)
        self._early_view = next((view for view in self.views if view.is_early), None)
        codes = self.views[config.codes.view].codes
        assert codes is not None  # noqa: S101  # the configuration was checked
        self._codes = codes

    @classmethod
    def from_tensors(cls, config: EngineConfig, tensors: Tensors) -> "FeatureExtractor":
        """The extractor that tensors hold, by the names of `tensors`."""
        return FeatureExtractor(config, *_parts(config, tensors))

    def weighted(
        self,
        weights: Sequence[float],
        probability_scale: float = 1.0,
        known_threshold: float | None = None,
    ) -> "FeatureExtractor":
        """The same views and blocks with other weights; those that weigh nothing are left out."""
        pairs = [(b, weight) for b, weight in zip(self.blocks, weights, strict=True) if weight]
        read = sorted({block.config.view for block, _ in pairs})
        blocks = [b.placed(read.index(b.config.view), weight) for b, weight in pairs]
        config = replace(
            self.config,
            views=tuple(self.config.views[number] for number in read),
            blocks=tuple(block.config for block in blocks),
            probability_scale=probability_scale,
            known_threshold=known_threshold,
        )
        hashes = [self.views[number].hash for number in read]
        return FeatureExtractor(config, hashes, blocks, self.threads.count)

    @property
    def view(self) -> View:
        """The view of the first block of codes."""
        return self.views[self._codes.config.view]

    @property
    def hash(self) -> Hash:
        """The hash of the first block of codes."""
        return self.view.hash

    @property
    def coder(self) -> Coder:
        """The coder of the first block of codes."""
        return self._codes.coder

    def tensors(self) -> Tensors:
        """The tensors that a bundle stores of views and blocks, by name."""
        parts = [
            *(prefixed(view_prefix(i), view.hash.tensors()) for i, view in enumerate(self.views)),
            *(prefixed(block_prefix(i), block.tensors()) for i, block in enumerate(self.blocks)),
        ]
        return {name: tensor for part in parts for name, tensor in part.items()}

    def decode(self, data: bytes, limits: ImageLimits | None = None) -> Float32Array:
        """Encoded image -> grey float32 (h, w) in [0, 1] at working size."""
        return image.decode(data, self.config.max_side, limits)

    def decode_picture(
        self, data: bytes, limits: ImageLimits | None = None, on_rows: OnRows | None = None
    ) -> Picture:
        """Encoded image -> picture at working size, in colour if a view reads colours."""
        if self.config.needs_colour:
            return image.decode_picture(data, self.config.max_side, limits, on_rows)
        return Picture(image.decode(data, self.config.max_side, limits, on_rows))

    def describe(self, gray: Float32Array) -> Float32Array:
        """Grey image (h, w) -> descriptors (rows, cols, 128) of the first block of codes."""
        return description.describe(Picture(gray), self.view.config)

    def encode(self, descriptors: Float32Array) -> Codes:
        """Descriptors (n, 128) -> codes of the first block of codes.

        What is not finite or not 128 wide is rejected.
        """
        return self.view.encode(Descriptors.of(valid_descriptors(descriptors)), self.threads)

    def pool(self, codes: Codes, grid: tuple[int, int]) -> Float32Array:
        """Codes of a grid of (rows, cols) descriptors -> first block of codes (n_features,)."""
        check_codes(codes, grid, self.config.codes)
        stride = self.config.codes.stride
        taken = np.arange(grid[0] * grid[1]).reshape(grid)[::stride, ::stride]
        rows, cols = taken.shape
        return self._codes.pool(Encoded(codes.at(taken.reshape(-1)), (rows, cols)))

    def pooled_vector(
        self, data: bytes, limits: ImageLimits | None = None, watch: Stopwatch | None = None
    ) -> Float32Array:
        """Encoded image -> pooled vector (n_features,)."""
        pooled = np.empty(self.config.n_features, np.float32)
        self._decode_and_pool(data, limits, watch or Stopwatch(), pooled)
        return pooled

    def _decode_and_pool(
        self,
        data: bytes,
        limits: ImageLimits | None,
        watch: Stopwatch,
        pooled: Float32Array,
        scores: SharedScores | None = None,
    ) -> bool:
        """Fill the pooled vector (n_features,) of an encoded image; whether it is blank.

        Other threads begin with the first rows of the image while the others are decoded. When
        they have done the last view, they help with `scores`.
        """
        *others, last = self.views
        is_last = self._early_view is last
        early = EarlyStart(self._early_view, self.threads, scores if is_last else None)
        with early:
            picture = self.decode_picture(data, limits, early.on_rows)
        is_blank = picture.is_blank  # looked at while it is in the cache
        watch.lap("decode")
        encoded = [
            view.encode_image(picture, self.threads, watch, begun=early.begun_for(view))
            for view in others
        ]
        begun = early.begun_for(last)
        encoded.append(last.encode_image(picture, self.threads, watch, begun=begun, scores=scores))
        self.pool_encoded(encoded, watch, pooled)
        return is_blank

    def pool_picture(self, picture: Picture, watch: Stopwatch | None = None) -> Float32Array:
        """Picture at working size -> pooled vector (n_features,)."""
        watch = watch or Stopwatch()
        encoded = [view.encode_image(picture, self.threads, watch) for view in self.views]
        return self.pool_encoded(encoded, watch)

    def pool_encoded(
        self, encoded: Sequence[Encoded], watch: Stopwatch, out: Float32Array | None = None
    ) -> Float32Array:
        """What the views of an image gave -> pooled vector (n_features,), filled into `out`."""
        pooled = np.empty(self.config.n_features, np.float32) if out is None else out
        for block, place in zip(self.blocks, self.config.slices, strict=True):
            part = block.pool(encoded[block.config.view], pooled[place])
            if block.config.weight != 1:
                part *= np.float32(block.config.weight)
        watch.lap("pooling")
        return pooled


def _parts(config: EngineConfig, tensors: Tensors) -> tuple[list[Hash], list[Block]]:
    """The hashes of a configuration's views and its blocks, from tensors; nothing is copied."""
    return (
        [
            hash_from_tensors(view, part_of(tensors, view_prefix(number)))
            for number, view in enumerate(config.views)
        ],
        [
            block_from_tensors(block, part_of(tensors, block_prefix(number)))
            for number, block in enumerate(config.blocks)
        ],
    )


def _blocks_of(
    blocks: Sequence[Block], view: int
) -> tuple[CodesBlock | None, ResidualsBlock | None]:
    """The blocks that read a view, of each kind."""
    own = [block for block in blocks if block.config.view == view]
    return (
        next((block for block in own if isinstance(block, CodesBlock)), None),
        next((block for block in own if isinstance(block, ResidualsBlock)), None),
    )


class Engine(FeatureExtractor):
    """One bundle, ready to classify images and to code descriptors."""

    def __init__(self, bundle: Bundle, threads: int = 1) -> None:
        tensors, config = bundle.tensors, bundle.manifest.config
        super().__init__(config, *_parts(config, tensors), threads)
        self.manifest: Manifest = bundle.manifest
        self.classifier = LinearClassifier.from_tensors(config, tensors)

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
        return self.score(data, limits, watch).scores

    def score(
        self, data: bytes, limits: ImageLimits | None = None, watch: Stopwatch | None = None
    ) -> ScoredImage:
        """Encoded image -> its scores, and what else tells whether it is known."""
        watch = watch or Stopwatch()
        pooled = np.empty(self.config.n_features, np.float32)
        shared = self.classifier.begin(pooled)
        is_blank = self._decode_and_pool(data, limits, watch, pooled, shared)
        scores = shared.finish()
        watch.lap("classifier")
        return ScoredImage(scores, is_blank)

    def is_known(self, image: ScoredImage) -> bool:
        """Whether an image looks like one of the classes, by the bundle's threshold."""
        threshold = self.config.known_threshold
        return bool(ranking.are_known(image.scores, image.is_blank, threshold))

    def classify(
        self, data: bytes, top_k: int = 5, limits: ImageLimits | None = None
    ) -> tuple[Prediction, ...]:
        """Encoded image -> the `top_k` best labels with probabilities, best first."""
        return self.rank(self.scores(data, limits), top_k)

    def explain(
        self,
        data: bytes,
        label: str | None = None,
        against: str | None = None,
        limits: ImageLimits | None = None,
    ) -> Explanation:
        """Encoded image -> where the score of a label, the best one unless named, comes from.

        With `against`, where the difference to the score of that label comes from.
        """
        return self.explained_scores(data, label, against, limits)[1]

    def explained_scores(
        self,
        data: bytes,
        label: str | None = None,
        against: str | None = None,
        limits: ImageLimits | None = None,
        watch: Stopwatch | None = None,
    ) -> tuple[ScoredImage, Explanation]:
        """Encoded image -> its scores, and what `explain` tells of them."""
        watch = watch or Stopwatch()
        chosen, other = (
            None if name is None else self._label_id(name) for name in (label, against)
        )
        picture = self.decode_picture(data, limits)
        watch.lap("decode")
        encoded = [
            view.encode_image(picture, self.threads, watch, keep=True) for view in self.views
        ]
        pooled = self.pool_encoded(encoded, watch)
        scores = self.classifier.scores(pooled)
        watch.lap("classifier")
        chosen = int(scores.argmax()) if chosen is None else chosen
        height, width = picture.gray.shape
        image = DescribedImage(height, width, self.views, encoded)
        found = self._explanation(chosen, other, scores, pooled, image)
        watch.lap("explanation")
        return ScoredImage(scores, picture.is_blank), found

    def _explanation(
        self,
        label: int,
        against: int | None,
        scores: Float32Array,
        pooled: Float32Array,
        image: DescribedImage,
    ) -> Explanation:
        weights, bias, score = (
            self.classifier.weights_of(label, pooled),
            self.classifier.bias[label],
            scores[label],
        )
        if against is not None:
            weights = weights - self.classifier.weights_of(against, pooled)
            bias, score = bias - self.classifier.bias[against], score - scores[against]
        maps = [
            map_block(block, image, pooled[place], weights[place])
            for block, place in zip(self.blocks, self.config.slices, strict=True)
        ]
        return Explanation(
            label=self.labels[label],
            against=None if against is None else self.labels[against],
            score=float(score),
            bias=float(bias),
            cells=sum((item.cells for item in maps), np.zeros((EXPLANATION_CELLS,) * 2)),
            width=image.width,
            height=image.height,
            blocks=tuple(item.share for item in maps),
            atoms=next(item.atoms for item in maps if item.share.kind == "codes"),
        )

    def _label_id(self, label: str) -> int:
        try:
            return self.labels.index(label)
        except ValueError:
            raise LabelError(
                f"label {label[:_QUOTED_LENGTH]!r} is unknown to {self.manifest.name}, "
                f"expected one of its {len(self.labels)} labels"
            ) from None

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
