"""Codes against a least-squares solver, and against the pseudo-inverse."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.arrays import Float32Array, Int32Array
from service.engine.codes import Codes
from service.engine.coding import Coder, invert_grams
from service.engine.errors import DescriptorError
from tests import reference
from tests.reference import DIRECTION_ROUNDING, EPSILON
from tests.support.samples import (
    AWKWARD_COUNTS,
    PROPERTY,
    random_descriptors,
    random_dictionary,
    random_table,
)

N_LEAVES, N_ATOMS = 8, 24

# What rounding may change of a value, of a descriptor of length one and unit atoms.
NEAR = DIRECTION_ROUNDING + 2 * 128 * EPSILON

seeds = st.integers(0, 2**32 - 1)
counts = st.sampled_from(AWKWARD_COUNTS)
nonzeros_ = st.integers(1, 10)


class Case:
    """Random descriptors that are already routed, and the coder for them."""

    def __init__(self, seed: int, count: int, nonzeros: int) -> None:
        rng = np.random.default_rng(seed)
        self.table = random_table(rng, N_LEAVES, N_ATOMS, nonzeros)
        self.dictionary = random_dictionary(rng, N_ATOMS)
        self.descriptors = random_descriptors(rng, count)
        self.leaf_ids: Int32Array = rng.integers(0, N_LEAVES, count, np.int32)
        self.coder = Coder.from_table(self.table, self.dictionary)

    def encode(self, coder: Coder | None = None) -> Codes:
        return (coder or self.coder).encode(self.descriptors, self.leaf_ids)

    @property
    def atoms(self) -> Float32Array:
        """The active atoms (n, m, d) of every descriptor."""
        return self.dictionary[self.table[self.leaf_ids]]

    def oracle(self) -> reference.Floats:
        values = [
            reference.least_squares_code(atoms, descriptor)
            for atoms, descriptor in zip(self.atoms, self.descriptors, strict=True)
        ]
        return np.array(values).reshape(len(values), self.table.shape[1])

    def tolerance(self) -> reference.Floats:
        """How far rounding can move a value, (n, 1).

        Directions are rounded in each correlation, of d products, and so is the stored
        inverse; all of it is multiplied by the size of the inverse, of the atoms and of
        the descriptor.
        """
        width = self.descriptors.shape[1]
        rounding = DIRECTION_ROUNDING + 2 * width * EPSILON
        bounds = [
            rounding * _inverse_trace(atoms) * np.linalg.norm(atoms) * np.linalg.norm(x)
            for atoms, x in zip(self.atoms, self.descriptors, strict=True)
        ]
        return np.array(bounds).reshape(-1, 1)


def _inverse_trace(atoms: Float32Array) -> float:
    return float(np.trace(np.linalg.inv(atoms.astype(np.float64) @ atoms.astype(np.float64).T)))


def pseudo_inverses(table: Int32Array, dictionary: Float32Array) -> Float32Array:
    """P (leaves, m, d) with P·x the code of x."""
    atoms = dictionary[table].astype(np.float64)
    return np.linalg.pinv(atoms.transpose(0, 2, 1)).astype(np.float32)


@PROPERTY
@given(seeds, counts, nonzeros_)
def test_values_solve_the_least_squares_problem(seed: int, count: int, nonzeros: int) -> None:
    case = Case(seed, count, nonzeros)
    difference = np.abs(case.encode().values - case.oracle())
    assert (difference <= case.tolerance()).all()


@PROPERTY
@given(seeds, counts, nonzeros_)
def test_a_pseudo_inverse_times_the_descriptor_gives_the_values(
    seed: int, count: int, nonzeros: int
) -> None:
    case = Case(seed, count, nonzeros)
    stored = pseudo_inverses(case.table, case.dictionary)[case.leaf_ids].astype(np.float64)
    product = np.einsum("nmd,nd->nm", stored, case.descriptors)
    assert (np.abs(case.encode().values - product) <= 2 * case.tolerance()).all()


@PROPERTY
@given(seeds, counts, nonzeros_)
def test_the_residual_is_orthogonal_to_the_atoms(seed: int, count: int, nonzeros: int) -> None:
    case = Case(seed, count, nonzeros)
    atoms = case.atoms.astype(np.float64)
    values = case.encode().values.astype(np.float64)
    residuals = case.descriptors - np.einsum("nm,nmd->nd", values, atoms)
    correlations = np.einsum("nmd,nd->nm", atoms, residuals)
    # A wrong value shows in the correlations multiplied by the Gram matrix, whose
    # rows of unit atoms have entries of at most one.
    assert (np.abs(correlations) <= (nonzeros + 1) * case.tolerance()).all()


@PROPERTY
@given(seeds, counts, nonzeros_)
def test_atom_ids_are_the_rows_of_the_table(seed: int, count: int, nonzeros: int) -> None:
    case = Case(seed, count, nonzeros)
    np.testing.assert_array_equal(case.encode().atom_ids, case.table[case.leaf_ids])


@pytest.mark.parametrize("count", AWKWARD_COUNTS)
def test_codes_have_one_row_per_descriptor(count: int) -> None:
    codes = Case(0, count, 4).encode()
    shapes = (codes.leaf_ids.shape, codes.atom_ids.shape, codes.values.shape)
    assert shapes == ((count,), (count, 4), (count, 4))
    assert codes.atom_ids.dtype == np.int32
    assert codes.values.dtype == np.float32


@PROPERTY
@given(seeds, nonzeros_, st.lists(st.integers(0, 40), max_size=4))
def test_codes_do_not_depend_on_the_batches(seed: int, nonzeros: int, cuts: list[int]) -> None:
    case = Case(seed, 40, nonzeros)
    pairs = zip(
        np.split(case.descriptors, sorted(cuts)), np.split(case.leaf_ids, sorted(cuts)), strict=True
    )
    values = np.concatenate([case.coder.encode(x, leaves).values for x, leaves in pairs])
    np.testing.assert_array_equal(values, case.encode().values)


@PROPERTY
@given(seeds, nonzeros_, st.integers(-20, 20))
def test_a_scaled_descriptor_has_scaled_values(seed: int, nonzeros: int, exponent: int) -> None:
    case = Case(seed, 17, nonzeros)
    factor = np.float32(2.0**exponent)
    scaled = case.coder.encode(case.descriptors * factor, case.leaf_ids)
    np.testing.assert_array_equal(scaled.values, case.encode().values * factor)


def test_a_descriptor_that_is_an_atom_is_coded_by_it() -> None:
    case = Case(7, 0, 5)
    codes = case.coder.encode(case.dictionary[case.table[3, 2:3]], np.array([3], np.int32))
    np.testing.assert_allclose(codes.values, [[0, 0, 1, 0, 0]], atol=NEAR)


def test_a_zero_descriptor_has_zero_values() -> None:
    case = Case(1, 0, 5)
    codes = case.coder.encode(np.zeros((1, 128), np.float32), np.zeros(1, np.int32))
    assert not codes.values.any()


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


@pytest.mark.parametrize("kind", KINDS)
def test_dependent_atoms_give_the_code_of_smallest_norm(kind: str) -> None:
    dictionary = degenerate(kind)
    descriptors = random_descriptors(np.random.default_rng(12), 17)
    coder = Coder.from_table(ONE_LEAF, dictionary)
    values = coder.encode(descriptors, np.zeros(17, np.int32)).values
    expected = [reference.least_squares_code(dictionary, x) for x in descriptors]
    # As in Case.tolerance; the inverse on the kept directions is of size one here.
    np.testing.assert_allclose(values, expected, rtol=0, atol=NEAR * 4)


def test_atoms_that_are_all_zero_give_zero_codes() -> None:
    coder = Coder.from_table(ONE_LEAF, np.zeros((4, 128), np.float32))
    values = coder.encode(random_descriptors(np.random.default_rng(0), 3), np.zeros(3, np.int32))
    assert not values.values.any()


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
    inverses = invert_grams(case.table, case.dictionary)
    identities = inverses @ (atoms @ atoms.transpose(0, 2, 1))
    # One rounding of each entry of the inverse, times the Gram matrix.
    bound = nonzeros**2 * EPSILON * np.abs(inverses).max()
    np.testing.assert_allclose(
        identities, np.broadcast_to(np.eye(nonzeros), identities.shape), rtol=0, atol=bound
    )
    np.testing.assert_allclose(inverses, inverses.transpose(0, 2, 1), rtol=0, atol=bound)


def test_the_arrays_of_a_coder_are_read_only() -> None:
    coder = Case(0, 0, 2).coder
    arrays = (coder.table, coder.dictionary, coder.inverse_grams)
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
