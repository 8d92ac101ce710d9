"""Codes against a least-squares solver, and against the pseudo-inverse."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.arrays import Float32Array, Float64Array, Int32Array
from service.engine.codes import Codes
from service.engine.coding import Coder, invert_grams
from service.engine.errors import DescriptorError
from service.engine.fixedpoint import Descriptors
from tests import reference
from tests.reference import EPSILON
from tests.support.samples import (
    AWKWARD_COUNTS,
    PROPERTY,
    random_descriptors,
    random_dictionary,
    random_table,
)

N_LEAVES, N_ATOMS = 8, 24

# What wide rounding may change of a value: half a unit of 2⁻¹⁵ in each of 128 values of a
# descriptor and of an atom of unit length.
NEAR = float(np.sqrt(128) / 2**15) + 2 * 128 * EPSILON

# Half a step in each of 128 values: how far rounding moves a direction.
MOVED = float(np.sqrt(128) / 2)

seeds = st.integers(0, 2**32 - 1)
counts = st.sampled_from(AWKWARD_COUNTS)
# Five, the paper's number, are solved by instructions of their own.
nonzeros_ = st.integers(1, 10)
wide_and_narrow = pytest.mark.parametrize("wide", [True, False], ids=["wide", "narrow"])


class Case:
    """Random descriptors that are already routed, and the coder for them."""

    def __init__(self, seed: int, count: int, nonzeros: int, *, wide: bool = True) -> None:
        rng = np.random.default_rng(seed)
        self.table = random_table(rng, N_LEAVES, N_ATOMS, nonzeros)
        self.dictionary = random_dictionary(rng, N_ATOMS)
        self.descriptors = random_descriptors(rng, count, signs=wide)
        self.leaf_ids: Int32Array = rng.integers(0, N_LEAVES, count, np.int32)
        self.coder = Coder.from_table(self.table, self.dictionary, wide=wide)

    def encode(self) -> Codes:
        return self.coder.encode(self.descriptors, self.leaf_ids)

    @property
    def rounded(self) -> "Problem":
        """What the coder solves: descriptors and dictionary as they are after rounding."""
        directions, steps, _ = Descriptors.of(self.descriptors).fixed(wide=self.coder.wide)
        dictionary = self.coder.atoms * self.coder.atom_scales.astype(np.float64)[:, None]
        atoms = dictionary[self.table[self.leaf_ids]]
        return Problem(atoms, directions * steps.astype(np.float64)[:, None])

    @property
    def exact(self) -> "Problem":
        """What was asked for: descriptors and dictionary before rounding."""
        atoms = self.dictionary[self.table[self.leaf_ids]]
        return Problem(atoms.astype(np.float64), self.descriptors.astype(np.float64))

    def moved(self) -> reference.Floats:
        """How far rounding descriptors and dictionary may move each value, (n, m).

        With W the atoms, x the descriptor, z the code and r = x - Wz, all before rounding, and
        W' = W + E, x' = x + e after it, z' - z = W'⁺(x' - W'z) = W'⁺(e - Ez) + (W'ᵀW')⁻¹Eᵀr,
        because Wᵀr = 0. No column of E and not e is longer than half a step in each value, or
        a whole one where an int16 is cut off.
        """
        wide, solved, asked = self.coder.wide, self.rounded, self.exact
        longest = MOVED + wide
        steps = np.array([reference.step_of(x, wide=wide) for x in self.descriptors])
        scales = np.array([reference.step_of(atom, wide=wide) for atom in self.dictionary])
        own = longest * scales[self.table[self.leaf_ids]]
        z = asked.solution()
        residuals = asked.descriptors - np.einsum("nm,nmd->nd", z, asked.atoms)
        sizes: Float64Array = np.linalg.norm(solved.pseudo_inverses, axis=2)
        by_rows = longest * steps + (own * np.abs(z)).sum(axis=1)
        by_angle = own * np.linalg.norm(residuals, axis=1)[:, None]
        inverses = np.abs(solved.inverse_grams)
        moved: Float64Array = sizes * by_rows[:, None]
        moved += np.einsum("nab,nb->na", inverses, by_angle)
        return moved

    def tolerance(self) -> reference.Floats:
        """How far what is rounded after descriptors and dictionary may move a value, (n, m).

        That is float32's part and, for narrow ones, half a unit of each of the leaf's factors:
        the inverse Gram matrix times the scales of atoms, in 15 bits of the largest.
        """
        solved = self.rounded
        tolerance = solved.tolerance()
        if not self.coder.wide:
            scales = self.coder.atom_scales[self.table[self.leaf_ids]].astype(np.float64)
            factors = np.abs(solved.inverse_grams * scales[:, None, :])
            units = factors.max(axis=(1, 2), initial=0) / (2**15 - 1)
            tolerance += (
                (0.5 + 1e-3)
                * units[:, None]
                * (solved.correlations / scales).sum(axis=1, keepdims=True)
            )
        return tolerance


class Problem(NamedTuple):
    """Least squares in float64: the active atoms (n, m, d) of descriptors (n, d)."""

    atoms: Float64Array
    descriptors: Float64Array

    def solution(self) -> Float64Array:
        """The values (n, m) by the oracle."""
        pairs = zip(self.atoms, self.descriptors, strict=True)
        values = [reference.least_squares_code(atoms, x) for atoms, x in pairs]
        return np.array(values).reshape(self.atoms.shape[:2])

    @property
    def inverse_grams(self) -> Float64Array:
        return np.linalg.inv(self.atoms @ self.atoms.transpose(0, 2, 1)).astype(np.float64)

    @property
    def pseudo_inverses(self) -> Float64Array:
        """P (n, m, d) with P·x the code of x."""
        return np.linalg.pinv(self.atoms.transpose(0, 2, 1)).astype(np.float64)

    @property
    def correlations(self) -> Float64Array:
        """Sizes (n, m) of the descriptors' products with their atoms."""
        products: Float64Array = np.einsum("nmd,nd->nm", self.atoms, self.descriptors)
        return np.abs(products)

    def tolerance(self) -> Float64Array:
        """How far float32 may move a value, (n, m): z = (WᵀW)⁻¹c, c = Wᵀx.

        c is a whole number, times a scale, times a step; the stored inverse, the scale within
        it, m products and their sums are rounded, each by half of EPSILON.
        """
        inverses = np.abs(self.inverse_grams)
        sizes: Float64Array = np.einsum("nab,nb->na", inverses, self.correlations)
        sizes *= (self.atoms.shape[1] + 8) * EPSILON
        return sizes


