"""A view of an image: its descriptors on a grid, and the leaves that they are sent to.

Blocks that read the same view share both.
"""

from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from service.engine import description, pooling, strips
from service.engine.arrays import BoolArray, Float32Array, frozen
from service.engine.blocks import CodesBlock, ResidualsBlock
from service.engine.classifier import SharedScores
from service.engine.codes import Codes
from service.engine.coding import Coder
from service.engine.config import DESCRIPTOR_WIDTH, ViewConfig
from service.engine.encoding import (
    Encoded,
    Outputs,
    ResidualSums,
    Room,
    Routed,
    TreeCoder,
    Work,
    band_room,
    coded_grid,
    encode_by_tree,
    take_strips,
)
from service.engine.errors import DescriptorError
from service.engine.fixedpoint import Descriptors
from service.engine.hashing import Hash
from service.engine.image import Picture
from service.engine.kernels.encoding import Grid
from service.engine.kernels.layers import Sums
from service.engine.kernels.strips import Decoding
from service.engine.stopwatch import Stopwatch
from service.engine.threads import Threads
from service.engine.tree import Tree

__all__ = ["ImageCoding", "View"]

_NO_DESCRIPTORS = Descriptors.of(np.empty((0, DESCRIPTOR_WIDTH), np.float32))

# The square of a length beyond this is not finite in float32.
_LONGEST = np.float32(2.0**64)


@dataclass(frozen=True)
class View:
    """The configuration of a view, its hash, and the blocks that read it."""

    config: ViewConfig
    hash: Hash
    codes: CodesBlock | None = None
    residuals: ResidualsBlock | None = None

    def encode(self, descriptors: Descriptors, threads: Threads) -> Codes:
        """Codes of descriptors that need not come from an image, and so may have signs."""
        outputs = self._encode(descriptors, threads)
        lengths = outputs.lengths
        if not _are_usable(lengths).all():
            places = np.flatnonzero(~np.isfinite(lengths))
            # Perhaps because of signs; codes of all others are to be the same as ever.
            again = self._widened._encode(descriptors.at(places), threads)  # noqa: SLF001
            outputs.put(places, again)
            _check_lengths(outputs.lengths)
        return outputs.codes

    def _encode(self, descriptors: Descriptors, threads: Threads) -> Outputs:
        count, outputs = len(descriptors), Outputs.of_list(len(descriptors), self.nonzeros)
        if self.by is not None:
            shared = strips.cut(count, 1, threads.count)
            encode = partial(encode_by_tree, descriptors, self.by, outputs, None, shared)
            threads.help(encode, strips.parts(shared))
            encode()
        else:
            self._encode_by_hash(descriptors, outputs)
        return outputs

    def _encode_by_hash(self, descriptors: Descriptors, outputs: Outputs) -> None:
        """Fill the outputs of descriptors on their grid; any hash will do."""
        written = outputs.written
        written.leaf_ids[:] = self.hash.route(descriptors)
        if self.coder is not None:
            fixed = descriptors.fixed(wide=self.coder.wide)
            written.steps[:], written.norms[:] = fixed.steps, fixed.norms
            rows, cols, stride = outputs.grid
            taken = np.arange(rows * cols).reshape(rows, cols)[::stride, ::stride].reshape(-1)
            self.coder.encode_into(outputs.codes, descriptors.at(taken).fixed(wide=self.coder.wide))

    @cached_property
    def by(self) -> TreeCoder | None:
        """The tree with the coder of its leaves; None if the hash is no tree."""
        return TreeCoder(self.hash, self.coder) if isinstance(self.hash, Tree) else None

    @property
    def is_early(self) -> bool:
        """Whether an image's first rows can be encoded before the others are there."""
        return self.by is not None and description.is_early(self.config)

    @property
    def coder(self) -> Coder | None:
        """The coder of the view's block of codes."""
        return None if self.codes is None else self.codes.coder

    @property
    def nonzeros(self) -> int:
        """How many atoms a code may use; none without a block of codes."""
        return 0 if self.codes is None else self.codes.config.nonzeros

    @property
    def stride(self) -> int:
        """One of how many descriptors, in each direction, is coded."""
        return 1 if self.codes is None else self.codes.config.stride

    @cached_property
    def _widened(self) -> "View":
        """The same view for wide directions, which takes memory only where it is asked for."""
        hash_ = self.hash.widened() if isinstance(self.hash, Tree) else self.hash
        codes = self.codes and replace(self.codes, coder=self.codes.coder.widened())
        return replace(self, hash=hash_, codes=codes)

    def encode_image(  # noqa: PLR0913  # an image, who works on it, and what else they do
        self,
        picture: Picture,
        threads: Threads,
        watch: Stopwatch,
        *,
        keep: bool = False,
        begun: "ImageCoding | None" = None,
        scores: SharedScores | None = None,
    ) -> Encoded:
        """The codes of an image's descriptors, and sums of their residuals.

        `watch` shares the elapsed time as all threads' stages do theirs. `keep` says whether codes
        and descriptors are kept. `begun` is what other threads do for this view of the picture
        since its decoding began. They help with `scores` when they are done here.
        """
        if begun is not None:
            return begun.finish(watch)
        copy = description.image_copy(picture, self.config)
        grid = Grid(*description.grid_shape(copy, self.config), self.stride)
        located = None if grid.rows else _NO_DESCRIPTORS
        if located is None and (keep or self.by is None or not self._is_in_bands):
            located = description.locate(copy, self.config)
            watch.lap("sift")
        if self.by is None:
            return self._encode_image_by_hash(located or _NO_DESCRIPTORS, grid, watch)
        shared = strips.cut(grid.rows, grid.cols, threads.count)
        image = () if located is not None else (frozen(copy),)
        work = Work(shared, grid, self.by, self._sums(grid, threads.count), *image)
        coding = ImageCoding(self, work, located, scores)
        threads.help(coding.help, strips.parts(shared))
        return coding.finish(watch)

    def _sums(self, grid: Grid, threads: int) -> Sums:
        """Room for what each of some threads finds of a grid."""
        by, codes, residuals = self.by, self.codes, self.residuals
        assert by is not None  # noqa: S101  # only trees are walked by several threads
        sums, finest, rule = None, None, 0
        if residuals is not None:
            sums = residuals.sums((grid.rows, grid.cols), threads)
        if codes is not None:
            finest = pooling.room_for_maxima(codes.config, threads)
            rule = pooling.sign_rule(codes.config)
        return by.sums(sums, finest, rule)

    @cached_property
    def _is_in_bands(self) -> bool:
        return description.is_in_bands(self.config)

    def _encode_image_by_hash(
        self, descriptors: Descriptors, grid: Grid, watch: Stopwatch
    ) -> Encoded:
        outputs = Outputs.empty(grid, self.nonzeros)
        self._encode_by_hash(descriptors, outputs)
        watch.lap("coding")
        routed = Routed((grid.rows, grid.cols), descriptors, outputs.written.leaf_ids)
        return Encoded(outputs.codes, coded_grid(grid), routed=routed)

    def begin_image(
        self,
        gray: Float32Array,
        decoding: Decoding,
        threads: int,
        scores: SharedScores | None = None,
    ) -> "ImageCoding":
        """An image, which an early view is of, for threads that encode its rows as they come.

        They help with `scores` when they are done.
        """
        assert self.by is not None  # noqa: S101  # or it would not be early
        grid = Grid(*description.grid_shape(gray, self.config), self.stride)
        shared = strips.cut(grid.rows, grid.cols, threads, pixel_rows=0)
        sums = self._sums(grid, threads)
        work = Work(shared, grid, self.by, sums, frozen(gray), decoding)
        return ImageCoding(self, work, scores=scores)


