"""The byte kernels compiled for a plain x86-64 give the numbers of this machine's own.

A bundle is trained on one machine and served on another, and its probes must agree.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from service.engine.coding import Coder
from service.engine.encoding import Outputs, ResidualSums, TreeCoder, encode_by_tree
from service.engine.fixedpoint import Descriptors
from service.engine.tree import Tree
from tests.reference import EPSILON
from tests.support import processes
from tests.support.samples import random_descriptors, random_dictionary, random_table

COUNT, DEPTH, N_ATOMS, NONZEROS = 203, 7, 40, 5

Arrays = dict[str, npt.NDArray[Any]]


def encode() -> Arrays:
    """All that coding seeded descriptors fills, with those in between that have no direction."""
    rng, nodes = np.random.default_rng(7), 2**DEPTH - 1
    vectors, dictionary = random_descriptors(rng, nodes), random_dictionary(rng, N_ATOMS)
    middles = vectors.sum(axis=1) / np.sqrt(128) * np.float32(0.8)
    thresholds = (middles + rng.normal(scale=0.3, size=nodes)).astype(np.float32)
    tree = Tree.from_floats(vectors, thresholds, wide=False)
    table = random_table(rng, 2**DEPTH, N_ATOMS, NONZEROS)
    coder = Coder.from_table(table, dictionary, wide=False)
    sizes = rng.uniform(0.001, 0.1, (COUNT, 1)).astype(np.float32)
    descriptors = random_descriptors(rng, COUNT, signs=False) * sizes
    descriptors[17], descriptors[40], descriptors[41, 5] = 0, 1e-35, -0.0
    # Values of whole and half steps, where rounding decides.
    descriptors[60:80] = rng.integers(0, 254, (20, 128)) / np.float32(2)
    descriptors[60:80, 3] = 127
    plain = Descriptors.of(descriptors)
    limited = Descriptors(plain.flat, plain.starts, longest=0.5)
    regions = np.arange(COUNT, dtype=np.int32) % 4
    sums = ResidualSums.empty(regions, 4, 8)
    outputs = Outputs.of_list(COUNT, NONZEROS)
    encode_by_tree(limited, TreeCoder(tree, coder), outputs, sums)
    return {
        "leaf_ids": outputs.codes.leaf_ids,
        "atom_ids": outputs.codes.atom_ids,
        "values": outputs.codes.values,
        "steps": outputs.written.steps,
        "norms": outputs.written.norms,
        "directions": plain.fixed(wide=False).directions,
        "routed_alone": tree.route(limited),
        "coded_alone": coder.encode(limited, outputs.codes.leaf_ids).values,
        "totals": sums.totals,
        "masses": sums.masses,
        "inverses": coder.inverse_grams,
    }


_ENCODE = """
import sys
import numpy as np
from tests.service.engine.test_portable import encode
from numba.core.registry import cpu_target
_, name, features = cpu_target.target_context.codegen().magic_tuple()
assert name == "generic" and "avx" not in features, (name, features)
np.savez(sys.argv[1], **encode())
"""


@pytest.fixture(scope="module")
def portable(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Arrays:
    """What a process computes that compiles for any x86-64 (any ARM, there).

    Compiling takes ten seconds: the next run of the tests finds the kernels that are the same.
    """
    folder = tmp_path_factory.mktemp("portable")
    kernels = pytestconfig.cache.mkdir("portable-kernels")
    environment = processes.environment(
        NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="", NUMBA_CACHE_DIR=str(kernels)
    )
    command = [sys.executable, "-c", _ENCODE, str(folder / "arrays.npz")]
    done = subprocess.run(
        command,
        cwd=processes.ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=processes.DEADLINE_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    with np.load(Path(folder, "arrays.npz")) as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def own() -> Arrays:
    return encode()


@pytest.mark.parametrize(
    "name",
    [
        *("directions", "steps", "norms", "leaf_ids", "routed_alone", "atom_ids"),
        *("totals", "masses"),
    ],
)
def test_whole_numbers_and_what_follows_from_them_are_the_same_bits(
    portable: Arrays, own: Arrays, name: str
) -> None:
    assert own[name].any()
    assert portable[name].dtype == own[name].dtype
    assert portable[name].tobytes() == own[name].tobytes()


@pytest.mark.parametrize("name", ["values", "coded_alone"])
def test_values_differ_by_the_rounding_of_five_products_at_the_most(
    portable: Arrays, own: Arrays, name: str
) -> None:
    """Without an instruction for it, a product is rounded before it is added to the others."""
    own_values = own[name].astype(np.float64)
    inverses = own["inverses"].astype(np.float64)[own["leaf_ids"]]
    # The products are of the inverse and c = (WᵀW)z.
    correlations = np.einsum("nab,nb->na", np.linalg.inv(inverses), own_values)
    sizes = np.einsum("nab,nb->na", np.abs(inverses), np.abs(correlations))
    assert (np.abs(portable[name] - own_values) <= 2 * NONZEROS * EPSILON * sizes).all()
    assert own_values.any()