@wide_and_narrow
@PROPERTY
@given(seed=seeds, count=counts, nonzeros=nonzeros_)
def test_values_solve_the_least_squares_problem_of_the_rounded(
    seed: int, count: int, nonzeros: int, *, wide: bool
) -> None:
    case = Case(seed, count, nonzeros, wide=wide)
    rounded = case.rounded
    difference = np.abs(case.encode().values - rounded.solution())
    assert (difference <= case.tolerance()).all()


@wide_and_narrow
@PROPERTY
@given(seed=seeds, count=counts, nonzeros=nonzeros_)
def test_rounding_moves_the_values_no_further_than_it_may(
    seed: int, count: int, nonzeros: int, *, wide: bool
) -> None:
    case = Case(seed, count, nonzeros, wide=wide)
    difference = np.abs(case.encode().values - case.exact.solution())
    assert (difference <= case.moved() + case.tolerance()).all()


@wide_and_narrow
def test_what_rounding_may_move_is_little(*, wide: bool) -> None:
    """What is compared above would fail for another atom or leaf."""
    case = Case(0, 65, 5, wide=wide)
    lengths = np.linalg.norm(case.descriptors, axis=1)
    assert (case.moved() < (0.002 if wide else 0.4) * lengths[:, None]).all()
    differences = np.abs(case.encode().values - case.exact.solution())
    assert differences.mean() < (1e-4 if wide else 0.01) * lengths.mean()
    assert (case.tolerance() < (1e-5 if wide else 2e-5) * lengths[:, None]).all()