class ImageCoding:
    """One view of an image, whose strips one thread or several take.

    Its descriptors are computed band by band unless they are `located` already; these are kept,
    with their codes. Threads that find no more rows help with `scores`.
    """

    def __init__(
        self,
        view: View,
        work: Work,
        located: Descriptors | None = None,
        scores: SharedScores | None = None,
    ) -> None:
        self._view, self._work, self._located, self._scores = view, work, located, scores
        self._outputs = None if located is None else Outputs.empty(work.grid, view.nonzeros)

    def show_rows(self, pixel_rows: int | None = None) -> None:
        """So many rows of the image are there now, or all."""
        strips.show_rows(self._work.strips, pixel_rows)

    def give_up(self) -> None:
        """No more rows will come."""
        if self._scores is not None:
            self._scores.give_up()
        strips.give_up(self._work.strips)

    def help(self) -> None:
        """Take rows until there are none, then parts of the scores."""
        take_strips(self._work, self._room(), waits=False)
        if self._scores is not None:
            self._scores.help()

    def finish(self, watch: Stopwatch) -> Encoded:
        """Take strips until there is none; what all threads found, when all are done."""
        take_strips(self._work, self._room(), waits=True)
        work, codes, routed = self._work, None, None
        sift, coding, pooling = strips.times(work.strips)
        watch.share({"sift": sift, "coding": coding, "pooling": pooling})
        if self._located is not None and self._outputs is not None:
            grid, leaf_ids = (work.grid.rows, work.grid.cols), self._outputs.written.leaf_ids
            codes, routed = self._outputs.codes, Routed(grid, self._located, leaf_ids)
        finest = None if self._view.codes is None else work.sums.finest[0]
        sums = None if self._view.residuals is None else ResidualSums.of(work.sums)
        return Encoded(codes, coded_grid(work.grid), finest, sums, routed)

    def _room(self) -> Room:
        work, step = self._work, self._view.config.step
        if self._located is None or self._outputs is None:
            return band_room(work.gray.shape[1], step, work.strips.band, work.by.kind)
        return Room.of(self._located, work.by, self._outputs)


def _are_usable(lengths: Float32Array) -> BoolArray:
    return lengths < _LONGEST  # which what is no number is not


def _check_lengths(lengths: Float32Array) -> None:
    is_usable = _are_usable(lengths)
    if not is_usable.all():
        first = int(np.flatnonzero(~is_usable)[0])
        raise DescriptorError(
            f"descriptor {first} has no finite norm, expected finite values "
            "whose squares add up to a float32"
        )
