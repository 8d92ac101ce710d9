"""A view of an image: its descriptors on a grid, and the leaves that they are sent to.

Blocks that read the same view share both.
"""

from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce

import numpy as np

from service.engine import description, pooling, sift, strips
from service.engine.arrays import BoolArray, Float32Array
from service.engine.blocks import CodesBlock, ResidualsBlock
from service.engine.codes import Codes
from service.engine.coding import Coder
from service.engine.config import DESCRIPTOR_WIDTH, ViewConfig
from service.engine.encoding import (
    Encoded,
    Found,
    Outputs,
    ResidualSums,
    Routed,
    TreeCoder,
    coded_grid,
    encode_by_tree,
    given,
    take_strips,
)
from service.engine.errors import DescriptorError
from service.engine.fixedpoint import Descriptors
from service.engine.hashing import Hash
from service.engine.image import Picture
from service.engine.kernels.encoding import CODING, POOLING, SIFT, Grid, Source
from service.engine.kernels.strips import NOT_DECODING, Decoding, Strips
from service.engine.stopwatch import Stopwatch
from service.engine.threads import Threads
from service.engine.tree import Tree

__all__ = ["ImageCoding", "View"]

_NO_DESCRIPTORS = Descriptors.of(np.empty((0, DESCRIPTOR_WIDTH), np.float32))

# The first strip of an image that is still being decoded, as a part of all rows: not more than is
# there when others are told of rows for the first time.
_FIRST_SHARE = 0.15

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
        if isinstance(self.hash, Tree):
            by, shared = TreeCoder(self.hash, self.coder), strips.cut(count, 1, threads.count)
            encode = partial(encode_by_tree, descriptors, by, outputs, None, shared)
            threads.help(encode, strips.count(shared))
            encode()
        else:
            self._encode_by_hash(descriptors, outputs)
        return outputs

    def _encode_by_hash(self, descriptors: Descriptors, outputs: Outputs) -> None:
        """Fill the outputs of descriptors on their grid; any hash will do."""
        outputs.leaf_ids[:] = self.hash.route(descriptors)
        if self.coder is not None:
            fixed = descriptors.fixed(wide=self.coder.wide)
            outputs.steps[:], outputs.norms[:] = fixed.steps, fixed.norms
            rows, cols, stride = outputs.grid
            taken = np.arange(rows * cols).reshape(rows, cols)[::stride, ::stride].reshape(-1)
            self.coder.encode_into(outputs.codes, descriptors.at(taken).fixed(wide=self.coder.wide))

    @property
    def is_early(self) -> bool:
        """Whether an image's first rows can be encoded before the others are there."""
        return isinstance(self.hash, Tree) and description.is_early(self.config)

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

    def encode_image(
        self,
        picture: Picture,
        threads: Threads,
        watch: Stopwatch,
        *,
        keep: bool = False,
        begun: "ImageCoding | None" = None,
    ) -> Encoded:
        """The codes of an image's descriptors, and sums of their residuals.

        `watch` shares the elapsed time as all threads' stages do theirs. `keep` says whether codes
        and descriptors are kept. `begun` is what other threads do for this view of the picture
        since its decoding began.
        """
        if begun is not None:
            return begun.finish(watch)
        copy = description.image_copy(picture, self.config)
        grid = Grid(*description.grid_shape(copy, self.config), self.stride)
        has_tree = isinstance(self.hash, Tree)
        located = None if grid.rows else _NO_DESCRIPTORS
        if located is None and (keep or not has_tree or not description.is_in_bands(self.config)):
            located = description.locate(copy, self.config)
            watch.lap("sift")
        if located is not None and not has_tree:
            return self._encode_image_by_hash(located, grid, watch)
        shared = strips.cut(grid.rows, grid.cols, threads.count)
        coding = ImageCoding(self, copy, grid, shared, located, keep=keep)
        threads.help(coding.help, strips.count(shared))
        return coding.finish(watch)

    def _encode_image_by_hash(
        self, descriptors: Descriptors, grid: Grid, watch: Stopwatch
    ) -> Encoded:
        outputs = Outputs.empty(grid, self.nonzeros)
        self._encode_by_hash(descriptors, outputs)
        watch.lap("coding")
        routed = Routed((grid.rows, grid.cols), descriptors, outputs.leaf_ids)
        return Encoded(outputs.codes, coded_grid(grid), routed=routed)

    def begin_image(
        self, gray: Float32Array, threads: Threads, decoding: Decoding = NOT_DECODING
    ) -> "ImageCoding":
        """Let other threads encode an image, which an early view is of, as its rows come."""
        grid = Grid(*description.grid_shape(gray, self.config), self.stride)
        first = max(int(_FIRST_SHARE * grid.rows), 1)
        shared = strips.cut(grid.rows, grid.cols, threads.count, first, pixel_rows=0)
        coding = ImageCoding(self, gray, grid, shared, decoding=decoding)
        threads.help(coding.help, strips.count(shared))
        return coding


