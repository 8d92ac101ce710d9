"""Directions in fixed point against float64, and the integer instructions against Python."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba.core.errors import TypingError

from service.engine import sift
from service.engine.arrays import (
    AtomIds,
    Directions,
    FixedRows,
    Float32Array,
    Int32Array,
    UInt64Array,
    frozen,
)
from service.engine.coding import Coder
from service.engine.compiling import kernel
from service.engine.errors import DescriptorError
from service.engine.fixedpoint import (
    Descriptors,
    FixedPoint,
    block_scratch,
    is_wide,
    quantise_rows,
    room_for_block,
    unit_of,
)
from service.engine.kernels.integers import (
    BATCH,
    LANES,
    Scratch,
    add_dots,
    dot_atoms,
    end_batch,
    go_down,
    new_scratch,
    step_down,
    step_from_root,
)
from service.engine.kernels.leaves import LeafTables, code_by_leaf, fetch_atoms
from tests import reference
from tests.reference import EPSILON
from tests.support.samples import AWKWARD_COUNTS, PROPERTY, random_descriptors

seeds = st.integers(0, 2**32 - 1)
counts = st.sampled_from(AWKWARD_COUNTS)
# Narrow directions have one run of 128 values; what is wider stays wide.
narrow_widths = st.sampled_from([1, 2, 3, 31, 32, 33, 127, 128])
widths = st.sampled_from([1, 2, 3, 31, 32, 33, 127, 128, 129, 255, 256, 257, 300])
wide_and_narrow = pytest.mark.parametrize("wide", [True, False], ids=["wide", "narrow"])

# Half a unit, and what float32 adds to it before it is rounded: the length of a wide direction
# is a sum, the largest value of a narrow one is only divided and multiplied by.
HALF = {True: 0.5 + 2**15 * 128 * EPSILON, False: 0.5 + 127 * 2 * EPSILON}
# How far rounding half a unit of 128 values moves a direction.
MOVED = float(np.sqrt(128) / 2)


# --- products ------------------------------------------------------------------------

_BATCH, _LANES, _NONE, _ONE, _FIVE = (np.uint64(number) for number in (BATCH, LANES, 0, 1, 5))


@kernel
def multiply_pairs(
    a: Directions,
    b: FixedRows,
    rows: UInt64Array,
    others: UInt64Array,
    scratch: Scratch,
    products: Int32Array,
) -> None:
    """Products of some rows of `a` with some of `b`, pair by pair."""
    count = np.uint64(rows.shape[0])
    for i in range(count):
        scratch.rows[i], scratch.others[i] = rows[i], others[i]
    end_batch(scratch, count)
    for first in range(_NONE, count, _BATCH):
        for column in range(_NONE, np.uint64(a.shape[1]), _LANES):
            add_dots(a, b, scratch, first, column)
    for i in range(count):
        products[i] = scratch.products[i]


def products_of(
    a: npt.NDArray[Any], b: npt.NDArray[Any], pairs: npt.NDArray[np.integer]
) -> list[int]:
    products = np.empty(len(pairs), np.int32)
    rows, others = (frozen(np.ascontiguousarray(pairs[:, i], np.uint64)) for i in (0, 1))
    scratch = new_scratch(len(pairs))
    scratch.rows[:], scratch.others[:], scratch.products[:] = 2**30, 2**30, 77  # left by others
    multiply_pairs(frozen(a), frozen(b), rows, others, scratch, products)
    return [int(product) for product in products]


@wide_and_narrow
@PROPERTY
@given(
    seed=seeds,
    count=st.sampled_from([1, 7, 8, 9, 16, 17, 33]),
    width=st.sampled_from([128, 256, 384]),
)
def test_products_add_up_all_columns(seed: int, count: int, width: int, *, wide: bool) -> None:
    rng = np.random.default_rng(seed)
    if wide:
        a, b = (rng.integers(-1600, 1601, (5, width)).astype(np.int16) for _ in range(2))
    else:
        a = rng.integers(0, 128, (5, 128)).astype(np.uint8)  # no other width is narrow
        b = rng.integers(-127, 128, (5, 128)).astype(np.int8)
    pairs = rng.integers(0, 5, (count, 2))
    everything = a.astype(np.int64) @ b.astype(np.int64).T
    assert products_of(a, b, pairs) == everything[pairs[:, 0], pairs[:, 1]].tolist()


@kernel
def multiply_atoms(
    a: Directions, row: int, b: FixedRows, table: AtomIds, leaf: int, scratch: Scratch
) -> None:
    """Products of a row of `a` with five rows of `b`, then with a batch of further ones."""
    for column in range(_NONE, np.uint64(a.shape[1]), _LANES):
        dot_atoms(a, np.uint64(row), b, table, np.uint64(leaf), _NONE, 5, column, _NONE, scratch)
        dot_atoms(
            a, np.uint64(row), b, table, np.uint64(leaf), _FIVE, BATCH, column, _BATCH, scratch
        )


@wide_and_narrow
@PROPERTY
@given(seed=seeds, width=st.sampled_from([128, 256, 384]))
def test_products_of_one_row_are_those_with_the_rows_of_a_table(
    seed: int, width: int, *, wide: bool
) -> None:
    rng = np.random.default_rng(seed)
    if wide:
        a, b = (rng.integers(-1600, 1601, (5, width)).astype(np.int16) for _ in range(2))
    else:
        a = rng.integers(0, 128, (5, 128)).astype(np.uint8)
        b = rng.integers(-127, 128, (5, 128)).astype(np.int8)
    row, leaf, table = rng.integers(5), rng.integers(3), rng.integers(0, 5, (3, 13), np.uint16)
    scratch = new_scratch(0, 16)
    scratch.products[:] = 77  # left by another
    multiply_atoms(frozen(a), int(row), frozen(b), frozen(table), int(leaf), scratch)
    expected = b[table[leaf]].astype(np.int64) @ a[row].astype(np.int64)
    # Three of no account fill the batch.
    assert scratch.products.tolist() == [*expected[:5], 0, 0, 0, *expected[5:]]


@kernel
def code_row(
    directions: Directions,
    row: int,
    step: float,
    leaves: LeafTables,
    leaf: int,
    atoms: FixedRows,
    atom_ids: Int32Array,
    values: Float32Array,
) -> None:
    """The code of one descriptor by the five atoms of a leaf, in the second row."""
    number, place = np.uint64(row), np.uint64(leaf)
    fetch_atoms(leaves, place, 5, atoms)
    code_by_leaf(
        directions, number, np.float32(step), leaves, place, 5, atoms, atom_ids, values, _ONE
    )


@wide_and_narrow
@PROPERTY
@given(seed=seeds)
def test_a_code_is_that_of_its_leaf_and_nothing_beside_it_is_written(
    seed: int, *, wide: bool
) -> None:
    rng = np.random.default_rng(seed)
    directions, atoms = (rng.integers(-1600, 1601, (7, LANES)).astype(np.int16) for _ in range(2))
    if not wide:
        directions = rng.integers(0, 128, (7, LANES)).astype(np.uint8)
        atoms = rng.integers(-127, 128, (7, LANES)).astype(np.int8)
    coder = Coder(
        rng.integers(0, 7, (3, 5)).astype(np.int32),
        atoms,
        rng.random(7, np.float32),
        rng.standard_normal((3, 5, 5)).astype(np.float32),
    )
    row, leaf, step = int(rng.integers(7)), int(rng.integers(3)), rng.random()
    atom_ids, values = np.full((3, 5), 7, np.int32), np.full((3, 5), 7, np.float32)
    code_row(frozen(directions), row, step, coder.leaves, leaf, coder.atoms, atom_ids, values)
    factors = coder.leaves.factors[leaf, :25].reshape(5, 5).astype(np.float64)
    factors *= 1 if wide else coder.leaves.scales[leaf, 15]
    products = atoms[coder.table[leaf]].astype(np.int64) @ directions[row].astype(np.int64)
    expected = step * (products @ factors)
    bound = step * (np.abs(products) @ np.abs(factors))
    assert atom_ids[1].tolist() == coder.table[leaf].tolist()
    assert (np.abs(values[1] - expected) <= 8 * EPSILON * bound).all()
    assert (atom_ids[[0, 2]] == 7).all()
    assert (values[[0, 2]] == 7).all()


@kernel
def decide(cuts: Float32Array, scratch: Scratch) -> None:
    """The children of two batches of nodes, whose products are known."""
    go_down(cuts, scratch, _NONE)
    go_down(cuts, scratch, _BATCH)


@PROPERTY
@given(seed=seeds)
def test_a_node_is_left_to_the_right_where_its_product_exceeds_the_cut(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scratch = new_scratch(2 * BATCH)
    nodes, products = rng.integers(0, 31, 16), rng.integers(-3, 4, 16)
    scratch.others[:], scratch.products[:] = nodes, products
    scratch.factors[:] = rng.choice(np.array([0, 0.5, 1, 2, np.nan], np.float32), 16)
    cuts = rng.integers(-3, 4, 31).astype(np.float32)
    with np.errstate(invalid="ignore"):
        right = products.astype(np.float32) > cuts[nodes] * scratch.factors  # ties go left
    decide(frozen(cuts), scratch)
    assert scratch.others.tolist() == (2 * nodes + 1 + right).tolist()


@kernel
def take_step(
    directions: Directions, row: int, vectors: FixedRows, cuts: Float32Array, scratch: Scratch
) -> None:
    """One step of two batches of descriptors, the rows from `row` on."""
    step_down(directions, np.uint64(row), vectors, cuts, scratch, _NONE)
    step_down(directions, np.uint64(row), vectors, cuts, scratch, _BATCH)


@kernel
def leave_root(
    directions: Directions, row: int, vectors: FixedRows, cuts: Float32Array, scratch: Scratch
) -> None:
    """The first step of two batches of descriptors, the rows from `row` on."""
    step_from_root(directions, np.uint64(row), vectors, cuts, scratch, _NONE)
    step_from_root(directions, np.uint64(row), vectors, cuts, scratch, _BATCH)


@wide_and_narrow
@pytest.mark.parametrize("is_first", [False, True])
@PROPERTY
@given(seed=seeds, row=st.integers(0, 3))
def test_a_step_goes_to_the_right_where_the_product_exceeds_the_cut(
    seed: int, row: int, *, wide: bool, is_first: bool
) -> None:
    rng = np.random.default_rng(seed)
    if wide:
        directions, vectors = (
            rng.integers(-1600, 1601, (count, LANES)).astype(np.int16) for count in (19, 31)
        )
    else:
        directions = rng.integers(0, 128, (19, LANES)).astype(np.uint8)
        vectors = rng.integers(-127, 128, (31, LANES)).astype(np.int8)
    scratch = new_scratch(2 * BATCH)
    nodes = np.zeros(2 * BATCH, np.int64) if is_first else rng.integers(0, 31, 2 * BATCH)
    own = directions[row : row + 2 * BATCH].astype(np.int64)
    products = (own * vectors[nodes].astype(np.int64)).sum(axis=1).astype(np.float32)
    # A cut that is just reached is not exceeded; one step below it is.
    cuts = np.zeros(31, np.float32)
    cuts[nodes] = products
    below = rng.random(31) < 0.5
    cuts[below] = np.nextafter(cuts[below], -np.inf, dtype=np.float32)
    scratch.others[:], scratch.factors[:] = nodes, 1
    step = leave_root if is_first else take_step
    step(frozen(directions), row, frozen(vectors), frozen(cuts), scratch)
    assert scratch.others.tolist() == (2 * nodes + 1 + (products > cuts[nodes])).tolist()


def test_products_of_the_longest_directions_do_not_overflow() -> None:
    rows = np.zeros((2, 128), np.int16)
    rows[0, 5], rows[1, 5] = 32767, -32768
    pairs = np.array([(0, 0), (0, 1), (1, 0), (1, 1)])
    assert products_of(rows, rows, pairs) == [
        32767**2,
        -32767 * 32768,
        -32767 * 32768,
        32768**2,
    ]


def test_products_of_the_largest_bytes_do_not_overflow() -> None:
    a, b = np.full((1, 128), 127, np.uint8), np.full((2, 128), 127, np.int8)
    b[1] = -127
    assert products_of(a, b, np.array([(0, 0), (0, 1)])) == [128 * 127**2, -128 * 127**2]


def test_rows_of_two_kinds_are_not_multiplied() -> None:
    """They were: bytes with the halves of other numbers, or beyond the end of an array."""
    rows = np.ones((2, 128), np.int16)
    for a, b in ((rows, rows.astype(np.int8)), (rows.astype(np.uint8), rows)):
        with pytest.raises(TypingError):
            products_of(a, b, np.array([(0, 0)]))


# --- rounding ------------------------------------------------------------------------


def fixed(descriptors: Float32Array, *, wide: bool) -> FixedPoint:
    return Descriptors.of(descriptors).fixed(wide=wide)


def assert_near_the_unrounded(found: FixedPoint, descriptors: Float32Array, *, wide: bool) -> None:
    count, width = descriptors.shape
    expected = [reference.fixed_point(x, wide=wide) for x in descriptors]
    # The largest int16 stands for one.
    near = np.minimum(np.array(expected).reshape(count, width), 2**15 - 1)
    assert (np.abs(found.directions[:, :width] - near) <= HALF[wide]).all()
    assert not found.directions[:, width:].any()


@PROPERTY
@given(seeds, counts, widths)
def test_wide_directions_are_the_rounded_unit_vectors(seed: int, count: int, width: int) -> None:
    descriptors = random_descriptors(np.random.default_rng(seed), count, width)
    found = fixed(descriptors, wide=True)
    assert found.directions.dtype == np.int16
    assert_near_the_unrounded(found, descriptors, wide=True)
    assert (found.norms == 2**15).all()
    lengths = np.linalg.norm(descriptors.astype(np.float64), axis=1)
    np.testing.assert_allclose(found.lengths, lengths, rtol=(width + 2) * EPSILON)


@PROPERTY
@given(seeds, counts, narrow_widths, st.integers(-60, 60))
def test_narrow_directions_are_rounded_to_127_for_the_largest_value(
    seed: int, count: int, width: int, exponent: int
) -> None:
    rng = np.random.default_rng(seed)
    descriptors = random_descriptors(rng, count, width, signs=False) * np.float32(2.0**exponent)
    found = fixed(descriptors, wide=False)
    assert found.directions.dtype == np.uint8
    assert_near_the_unrounded(found, descriptors, wide=False)
    assert (found.directions.max(axis=1, initial=0) == 127).all()
    np.testing.assert_array_equal(found.steps, descriptors.max(axis=1, initial=0) / np.float32(127))


@PROPERTY
@given(seeds, counts, narrow_widths)
def test_narrow_norms_are_those_of_the_directions(seed: int, count: int, width: int) -> None:
    # Zeros among the values, and descriptors of zeros.
    rng = np.random.default_rng(seed)
    descriptors = random_descriptors(rng, count, width, signs=False)
    descriptors[rng.random((count, width)) < rng.random((count, 1))] = 0
    found = fixed(descriptors, wide=False)
    # Their squares add up to less than 2²⁴, so that only the root is rounded.
    squares = (found.directions.astype(np.int64) ** 2).sum(axis=1)
    np.testing.assert_array_equal(found.norms, np.sqrt(squares.astype(np.float32)))


def test_a_half_is_rounded_to_the_even_number() -> None:
    descriptor = np.zeros((1, 128), np.float32)
    descriptor[0, :6] = [127, 0.5, 1.5, 2.5, 126.5, 0.49]
    assert fixed(descriptor, wide=False).directions[0, :7].tolist() == [127, 0, 2, 2, 126, 0, 0]


@pytest.mark.parametrize("place", [0, 31, 32, 63, 64, 95, 96, 127])
def test_the_largest_value_may_stand_anywhere(place: int) -> None:
    descriptor = np.full((1, 128), 0.25, np.float32)
    descriptor[0, place] = 1
    found = fixed(descriptor, wide=False)
    expected = np.full(128, 32)
    expected[place] = 127
    np.testing.assert_array_equal(found.directions[0], expected)
    assert found.norms[0] == np.sqrt(np.float32(127**2 + 127 * 32**2))


@wide_and_narrow
@PROPERTY
@given(seed=seeds, count=counts)
def test_a_descriptor_is_the_same_in_any_block(seed: int, count: int, *, wide: bool) -> None:
    descriptors = random_descriptors(np.random.default_rng(seed), count, signs=wide)
    together = fixed(descriptors, wide=wide)
    for place, row in enumerate(descriptors):
        alone = fixed(row[None], wide=wide)
        for one, all_ in zip(alone, together, strict=True):
            np.testing.assert_array_equal(one[0], all_[place])


@wide_and_narrow
@PROPERTY
@given(seed=seeds, count=counts, longest=st.floats(0.5, 30))
def test_the_longest_have_that_length_and_the_same_direction(
    seed: int, count: int, longest: float, *, wide: bool
) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.uniform(0.1, 2, (count, 1)).astype(np.float32)
    plain = Descriptors.of(random_descriptors(rng, count, signs=wide) * sizes)
    limited = Descriptors(plain.flat, plain.starts, longest=longest)
    found, expected = limited.fixed(wide=wide), plain.fixed(wide=wide)
    np.testing.assert_array_equal(found.directions, expected.directions)
    np.testing.assert_array_equal(found.norms, expected.norms)
    lengths = np.minimum(expected.lengths, longest)
    np.testing.assert_allclose(found.lengths, lengths, rtol=2 * EPSILON)
    shorter = expected.lengths < longest * (1 - EPSILON)
    np.testing.assert_array_equal(found.steps[shorter], expected.steps[shorter])


# --- what has no direction -----------------------------------------------------------


@wide_and_narrow
@pytest.mark.parametrize("value", [0.0, 1e-45, 1e-38, 1e-35])
def test_a_descriptor_of_zeros_or_tiny_values_has_no_direction_and_no_length(
    value: float, *, wide: bool
) -> None:
    descriptors = np.full((3, 128), value, np.float32)
    descriptors[1] = 1
    found = fixed(descriptors, wide=wide)
    assert found.directions.any(axis=1).tolist() == [False, True, False]
    assert found.norms[[0, 2]].tolist() == [0, 0]
    assert found.lengths[[0, 2]].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("value", "wide", "finite"),
    [
        *((value, wide, False) for value in (np.nan, np.inf, -np.inf) for wide in (True, False)),
        # Its square is no float32. Narrow ones are not squared as they are.
        (1e30, True, False),
        (1e30, False, True),
        (3e38, False, True),
        # Only without a sign can values be bytes; that of a zero does not count.
        *((value, True, True) for value in (-1.0, -1e-40, -0.0)),
        *((value, False, False) for value in (-1.0, -1e-40)),
        (-0.0, False, True),
    ],
)
@pytest.mark.parametrize("place", [0, 40, 127])
def test_the_length_says_whether_a_descriptor_has_a_direction(
    value: float, place: int, *, wide: bool, finite: bool
) -> None:
    descriptors = random_descriptors(np.random.default_rng(0), 3, signs=False)
    before = fixed(descriptors, wide=wide)
    changed = descriptors.copy()
    changed[1, place] = value
    found = fixed(changed, wide=wide)
    assert np.isfinite(found.lengths).tolist() == [True, finite, True]
    for now, then in zip(found, before, strict=True):
        np.testing.assert_array_equal(now[[0, 2]], then[[0, 2]])


@wide_and_narrow
def test_negative_zeros_are_zeros(*, wide: bool) -> None:
    descriptors = random_descriptors(np.random.default_rng(1), 9, signs=False)
    descriptors[:, ::3] = 0
    descriptors[4] = 0
    expected = fixed(descriptors, wide=wide)
    descriptors[descriptors == 0] = -0.0
    for now, then in zip(fixed(descriptors, wide=wide), expected, strict=True):
        np.testing.assert_array_equal(now, then)


@pytest.mark.parametrize("width", [129, 256, 300])
def test_narrow_directions_wider_than_128_are_refused(width: int) -> None:
    """Only the first 128 values were rounded, the others were whatever was in memory."""
    descriptors = Descriptors.of(np.ones((2, width), np.float32))
    with pytest.raises(DescriptorError, match=r"narrow directions are \d+ wide, expected 128"):
        descriptors.fixed(wide=False)
    with pytest.raises(DescriptorError, match=r"narrow directions are \d+ wide, expected 128"):
        list(descriptors.parts(wide=False))


def test_a_narrow_length_that_is_no_float32_is_infinite() -> None:
    assert np.isinf(fixed(np.full((1, 128), 3e38, np.float32), wide=False).lengths[0])


# --- rows of a model -----------------------------------------------------------------


@wide_and_narrow
@PROPERTY
@given(seed=seeds, count=st.sampled_from([1, 5, 17]), width=widths)
def test_rows_of_a_model_are_rounded_the_same_way(
    seed: int, count: int, width: int, *, wide: bool
) -> None:
    rows = random_descriptors(np.random.default_rng(seed), count, width)
    integers, scales = quantise_rows(rows, wide=wide)
    assert integers.dtype == (np.int16 if wide else np.int8)
    assert is_wide(integers) is wide
    expected = np.array([reference.fixed_point(x, wide=wide) for x in rows])
    steps = np.array([reference.step_of(x, wide=wide) for x in rows])
    # Wide ones of almost unit length are left as they are.
    off = np.abs(steps / scales - 1)
    assert (off <= (2e-3 if wide else 1e-15)).all()
    slack = 0.5 + 1e-9 + unit_of(integers) * off[:, None]
    assert (np.abs(integers[:, :width] - np.minimum(expected, 2**15 - 1)) <= slack).all()
    assert not integers[:, width:].any()


@wide_and_narrow
@PROPERTY
@given(seed=seeds, count=st.sampled_from([1, 5, 17]), width=widths)
def test_rows_in_fixed_point_made_float_stay_the_same(
    seed: int, count: int, width: int, *, wide: bool
) -> None:
    rows = random_descriptors(np.random.default_rng(seed), count, width)
    rows[0] = 0
    integers, _ = quantise_rows(rows, wide=wide)
    floats = integers[:, :width].astype(np.float32) / np.float32(unit_of(integers))
    again, scales = quantise_rows(floats, wide=wide)
    np.testing.assert_array_equal(again, integers)
    np.testing.assert_allclose(scales[1:], 1 / unit_of(integers), rtol=EPSILON)


# --- where descriptors lie -----------------------------------------------------------


@wide_and_narrow
@PROPERTY
@given(seed=seeds, height=st.integers(20, 40), width=st.integers(20, 40))
def test_descriptors_in_the_feature_map_are_those_laid_out(
    seed: int, height: int, width: int, *, wide: bool
) -> None:
    gray = np.random.default_rng(seed).random((height, width)).astype(np.float32)
    rows, cols, located = sift.locate(gray, "fast-sift", 2)
    joined = sift.describe(gray, "fast-sift", 2).reshape(rows * cols, 128)
    found, expected = located.fixed(wide=wide), fixed(joined, wide=wide)
    # Scaled down to norm one before they are rounded, or not: one unit at the most.
    assert np.abs(found.directions.astype(int) - expected.directions).max() <= 1
    # A narrow length is that of the rounded values.
    moved = 0 if wide else 2 * MOVED * expected.steps
    assert (
        np.abs(found.lengths - expected.lengths) <= moved + 130 * EPSILON * expected.lengths
    ).all()


@wide_and_narrow
@pytest.mark.parametrize("count", [0, 1, 4095, 4096, 4097, 9000])
def test_parts_cover_all_descriptors_once(count: int, *, wide: bool) -> None:
    rows_ = random_descriptors(np.random.default_rng(0), count, 3, signs=wide)
    numbers, parts = [], []
    for rows, part in Descriptors.of(rows_).parts(wide=wide):
        numbers.append(np.arange(count)[rows])
        parts.append([array.copy() for array in part])
    assert [int(number) for part in numbers for number in part] == list(range(count))
    for place, expected in enumerate(fixed(rows_, wide=wide)):
        found = np.concatenate([expected[:0], *(part[place] for part in parts)])
        np.testing.assert_array_equal(found, expected)


@wide_and_narrow
def test_descriptors_in_fixed_point_are_one_part_of_their_kind(*, wide: bool) -> None:
    descriptors = Descriptors.of(random_descriptors(np.random.default_rng(0), 5000, signs=False))
    whole = descriptors.fixed(wide=wide)
    assert descriptors.fixed(wide=wide) is whole
    ((rows, part),) = descriptors.parts(wide=wide)
    assert rows == slice(0, 5000)
    assert part is whole
    assert len(list(descriptors.parts(wide=not wide))) == 2


@wide_and_narrow
def test_some_of_the_descriptors_are_rounded_anew(*, wide: bool) -> None:
    """Else a part of descriptors in fixed point would have the directions of the first ones."""
    descriptors = Descriptors.of(random_descriptors(np.random.default_rng(0), 9, signs=False))
    whole = descriptors.fixed(wide=wide)
    some, picked = descriptors.part(slice(4, 7)), descriptors.at(np.array([8, 2]))
    np.testing.assert_array_equal(some.fixed(wide=wide).directions, whole.directions[4:7])
    np.testing.assert_array_equal(picked.fixed(wide=wide).directions, whole.directions[[8, 2]])


def test_a_thread_keeps_its_memory_for_kernels_and_shares_it_with_no_other() -> None:
    def memory() -> tuple[npt.NDArray[Any], ...]:
        return *block_scratch(5), room_for_block(128, wide=False)

    with ThreadPoolExecutor(1) as other:
        pairs = zip(memory(), memory(), other.submit(memory).result(), strict=True)
        for own, again, others in pairs:
            assert again is own
            assert not np.shares_memory(own, others)


def test_memory_for_kernels_is_of_the_size_that_was_asked_for() -> None:
    assert [len(block_scratch(n).correlations) for n in (5, 40, 5)] == [32, 40, 32]
    assert room_for_block(128, wide=False).dtype == np.uint8
    assert room_for_block(256, wide=True).shape == (32, 256)