@wide_and_narrow
@PROPERTY
@given(seed=seeds, count=counts, nonzeros=nonzeros_)
def test_a_pseudo_inverse_times_the_rounded_descriptor_gives_the_values(
    seed: int, count: int, nonzeros: int, *, wide: bool
) -> None:
    case = Case(seed, count, nonzeros, wide=wide)
    rounded = case.rounded
    product = np.einsum("nmd,nd->nm", rounded.pseudo_inverses, rounded.descriptors)
    assert (np.abs(case.encode().values - product) <= case.tolerance()).all()


@wide_and_narrow
@PROPERTY
@given(seed=seeds, count=counts, nonzeros=nonzeros_)
def test_the_residual_is_orthogonal_to_the_atoms(
    seed: int, count: int, nonzeros: int, *, wide: bool
) -> None:
    case = Case(seed, count, nonzeros, wide=wide)
    atoms, descriptors = case.rounded
    values = case.encode().values.astype(np.float64)
    residuals = descriptors - np.einsum("nm,nmd->nd", values, atoms)
    correlations = np.einsum("nmd,nd->nm", atoms, residuals)
    # A wrong value shows in the correlations multiplied by the Gram matrix.
    grams = np.abs(atoms @ atoms.transpose(0, 2, 1))
    bounds = np.einsum("nab,nb->na", grams, case.tolerance())
    assert (np.abs(correlations) <= bounds + 1e-12).all()


@wide_and_narrow
def test_the_dictionary_is_what_the_rounded_atoms_stand_for(*, wide: bool) -> None:
    case = Case(3, 0, 4, wide=wide)
    assert case.coder.atoms.dtype == (np.int16 if wide else np.int8)
    expected = case.coder.atoms * case.coder.atom_scales[:, None]
    np.testing.assert_array_equal(case.coder.dictionary, expected.astype(np.float32))
    steps = [reference.step_of(atom, wide=wide) for atom in case.dictionary]
    # Atoms of almost unit length are left as they are.
    bounds = np.array(steps)[:, None] * (0.5 + 2**15 * 2 * EPSILON if wide else 0.5 + 1e-4)
    assert (np.abs(case.coder.dictionary - case.dictionary) <= bounds).all()


@wide_and_narrow
def test_a_dictionary_rounded_again_is_the_same(*, wide: bool) -> None:
    coder = Case(4, 0, 4, wide=wide).coder
    again = Coder.from_table(coder.table, coder.dictionary, wide=wide)
    np.testing.assert_array_equal(again.atoms, coder.atoms)
    np.testing.assert_allclose(again.atom_scales, coder.atom_scales, rtol=2 * EPSILON)


@PROPERTY
@given(seeds, counts, nonzeros_)
def test_a_widened_coder_codes_values_with_signs(seed: int, count: int, nonzeros: int) -> None:
    case = Case(seed, count, nonzeros, wide=False)
    case.descriptors = random_descriptors(np.random.default_rng(seed), count)
    dictionary = case.coder.dictionary
    case.coder = case.coder.widened()
    assert case.coder.wide
    np.testing.assert_array_equal(case.coder.dictionary, dictionary)
    rounded = case.rounded
    difference = np.abs(case.encode().values - rounded.solution())
    assert (difference <= case.tolerance()).all()


@wide_and_narrow
@PROPERTY
@given(seed=seeds, count=counts, nonzeros=nonzeros_)
def test_atom_ids_are_the_rows_of_the_table(
    seed: int, count: int, nonzeros: int, *, wide: bool
) -> None:
    case = Case(seed, count, nonzeros, wide=wide)
    np.testing.assert_array_equal(case.encode().atom_ids, case.table[case.leaf_ids])