class ImageCoding:
    """One view of an image, whose strips one thread or several take.

    Its descriptors are computed band by band unless they are `located` already. They and their
    codes are left when all is done if it is to `keep` them. `decoding` lets threads see the rows
    of the image come.
    """

    def __init__(  # noqa: PLR0913  # what it works on, and how
        self,
        view: View,
        copy: Float32Array,
        grid: Grid,
        shared: Strips,
        located: Descriptors | None = None,
        *,
        keep: bool = False,
        decoding: Decoding = NOT_DECODING,
    ) -> None:
        self._view, self._copy, self._decoding = view, copy, decoding
        self._grid, self._strips, self._located = grid, shared, located
        self._kept = Outputs.empty(grid, view.nonzeros) if keep else None
        block = view.residuals
        self._regions = None if block is None else block.regions((grid.rows, grid.cols))
        self._found: list[Found] = []

    def show_rows(self, pixel_rows: int | None = None) -> None:
        """So many rows of the image are there now, or all."""
        strips.show_rows(self._strips, pixel_rows)

    def give_up(self) -> None:
        """No more rows will come."""
        strips.give_up(self._strips)

    def help(self) -> None:
        """Take strips until there is none."""
        self._take_strips(waits=False)

    def finish(self, watch: Stopwatch) -> Encoded:
        """Take strips until there is none, and join what all threads found when all are done."""
        self._take_strips(waits=True)
        found = list(self._found)
        times = [sum(times) for times in zip(*(each.laps.tolist() for each in found), strict=True)]
        watch.share({"sift": times[SIFT], "coding": times[CODING], "pooling": times[POOLING]})
        codes = None if self._kept is None else self._kept.codes
        encoded = Encoded(
            codes,
            coded_grid(self._grid),
            self._finest(found),
            self._sums(found),
            self._routed(),
        )
        watch.lap("pooling")
        return encoded

    def _take_strips(self, *, waits: bool) -> None:
        view, codes = self._view, self._view.codes
        assert isinstance(view.hash, Tree)  # noqa: S101  # other views have no strips
        found = Found.nothing(
            self._no_sums(),
            None if codes is None else pooling.no_maxima(codes.config),
            0 if codes is None else pooling.sign_rule(codes.config),
        )
        self._found.append(found)
        if strips.count(self._strips):
            by = TreeCoder(view.hash, view.coder)
            outputs = self._kept or Outputs.of_bands(self._grid, view.nonzeros, self._strips.band)
            take_strips(self._strips, self._source(), by, outputs, found, waits=waits)

    def _source(self) -> Source:
        if self._located is not None:
            return given(self._located)
        step, band = self._view.config.step, self._strips.band
        return sift.in_bands(self._copy, step, band, self._decoding)

    def _no_sums(self) -> ResidualSums | None:
        block = self._view.residuals
        return None if block is None or self._regions is None else block.sums(self._regions)

    def _finest(self, found: list[Found]) -> Float32Array | None:
        if self._view.codes is None:
            return None
        return reduce(np.maximum, (each.finest for each in found))

    def _sums(self, found: list[Found]) -> ResidualSums | None:
        """The sums over all strips. They are of integers, so that their order does not matter."""
        if self._view.residuals is None:
            return None
        whole, *others = (each.sums for each in found)
        for other in others:
            whole.add(other)
        return whole

    def _routed(self) -> Routed | None:
        descriptors, kept = self._located, self._kept
        if descriptors is None or kept is None:
            return None
        return Routed((self._grid.rows, self._grid.cols), descriptors, kept.leaf_ids)


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
