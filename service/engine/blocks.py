"""The blocks of the pooled vector: one small class for each kind.

A block takes what one view's walk down the tree left, its codes or its sums, and makes of it a
vector of unit length. Every entry belongs to places of the image: the maximum of an atom to one
descriptor of its region, a residual to all descriptors of its region and node.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from service.engine import pooling
from service.engine.arrays import Float32Array, Int8Array, Int32Array, Tensors, frozen
from service.engine.coding import Coder
from service.engine.config import BlockConfig, CodesConfig, ResidualsConfig
from service.engine.encoding import Encoded, ResidualSums
from service.engine.kernels.residuals import ProjectionRoom, project_residuals, scale_parts

__all__ = ["Block", "CodesBlock", "ResidualsBlock", "block_from_tensors"]

# What the largest number of a projection's column is in fixed point.
_LARGEST = 2**7 - 1


@dataclass(frozen=True)
class CodesBlock:
    """The paper's block: the largest value of each atom in each region of a pyramid."""

    config: CodesConfig
    coder: Coder

    def pool(self, encoded: Encoded, out: Float32Array | None = None) -> Float32Array:
        """The block (n_features,) of an image's codes, filled into `out` if that is given."""
        if encoded.finest is None:
            return pooling.pool(encoded.codes, encoded.grid, self.config, out)
        return pooling.pyramid(encoded.finest, self.config, out)

    def placed(self, view: int, weight: float) -> "CodesBlock":
        """The same block for a view of this number, with this weight."""
        return replace(self, config=replace(self.config, view=view, weight=weight))

    def tensors(self) -> Tensors:
        """The tensors that a bundle stores of the block, by name."""
        return self.coder.tensors()


@dataclass(frozen=True)
class ResidualsBlock:
    """How descriptors differ from the means of their nodes, in each region.

    The differences are added up, weighed by the descriptors' lengths, and projected by the
    node's own matrix; then the part of every region and node is scaled to unit length, and so is
    each level of the pyramid. That is VLAD (Jégou et al. 2010) with the tree's nodes as its
    codebook, projected as by Delhumeau et al. (2013) and scaled as by Arandjelović and Zisserman
    (2013). means (n_means, 128) are those of the nodes of each tree level in turn, and so are
    projections (n_means, 128, components) in fixed point with their scales (n_means, components).
    """

    config: ResidualsConfig
    means: Float32Array
    projections: Int8Array
    scales: Float32Array

    def __post_init__(self) -> None:
        for name in ("means", "projections", "scales"):
            object.__setattr__(self, name, frozen(getattr(self, name)))

    @classmethod
    def from_floats(
        cls, config: ResidualsConfig, means: Float32Array, projections: Float32Array
    ) -> "ResidualsBlock":
        """The block with these projections, each number rounded by at most half a scale."""
        largest = np.abs(projections).max(axis=1, initial=0)
        scales = (largest / _LARGEST).astype(np.float32)
        integers = np.rint(projections / np.where(scales == 0, 1, scales)[:, None])
        return cls(config, means, integers.clip(-_LARGEST, _LARGEST).astype(np.int8), scales)

    @cached_property
    def transposed_projections(self) -> Int8Array:
        """The projections as (n_means, components, 128), copied at the first use."""
        return frozen(self.projections.transpose(0, 2, 1))

    def regions(self, grid: tuple[int, int]) -> Int32Array:
        """Which region of the finest level each descriptor of a grid lies in, as in pooling."""
        finest = self.config.pyramid[0]
        rows, cols = (np.arange(size, dtype=np.int32) * finest // max(size, 1) for size in grid)
        return (rows[:, None] * np.int32(finest) + cols).reshape(-1)

    def sums(self, grid: tuple[int, int], layers: int) -> ResidualSums:
        """Room for the sums of a grid's descriptors, in so many layers."""
        config, regions = self.config, self.regions(grid)
        return ResidualSums.empty(regions, layers, config.pyramid[0] ** 2, config.n_nodes)

    def pool(self, encoded: Encoded, out: Float32Array | None = None) -> Float32Array:
        """The block (n_features,) of an image's sums, filled into `out` if that is given."""
        sums = encoded.sums
        assert sums is not None  # noqa: S101  # the view knows its blocks
        parts = self._parts(sums)
        scales = [np.empty(part.shape[:2], np.float32) for part in parts]
        for part, own in zip(parts, scales, strict=True):
            scale_parts(part, own)
        sums.part_scales[:] = scales
        return pooling.to_unit(np.concatenate([part.reshape(-1) for part in parts], out=out))

    def _parts(self, sums: ResidualSums) -> list[Float32Array]:
        """Projected residuals (regions², nodes, components) of each level of the pyramid.

        A projection is linear: where a finer level has the same nodes, its parts are added up.
        """
        parts: list[Float32Array] = []
        finer: dict[int, tuple[int, Float32Array]] = {}
        for regions, level in zip(self.config.pyramid, self.config.levels, strict=True):
            side, finest = finer.get(level, (1, None))
            if finest is None or side % regions:
                part = self._projected(sums, regions, level)
            else:
                part = _added_up(finest, side, regions)
            finer.setdefault(level, (regions, part))
            parts.append(part)
        return parts

    def _projected(self, sums: ResidualSums, regions: int, level: int) -> Float32Array:
        nodes = self.config.nodes_of(level)
        part = np.empty((regions**2, 2**level, self.config.components), np.float32)
        project_residuals(
            frozen(sums.totals),
            frozen(sums.masses),
            self.means[nodes],
            self.projections[nodes],
            self.scales[nodes],
            regions,
            ProjectionRoom.of(regions**2, self.means.shape[1], self.config.components),
            part,
        )
        return part

    def placed(self, view: int, weight: float) -> "ResidualsBlock":
        """The same block for a view of this number, with this weight."""
        return replace(self, config=replace(self.config, view=view, weight=weight))

    def tensors(self) -> Tensors:
        """The tensors that a bundle stores of the block, by name."""
        return {"means": self.means, "projections": self.projections, "scales": self.scales}


Block = CodesBlock | ResidualsBlock


def _added_up(parts: Float32Array, side: int, regions: int) -> Float32Array:
    """Parts (side², nodes, components) to those of `regions` a side, which divides `side`."""
    share, others = side // regions, parts.shape[1:]
    sums: Float32Array = parts.reshape(regions, share, regions, share, *others).sum(axis=(1, 3))
    return sums.reshape(regions**2, *others)


def block_from_tensors(config: BlockConfig, tensors: Tensors) -> Block:
    """The block that its tensors hold; nothing is copied."""
    if isinstance(config, CodesConfig):
        return CodesBlock(config, Coder.from_tensors(tensors))
    return ResidualsBlock(config, tensors["means"], tensors["projections"], tensors["scales"])