@pytest.mark.parametrize("count", AWKWARD_COUNTS)
def test_codes_have_one_row_per_descriptor(count: int) -> None:
    codes = Case(0, count, 4).encode()
    shapes = (codes.leaf_ids.shape, codes.atom_ids.shape, codes.values.shape)
    assert shapes == ((count,), (count, 4), (count, 4))
    assert codes.atom_ids.dtype == np.int32
    assert codes.values.dtype == np.float32


@wide_and_narrow
@PROPERTY
@given(seed=seeds, nonzeros=nonzeros_, cuts=st.lists(st.integers(0, 40), max_size=4))
def test_codes_do_not_depend_on_the_batches(
    seed: int, nonzeros: int, cuts: list[int], *, wide: bool
) -> None:
    case = Case(seed, 40, nonzeros, wide=wide)
    pairs = zip(
        np.split(case.descriptors, sorted(cuts)), np.split(case.leaf_ids, sorted(cuts)), strict=True
    )
    values = np.concatenate([case.coder.encode(x, leaves).values for x, leaves in pairs])
    np.testing.assert_array_equal(values, case.encode().values)


@wide_and_narrow
@PROPERTY
@given(seed=seeds, nonzeros=nonzeros_, exponent=st.integers(-20, 20))
def test_a_scaled_descriptor_has_scaled_values(
    seed: int, nonzeros: int, exponent: int, *, wide: bool
) -> None:
    case = Case(seed, 17, nonzeros, wide=wide)
    factor = np.float32(2.0**exponent)
    scaled = case.coder.encode(case.descriptors * factor, case.leaf_ids)
    np.testing.assert_array_equal(scaled.values, case.encode().values * factor)


@wide_and_narrow
def test_a_descriptor_that_is_an_atom_is_coded_by_it(*, wide: bool) -> None:
    case = Case(7, 0, 5, wide=wide)
    # Without signs, and rounded alike: narrow atoms and descriptors are the same bytes.
    atoms = case.dictionary if wide else np.abs(case.dictionary)
    coder = Coder.from_table(case.table, atoms, wide=wide)
    case.coder, case.leaf_ids = coder, np.array([3], np.int32)
    case.descriptors = coder.dictionary[case.table[3, 2:3]]
    # A unit of a wide direction may be cut off.
    near = case.tolerance() + wide * NEAR
    assert (np.abs(case.encode().values - [[0, 0, 1, 0, 0]]) <= near).all()


@wide_and_narrow
@pytest.mark.parametrize("nonzeros", [4, 5, 6])
@pytest.mark.parametrize("value", [0.0, 1e-40, 1e-35])
def test_a_descriptor_of_no_length_has_zero_values(
    value: float, nonzeros: int, *, wide: bool
) -> None:
    case = Case(1, 0, nonzeros, wide=wide)
    codes = case.coder.encode(np.full((1, 128), value, np.float32), np.zeros(1, np.int32))
    assert not codes.values.any()


@wide_and_narrow
def test_factors_beyond_all_floats_give_no_finite_values_and_no_warning(*, wide: bool) -> None:
    """Of a bundle that no training made: its probes are then rejected."""
    case = Case(1, 1, 5, wide=wide)
    coder = replace(
        case.coder,
        inverse_grams=np.full_like(case.coder.inverse_grams, 1e30),
        atom_scales=np.full_like(case.coder.atom_scales, 1e20),
    )
    assert not np.isfinite(coder.encode(case.descriptors, case.leaf_ids).values).any()


