"""A view of an image: its descriptors on a grid, and the leaves that they are sent to.

Blocks that read the same view share both.
"""

from dataclasses import dataclass

import numpy as np

from service.engine import description
from service.engine.arrays import Float32Array
from service.engine.blocks import CodesBlock, ResidualsBlock
from service.engine.codes import Codes
from service.engine.config import ViewConfig
from service.engine.encoding import Encoded, Outputs, ResidualSums, encode_by_tree
from service.engine.errors import DescriptorError
from service.engine.fixedpoint import Descriptors
from service.engine.hashing import Hash
from service.engine.image import Picture
from service.engine.stopwatch import Stopwatch
from service.engine.threads import Threads
from service.engine.tree import Tree

__all__ = ["View"]


@dataclass(frozen=True)
class View:
    """The configuration of a view, its hash, and the blocks that read it."""

    config: ViewConfig
    hash: Hash
    codes: CodesBlock | None = None
    residuals: ResidualsBlock | None = None

    def encode(self, descriptors: Descriptors, threads: Threads) -> Codes:
        """Codes of descriptors that need not come from an image."""
        codes, lengths = self._empty(len(descriptors))

        def fill(begin: int, end: int) -> None:
            rows = slice(begin, end)
            self._fill(descriptors.part(rows), Outputs(codes.part(rows), lengths[rows]))

        threads.split(fill, len(descriptors))
        _check_lengths(lengths)
        return codes

    def encode_image(self, picture: Picture, threads: Threads, watch: Stopwatch) -> Encoded:
        """The codes of an image's descriptors, and sums of their residuals.

        Each thread describes the rows that it codes, because they are still in its cache
        and because waking a thread twice takes long. `watch` times the first thread.
        """
        copy = description.image_copy(picture, self.config)
        rows, cols = grid = description.grid_shape(copy, self.config)
        codes, lengths = self._empty(rows * cols)
        sums = _PartialSums(self.residuals, grid)

        def fill(begin: int, end: int) -> None:
            descriptors = description.locate(copy, self.config, begin, end)
            if begin == 0:
                watch.lap("sift")
            places = slice(begin * cols, end * cols)
            outputs = Outputs(codes.part(places), lengths[places], sums.part(places))
            self._fill(descriptors, outputs)

        if rows * cols:
            threads.split(fill, rows)
        encoded = Encoded(codes, grid, sums.joined())
        watch.lap("coding")
        return encoded

    def _empty(self, count: int) -> tuple[Codes, Float32Array]:
        """Codes of so many descriptors, and their lengths, not filled yet."""
        nonzeros = 0 if self.codes is None else self.codes.config.nonzeros
        return Codes.empty(np.empty(count, np.int32), nonzeros), np.empty(count, np.float32)

    def _fill(self, descriptors: Descriptors, outputs: Outputs) -> None:
        coder = None if self.codes is None else self.codes.coder
        if isinstance(self.hash, Tree):
            encode_by_tree(descriptors, self.hash, coder, outputs)
        elif coder is not None:
            outputs.codes.leaf_ids[:] = self.hash.route(descriptors)
            outputs.lengths[:] = coder.encode_into(outputs.codes, descriptors)


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
    if not np.isfinite(lengths).all():
        first = int(np.flatnonzero(~np.isfinite(lengths))[0])
        raise DescriptorError(
            f"descriptor {first} has no finite norm, expected finite values "
            "whose squares add up to a float32"
        )
