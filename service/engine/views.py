"""A view of an image: its descriptors on a grid, and the leaves that they are sent to.

Blocks that read the same view share both.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce

import numpy as np

from service.engine import description, pooling
from service.engine.arrays import Float32Array, Int32Array
from service.engine.blocks import CodesBlock, ResidualsBlock
from service.engine.codes import Codes
from service.engine.config import ViewConfig
from service.engine.encoding import (
    Encoded,
    Outputs,
    ResidualSums,
    Routed,
    encode_by_tree,
    every,
)
from service.engine.errors import DescriptorError
from service.engine.fixedpoint import Descriptors
from service.engine.hashing import Hash
from service.engine.image import Picture
from service.engine.stopwatch import Stopwatch
from service.engine.threads import Threads
from service.engine.tree import Tree

__all__ = ["View"]

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
        places = np.flatnonzero(~np.isfinite(outputs.lengths))
        if places.size:  # perhaps because of signs; codes of all others are to be the same as ever
            again = self._widened._encode(descriptors.at(places), threads)  # noqa: SLF001
            outputs.put(places, again)
        _check_lengths(outputs.lengths)
        return outputs.codes

    def _encode(self, descriptors: Descriptors, threads: Threads) -> Outputs:
        outputs = self.outputs(len(descriptors))

        def fill(begin: int, end: int) -> None:
            rows = slice(begin, end)
            self.fill(descriptors.part(rows), outputs.part(rows))

        threads.split(fill, len(descriptors))
        return outputs

    @cached_property
    def _widened(self) -> "View":
        """The same view for wide directions, which takes memory only where it is asked for."""
        hash_ = self.hash.widened() if isinstance(self.hash, Tree) else self.hash
        codes = self.codes and replace(self.codes, coder=self.codes.coder.widened())
        return replace(self, hash=hash_, codes=codes)

    def encode_image(
        self, picture: Picture, threads: Threads, watch: Stopwatch, *, keep: bool = False
    ) -> Encoded:
        """The codes of an image's descriptors, and sums of their residuals.

        Each thread describes, codes and pools its rows, because they are still in its cache
        and because waking a thread twice takes long. `watch` times the first thread. `keep` says
        whether the descriptors are kept.
        """
        copy = description.image_copy(picture, self.config)
        grid = description.grid_shape(copy, self.config)
        image, kept = _ImageCoding(self, grid), dict[int, Descriptors]()

        def fill(begin: int, end: int) -> None:
            own = watch if begin == 0 else Stopwatch()
            descriptors = description.locate(copy, self.config, begin, end)
            own.lap("sift")
            image.fill(descriptors, begin, end)
            own.lap("coding")
            image.pool(begin, end)
            own.lap("pooling")
            if keep:
                kept[begin] = descriptors

        if grid[0] * grid[1]:
            threads.split(fill, grid[0])
        watch.lap("coding")  # by other threads
        encoded = image.encoded()
        watch.lap("pooling")
        if not keep:
            return encoded
        return encoded._replace(routed=image.routed([kept[begin] for begin in sorted(kept)]))

    def outputs(self, count: int) -> Outputs:
        """Room for so many descriptors."""
        return Outputs.empty(count, 0 if self.codes is None else self.codes.config.nonzeros)

    def fill(self, descriptors: Descriptors, outputs: Outputs) -> None:
        """Route and code descriptors; without a block of codes they are only routed."""
        coder = None if self.codes is None else self.codes.coder
        if isinstance(self.hash, Tree):
            encode_by_tree(descriptors, self.hash, coder, outputs)
            return
        outputs.codes.leaf_ids[:] = self.hash.route(descriptors)
        if coder is not None:
            fixed = descriptors.fixed(wide=coder.wide)
            coder.encode_into(outputs.codes, fixed)
            outputs.steps[:], outputs.norms[:] = fixed.steps, fixed.norms


class _ImageCoding:
    """The codes and sums of one image, whose rows are filled by one thread or several.

    With a stride, all descriptors are routed and added up first, then some are coded.
    """

    def __init__(self, view: View, grid: tuple[int, int]) -> None:
        stride = 1 if view.codes is None else view.codes.config.stride
        self._view, self._grid, self._cols, self._stride = view, grid, grid[1], stride
        self._coded_grid = -(-grid[0] // stride), -(-grid[1] // stride)
        self._router = view if stride == 1 else replace(view, codes=None)
        self._routed = self._router.outputs(grid[0] * grid[1])
        coded = self._coded_grid[0] * self._coded_grid[1]
        self._codes = self._routed.codes if stride == 1 else view.outputs(coded).codes
        self._sums = _PartialSums(view.residuals, grid)
        self._finest: list[Float32Array] = []

    def fill(self, descriptors: Descriptors, begin: int, end: int) -> None:
        """Take the descriptors of rows `begin` to `end`."""
        places = slice(begin * self._cols, end * self._cols)
        routed = self._routed.part(places, self._sums.part(places))
        self._router.fill(descriptors, routed)
        if self._stride > 1:
            self._code_some(descriptors, routed.codes.leaf_ids, begin, end)

    def pool(self, begin: int, end: int) -> None:
        """Find the largest values of the codes of rows `begin` to `end`, which are filled."""
        if self._view.codes is None:
            return
        config, first = self._view.codes.config, -(-begin // self._stride)
        codes = self._codes.part(self._coded_places(begin, end))
        self._finest.append(pooling.finest_level(codes, self._coded_grid, config, first))

    def _coded_places(self, begin: int, end: int) -> slice:
        """Where the codes of rows `begin` to `end` are."""
        stride, cols = self._stride, self._coded_grid[1]
        return slice(-(-begin // stride) * cols, -(-end // stride) * cols)

    def _code_some(
        self, descriptors: Descriptors, leaf_ids: Int32Array, begin: int, end: int
    ) -> None:
        taken = every(self._stride, self._cols, begin, end)
        codes = self._codes.part(self._coded_places(begin, end))
        codes.leaf_ids[:] = leaf_ids[taken]
        assert self._view.codes is not None  # noqa: S101  # only codes have a stride
        coder = self._view.codes.coder
        coder.encode_into(codes, descriptors.at(taken).fixed(wide=coder.wide))

    def encoded(self) -> Encoded:
        """What all rows together gave."""
        finest = reduce(np.maximum, self._finest) if self._finest else None
        return Encoded(self._codes, self._coded_grid, finest, self._sums.joined())

    def routed(self, descriptors: Sequence[Descriptors]) -> Routed:
        """These descriptors of all rows with the leaves that they were sent to."""
        return Routed(self._grid, descriptors, self._routed.codes.leaf_ids)


class _PartialSums:
    """Sums of residuals over parts of an image, each by a thread of its own."""

    def __init__(self, block: ResidualsBlock | None, grid: tuple[int, int]) -> None:
        self._block = block
        self._regions = None if block is None else block.regions(grid)
        self._parts: list[ResidualSums] = []

    def part(self, places: slice) -> ResidualSums | None:
        """Sums of nothing yet, for the descriptors at these places."""
        if self._block is None or self._regions is None:
            return None
        sums = self._block.sums(self._regions[places])
        self._parts.append(sums)
        return sums

    def joined(self) -> ResidualSums | None:
        """The sums over all parts. They are of integers, so that their order does not matter."""
        if not self._parts:
            return self.part(slice(0))
        whole, *others = self._parts
        for other in others:
            whole.add(other)
        return whole


def _check_lengths(lengths: Float32Array) -> None:
    is_usable = lengths < _LONGEST  # which what is no number is not
    if not is_usable.all():
        first = int(np.flatnonzero(~is_usable)[0])
        raise DescriptorError(
            f"descriptor {first} has no finite norm, expected finite values "
            "whose squares add up to a float32"
        )