def degenerate(kind: str) -> Float32Array:
    """A dictionary of four atoms, of which the last depends on the others."""
    dictionary = random_dictionary(np.random.default_rng(11), 4)
    replacements = {
        "duplicate": dictionary[0],
        "opposite": -dictionary[0],
        "sum": dictionary[0] + dictionary[1],
        "zero": np.zeros(128, np.float32),
    }
    dictionary[3] = replacements[kind]
    return dictionary


KINDS = ["duplicate", "opposite", "sum", "zero"]
ONE_LEAF = np.arange(4, dtype=np.int32).reshape(1, 4)


@wide_and_narrow
@pytest.mark.parametrize("kind", KINDS)
def test_dependent_atoms_give_the_code_of_smallest_norm(kind: str, *, wide: bool) -> None:
    descriptors = random_descriptors(np.random.default_rng(12), 17, signs=wide)
    coder = Coder.from_table(ONE_LEAF, degenerate(kind), wide=wide)
    values = coder.encode(descriptors, np.zeros(17, np.int32)).values
    directions, steps, _ = Descriptors.of(descriptors).fixed(wide=wide)
    rounded = directions * steps.astype(np.float64)[:, None]
    expected = [reference.least_squares_code(coder.dictionary, x) for x in rounded]
    # The inverse on the kept directions is of size one here, the descriptors of eleven. The sum
    # of two atoms is one only up to a step after rounding, which is dropped all the same.
    np.testing.assert_allclose(values, expected, rtol=0, atol=4 * 12 * 12 * EPSILON)


@wide_and_narrow
def test_atoms_that_are_all_zero_give_zero_codes(*, wide: bool) -> None:
    coder = Coder.from_table(ONE_LEAF, np.zeros((4, 128), np.float32), wide=wide)
    assert not coder.dictionary.any()
    descriptors = random_descriptors(np.random.default_rng(0), 3, signs=wide)
    assert not coder.encode(descriptors, np.zeros(3, np.int32)).values.any()


def test_an_atom_named_twice_shares_its_value() -> None:
    dictionary = random_dictionary(np.random.default_rng(5), 2)
    coder = Coder.from_table(np.array([[1, 1]], np.int32), dictionary)
    values = coder.encode(dictionary[1:], np.zeros(1, np.int32)).values
    np.testing.assert_allclose(values, [[0.5, 0.5]], rtol=NEAR)


@PROPERTY
@given(seeds, st.sampled_from([1e-7, 1e-5, 1e-3, 1e-1]))
def test_nearly_equal_atoms_never_blow_up_a_value(seed: int, distance: float) -> None:
    rng = np.random.default_rng(seed)
    dictionary = random_dictionary(rng, 2)
    dictionary[1] = dictionary[0] + np.float32(distance) * dictionary[1]
    coder = Coder.from_table(np.array([[0, 1]], np.int32), dictionary)
    descriptors = random_descriptors(rng, 5)
    values = coder.encode(descriptors, np.zeros(5, np.int32)).values
    # Kept directions have a singular value of at least a hundredth of the largest one.
    limits = 101 * np.linalg.norm(descriptors, axis=1)
    assert (np.linalg.norm(values, axis=1) <= limits).all()


@PROPERTY
@given(seeds, nonzeros_)
def test_inverse_grams_are_symmetric_inverses(seed: int, nonzeros: int) -> None:
    case = Case(seed, 0, nonzeros)
    atoms = case.dictionary[case.table].astype(np.float64)
    inverses = invert_grams(case.table, case.dictionary.astype(np.float64))
    identities = inverses @ (atoms @ atoms.transpose(0, 2, 1))
    # One rounding of each entry of the inverse, times the Gram matrix.
    bound = nonzeros**2 * EPSILON * np.abs(inverses).max()
    np.testing.assert_allclose(
        identities, np.broadcast_to(np.eye(nonzeros), identities.shape), rtol=0, atol=bound
    )
    np.testing.assert_allclose(inverses, inverses.transpose(0, 2, 1), rtol=0, atol=bound)


