"""Blocks of residuals: sums in whole numbers, then the block against a float64 oracle."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.arrays import Float32Array, Float64Array, Int32Array
from service.engine.blocks import ResidualsBlock
from service.engine.codes import Codes
from service.engine.coding import Coder
from service.engine.config import ResidualsConfig
from service.engine.encoding import Encoded, Outputs, ResidualSums, TreeCoder, encode_by_tree
from service.engine.fixedpoint import Descriptors
from service.engine.tree import Tree
from tests import reference
from tests.reference import EPSILON
from tests.support.samples import PROPERTY, random_descriptors, random_dictionary, random_table

WIDTH = 128

seeds = st.integers(0, 2**32 - 1)
# Together around eight products and the block of 32 descriptors: 0, 1, 7, 8, 9, 32, 33, 65.
grids = st.sampled_from([(0, 0), (1, 1), (1, 7), (4, 2), (3, 3), (4, 8), (11, 3), (5, 13)])
pyramids = st.sampled_from([(1,), (2, 1), (3, 1), (4, 2, 1)])
wide_and_narrow = pytest.mark.parametrize("wide", [True, False], ids=["wide", "narrow"])
components = st.sampled_from([1, 2, 7, 16, 128])


@dataclass(frozen=True)
class Case:
    """Descriptors on a grid, a tree, and a block that reads one of its levels."""

    grid: tuple[int, int]
    descriptors: Float32Array
    tree: Tree
    block: ResidualsBlock

    @classmethod
    def random(
        cls,
        seed: int,
        grid: tuple[int, int],
        n_components: int = 7,
        pyramid: tuple[int, ...] = (2, 1),
        *,
        wide: bool = True,
    ) -> "Case":
        """Lengths up to one, some of them zero; any level of a tree of one to four."""
        rng = np.random.default_rng(seed)
        depth = int(rng.integers(1, 5))
        lengths = rng.uniform(0.05, 1, grid[0] * grid[1]) * (rng.random(grid[0] * grid[1]) < 0.9)
        descriptors = random_dictionary(rng, len(lengths)) * lengths[:, None]
        descriptors = descriptors if wide else np.abs(descriptors)
        vectors = random_descriptors(rng, 2**depth - 1)
        thresholds = rng.normal(scale=0.05, size=2**depth - 1).astype(np.float32)
        tree = Tree.from_floats(vectors, thresholds, wide=wide)
        levels = tuple(rng.integers(0, depth + 1, len(pyramid)).tolist())
        config = ResidualsConfig(levels, n_components, pyramid)
        means = random_dictionary(rng, config.n_means) * np.float32(0.7)
        shape = (config.n_means, WIDTH, n_components)
        projections = rng.normal(scale=0.1, size=shape).astype(np.float32)
        block = ResidualsBlock.from_floats(config, means, projections)
        return cls(grid, descriptors.astype(np.float32), tree, block)

    def nodes(self, level: int) -> Int32Array:
        """The node of each descriptor at a level of the tree, counted from the left."""
        nodes: Int32Array = self.tree.route(self.descriptors) // 2 ** (self.tree.depth - level)
        return nodes

    @property
    def projections(self) -> Float64Array:
        """The projections (n_means, 128, components) as the block stores them."""
        return self.block.projections.astype(np.float64) * self.block.scales[:, None]

    def levels(self) -> list[reference.NodeLevel]:
        """The levels of the pyramid; means of the tree's levels follow one another."""
        config, levels = self.block.config, []
        used = sorted(set(config.levels))
        for regions, level in zip(config.pyramid, config.levels, strict=True):
            begin = sum(2**above for above in used[: used.index(level)])
            nodes = self.nodes(level).reshape(self.grid)
            own = slice(begin, begin + 2**level)
            means, projections = self.block.means[own], self.projections[own]
            levels.append(reference.NodeLevel(regions, nodes, means, projections))
        return levels

    def encode(self, coder: Coder | None = None) -> tuple[Codes, ResidualSums]:
        nonzeros = 0 if coder is None else coder.table.shape[1]
        outputs = Outputs.of_list(len(self.descriptors), nonzeros)
        shape = self.block.config.pyramid[0] ** 2, self.block.config.n_nodes
        sums = ResidualSums.empty(self.block.regions(self.grid), *shape)
        by = TreeCoder(self.tree, coder)
        encode_by_tree(Descriptors.of(self.descriptors), by, outputs, sums)
        return outputs.codes, sums

    def pool(self) -> Float32Array:
        codes, sums = self.encode()
        return self.block.pool(Encoded(codes, self.grid, sums=sums))

    def parts(self) -> Float64Array:
        """The oracle's residuals before they are scaled."""
        grid = self.descriptors.reshape(*self.grid, WIDTH)
        return reference.residual_parts(grid, self.levels())

    def bounds(self) -> Float64Array:
        """How far fixed point may move each part's residual before it is scaled.

        Per descriptor: half a step in each value of its direction, half a unit of 2⁻²³ in the
        step, times that direction, and half a unit of 2⁻¹¹ in what is added. Half a unit of 2⁻⁸
        in its mass, and where that is of the rounded direction what it moved, count for the mean.
        In float32, every product and sum of the projection rounds; regions are added up.
        """
        longest = 0.7 * (1 + EPSILON)  # of the means of a random case
        lengths = np.linalg.norm(self.descriptors.astype(np.float64), axis=1)
        wide, root = self.tree.wide, np.sqrt(WIDTH)
        steps = np.array([reference.step_of(x, wide=wide) for x in self.descriptors])
        norms = np.divide(lengths, steps, out=np.zeros_like(lengths), where=steps > 0)
        direction = root * steps / 2
        fixed = direction + root * 2.0**-12 + (norms + root / 2) * 2.0**-24
        fixed += longest * (2.0**-9 + direction)
        rounded = (WIDTH + 20) * EPSILON * lengths * (1 + longest)
        spectral = max(np.linalg.norm(projection, 2) for projection in self.projections)
        largest = max(np.linalg.norm(projection) for projection in self.projections)
        moved = spectral * fixed + largest * rounded
        return self._per_part(np.where(lengths > 0, moved, 0))

    def scales(self, occupied: npt.NDArray[np.bool_]) -> Float64Array:
        """What each part was divided by after it had unit length, for it and its level.

        So were the occupied parts of a level together, and then all levels together.
        """
        counts = [regions**2 * len(means) for regions, _, means, _ in self.levels()]
        levels = np.split(occupied, np.cumsum(counts)[:-1])
        n_levels = max(sum(level.any() for level in levels), 1)
        return np.concatenate(
            [np.full(len(level), np.sqrt(max(level.sum(), 1) * n_levels)) for level in levels]
        )

    def _per_part(self, values: Float64Array) -> Float64Array:
        """Sums of a value per descriptor over every level, region and node."""
        (rows, cols), sums = self.grid, []
        for regions, nodes, means, _ in self.levels():
            level = np.zeros((regions, regions, len(means)))
            for place, node, value in zip(
                np.ndindex(self.grid), nodes.ravel(), values, strict=True
            ):
                level[place[0] * regions // rows, place[1] * regions // cols, node] += value
            sums.append(level.ravel())
        return np.concatenate(sums)


# --- sums ----------------------------------------------------------------------------


@wide_and_narrow
@PROPERTY
@given(seed=seeds, grid=grids, pyramid=pyramids)
def test_sums_equal_the_oracle_s_exactly(
    seed: int, grid: tuple[int, int], pyramid: tuple[int, ...], *, wide: bool
) -> None:
    case = Case.random(seed, grid, pyramid=pyramid, wide=wide)
    (rows, cols), finest, n_nodes = grid, pyramid[0], case.block.config.n_nodes
    regions = [y * finest // rows * finest + x * finest // cols for y, x in np.ndindex(grid)]
    nodes = case.nodes(max(case.block.config.levels))
    places = np.array(regions, np.int64).reshape(-1) * n_nodes + nodes
    fixed = Descriptors.of(case.descriptors).fixed(wide=wide)
    expected = reference.residual_sums(*fixed, places, finest**2 * n_nodes)
    _, sums = case.encode()
    np.testing.assert_array_equal(sums.totals.reshape(-1, WIDTH), expected[0])
    np.testing.assert_array_equal(sums.masses.reshape(-1), expected[1])


@wide_and_narrow
@pytest.mark.parametrize("length", [2.0**-10, 2.0**-9, 1.01 * 2.0**-9, 2.0**-8, 1.0])
def test_a_descriptor_adds_to_a_total_only_if_it_adds_to_a_mass(
    length: float, *, wide: bool
) -> None:
    rows = np.zeros((1, WIDTH), np.float32)
    rows[0, 3] = length
    tree = Tree.from_floats(np.zeros((1, WIDTH), np.float32), np.zeros(1, np.float32), wide=wide)
    sums = ResidualSums.empty(np.zeros(1, np.int32), 1, 1)
    encode_by_tree(Descriptors.of(rows), TreeCoder(tree, None), Outputs.of_list(1, 0), sums)
    mass = round(length * 2**8)
    assert sums.masses.tolist() == [[mass]]
    assert bool(sums.totals.any()) is (mass > 0)
    # In units of 2⁻¹¹. Half a unit of 2⁻²³ in a step is four of them, 2¹⁵ steps away.
    bound = 1 + (4 if wide else 127 / 2**13)
    assert abs(int(sums.totals[0, 0, 3]) - length * 2**11 * (mass > 0)) <= bound


@wide_and_narrow
@PROPERTY
@given(seed=seeds, grid=grids, cut=st.integers(0, 65))
def test_sums_of_parts_add_up_to_those_of_the_whole(
    seed: int, grid: tuple[int, int], cut: int, *, wide: bool
) -> None:
    case = Case.random(seed, grid, wide=wide)
    _, whole = case.encode()
    regions = case.block.regions(grid)
    parts = []
    for part in (slice(cut), slice(cut, None)):
        some, sums = case.descriptors[part], ResidualSums.empty(regions[part], *whole.masses.shape)
        outputs = Outputs.of_list(len(some), 0)
        encode_by_tree(Descriptors.of(some), TreeCoder(case.tree, None), outputs, sums)
        parts.append(sums)
    np.testing.assert_array_equal(sum(sums.totals for sums in parts), whole.totals)
    np.testing.assert_array_equal(sum(sums.masses for sums in parts), whole.masses)


@wide_and_narrow
def test_codes_and_sums_of_one_pass_are_those_of_two(*, wide: bool) -> None:
    case, rng = Case.random(5, (4, 9), wide=wide), np.random.default_rng(5)
    table = random_table(rng, case.tree.n_leaves, 12, 3)
    coder = Coder.from_table(table, random_dictionary(rng, 12), wide=wide)
    codes, sums = case.encode(coder)
    alone, (plain, expected) = coder.encode(case.descriptors, codes.leaf_ids), case.encode()
    np.testing.assert_array_equal(codes.leaf_ids, plain.leaf_ids)
    np.testing.assert_array_equal(codes.atom_ids, alone.atom_ids)
    np.testing.assert_array_equal(codes.values, alone.values)
    np.testing.assert_array_equal(sums.totals, expected.totals)
    np.testing.assert_array_equal(sums.masses, expected.masses)


# --- blocks --------------------------------------------------------------------------


@wide_and_narrow
@PROPERTY
@given(seed=seeds, grid=grids, n_components=components, pyramid=pyramids)
def test_the_block_equals_the_oracle_s(
    seed: int, grid: tuple[int, int], n_components: int, pyramid: tuple[int, ...], *, wide: bool
) -> None:
    case = Case.random(seed, grid, n_components, pyramid, wide=wide)
    parts, moved = case.parts(), case.bounds()
    sizes = np.linalg.norm(parts, axis=1)
    occupied = sizes > 0
    found = case.pool().astype(np.float64).reshape(parts.shape) * case.scales(occupied)[:, None]
    assert not found[~occupied].any()
    differences = np.linalg.norm(found - reference.unit_rows(parts), axis=1)[occupied]
    # Of two vectors at unit length: twice their difference before, by the length of either.
    bounds = 2 * moved[occupied] / sizes[occupied] + (n_components + 8) * EPSILON
    assert (differences <= bounds).all()


@wide_and_narrow
def test_the_oracle_s_bounds_are_small(*, wide: bool) -> None:
    """What is compared above would fail for another node, mean or region."""
    case = Case.random(1, (20, 20), 64, wide=wide)
    sizes = np.linalg.norm(case.parts(), axis=1)
    assert np.median(case.bounds()[sizes > 0] / sizes[sizes > 0]) < 0.1


@PROPERTY
@given(seeds, grids, pyramids)
def test_a_block_has_unit_length_or_is_zero(
    seed: int, grid: tuple[int, int], pyramid: tuple[int, ...]
) -> None:
    pooled = Case.random(seed, grid, pyramid=pyramid).pool()
    assert pooled.shape == (Case.random(seed, grid, pyramid=pyramid).block.config.n_features,)
    norm = np.linalg.norm(pooled.astype(np.float64))
    assert norm == 0 or abs(norm - 1) <= len(pooled) * EPSILON


def example(
    descriptors: npt.NDArray[np.float64], mean: list[float], pyramid: tuple[int, ...] = (1,)
) -> Float32Array:
    """The block of descriptors (rows, cols, 2) at the root, in their own two components."""
    grid = (descriptors.shape[0], descriptors.shape[1])
    rows = np.zeros((grid[0] * grid[1], WIDTH), np.float32)
    rows[:, :2] = descriptors.reshape(-1, 2)
    means = np.zeros((len(pyramid), WIDTH), np.float32)
    means[:, :2] = mean
    projections = np.stack([np.eye(WIDTH, 2, dtype=np.float32)] * len(pyramid))
    tree = Tree.from_floats(np.zeros((1, WIDTH), np.float32), np.zeros(1, np.float32), wide=False)
    config = ResidualsConfig((0,) * len(pyramid), components=2, pyramid=pyramid)
    return Case(grid, rows, tree, ResidualsBlock.from_floats(config, means, projections)).pool()


@pytest.mark.parametrize(
    ("mean", "expected"),
    [
        ([0, 0], [0.5, 1]),
        # The lengths add up to 1.5.
        ([0.5, 0], [0.5 - 0.75, 1]),
        ([0, 1], [0.5, 1 - 1.5]),
    ],
)
def test_a_worked_example_subtracts_the_mean_once_for_each_length(
    mean: list[float], expected: list[float]
) -> None:
    found = example(np.array([[[0.5, 0], [0, 1]]]), mean)
    # A step is rounded to 2⁻²³; all else is exact.
    np.testing.assert_allclose(found, reference.unit_rows(np.array([expected]))[0], atol=1e-3)


def test_a_worked_example_scales_every_region_alone() -> None:
    found = example(np.array([[[0.25, 0], [0, 1]], [[1, 0], [0, 0]]]), [0, 0], (2, 1))
    whole = np.array([1.25, 1]) / np.hypot(1.25, 1)
    # Three regions have descriptors; either level has half of the squares.
    expected = np.array([[1, 0], [0, 1], [1, 0], [0, 0], np.sqrt(3) * whole]) / np.sqrt(6)
    np.testing.assert_allclose(found.reshape(-1, 2), expected, rtol=0, atol=1e-3)


def test_descriptors_of_zeros_leave_a_block_of_zeros() -> None:
    assert not example(np.zeros((2, 2, 2)), [0.3, 0.4], (2, 1)).any()


def test_arrays_of_a_block_are_read_only() -> None:
    block = Case.random(0, (1, 1)).block
    for array in (block.means, block.projections, block.scales):
        assert not array.flags.writeable