@wide_and_narrow
@PROPERTY
@given(seed=seeds, nonzeros=nonzeros_)
def test_a_coder_has_the_inverses_of_its_rounded_atoms(
    seed: int, nonzeros: int, *, wide: bool
) -> None:
    coder = Case(seed, 0, nonzeros, wide=wide).coder
    atoms = coder.dictionary[coder.table].astype(np.float64)
    identities = coder.inverse_grams @ (atoms @ atoms.transpose(0, 2, 1))
    # Rounded are the inverse, and the scales of two atoms in a Gram matrix.
    bound = 4 * nonzeros**2 * EPSILON * np.abs(coder.inverse_grams).max()
    expected = np.broadcast_to(np.eye(nonzeros), identities.shape)
    np.testing.assert_allclose(identities, expected, rtol=0, atol=bound)


@wide_and_narrow
def test_a_coder_of_its_own_tensors_is_the_same(*, wide: bool) -> None:
    coder = Case(0, 0, 2, wide=wide).coder
    again = Coder.from_tensors(coder.tensors())
    assert list(coder.tensors()) == ["table", "atoms", "atom_scales", "inverse_grams"]
    assert again.wide is wide
    np.testing.assert_array_equal(again.dictionary, coder.dictionary)


@PROPERTY
@given(seeds, st.sampled_from([1, 2, 31, 127, 128, 129, 255, 256, 257, 300]))
def test_vectors_of_any_width_are_coded_by_wide_directions(seed: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    dictionary = random_dictionary(rng, 6, width)
    coder = Coder.from_table(np.arange(6, dtype=np.int32)[:, None], dictionary)
    assert coder.wide
    assert coder.dictionary.shape == (6, width)
    leaves = rng.integers(0, 6, 9, np.int32)
    descriptors = random_descriptors(rng, 9, width)
    values = coder.encode(descriptors, leaves).values[:, 0]
    expected = np.einsum("nd,nd->n", descriptors, dictionary[leaves].astype(np.float64))
    lengths = np.linalg.norm(descriptors, axis=1)
    # As NEAR, for this width, and a whole unit where one is cut off.
    bounds = ((np.sqrt(width) + 4) / 2**15 + 2 * width * EPSILON) * lengths
    assert (np.abs(values - expected) <= bounds).all()


def test_the_arrays_of_a_coder_are_read_only() -> None:
    coder = Case(0, 0, 2).coder
    arrays = (*coder.tensors().values(), coder.dictionary)
    assert not any(array.flags.writeable for array in arrays)


def test_a_strided_view_is_coded_like_its_copy() -> None:
    case = Case(2, 34, 5)
    view, leaf_ids = case.descriptors[::2], case.leaf_ids[::2]
    found = case.coder.encode(view, leaf_ids).values
    np.testing.assert_array_equal(found, case.coder.encode(view.copy(), leaf_ids.copy()).values)


@pytest.mark.parametrize("leaf", [-1, N_LEAVES, 2**31 - 1])
def test_leaves_beyond_the_table_are_refused(leaf: int) -> None:
    case = Case(2, 9, 3)
    case.leaf_ids[4] = leaf
    with pytest.raises(DescriptorError, match=rf"leaf ids are .*{leaf}.*, expected 0 to 7"):
        case.encode()


@pytest.mark.parametrize("count", [0, 8, 10])
def test_another_number_of_leaves_than_of_descriptors_is_refused(count: int) -> None:
    case = Case(2, 9, 3)
    with pytest.raises(DescriptorError, match=rf"the shape \[{count}\], expected \[9\]"):
        case.coder.encode(case.descriptors, np.zeros(count, np.int32))


def test_descriptors_wider_than_the_atoms_are_refused() -> None:
    case = Case(2, 9, 3)
    with pytest.raises(DescriptorError, match="256 wide, padded, expected 128"):
        case.coder.encode(random_descriptors(np.random.default_rng(0), 9, 200), case.leaf_ids)
