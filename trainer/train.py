"""The paper's Algorithm 2 with one group per leaf: the dictionary and who may use it."""

import logging
from dataclasses import dataclass

import numpy as np

from service.engine.arrays import Float32Array
from service.engine.coding import Coder
from service.engine.tree import Tree
from trainer.dictionary import (
    first_dictionary,
    replace_unused_atoms,
    residual_energies,
    update_by_least_squares,
)
from trainer.somp import choose_active_sets, group_by_leaf

__all__ = ["CodeSettings", "LearnedCodes", "learn_codes"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CodeSettings:
    """Size of the dictionary, nonzeros per code, and iterations of Algorithm 2."""

    n_atoms: int
    nonzeros: int
    iterations: int


@dataclass(frozen=True)
class LearnedCodes:
    """A coder, and the relative error after each iteration of its training."""

    coder: Coder
    relative_errors: tuple[float, ...]


def learn_codes(
    descriptors: Float32Array, tree: Tree, settings: CodeSettings, rng: np.random.Generator
) -> LearnedCodes:
    """Algorithm 2 for descriptors (n, d): the tree is g, and every leaf is a group.

    The relative error is Σ‖x - Wz‖² / Σ‖x‖².
    """
    groups = group_by_leaf(descriptors, tree.route(descriptors), tree.n_leaves)
    x, leaf_ids = groups.descriptors, groups.leaf_ids
    energy = float(np.einsum("ij,ij->", x, x, dtype=np.float64))
    dictionary = first_dictionary(x, settings.n_atoms, rng)
    errors: list[float] = []
    for iteration in range(settings.iterations):
        table = choose_active_sets(groups, dictionary, settings.nonzeros)
        codes = Coder.from_table(table, dictionary).encode(x, leaf_ids)
        dictionary = update_by_least_squares(x, codes, dictionary)
        coder = Coder.from_table(table, dictionary)
        residuals = residual_energies(x, coder.encode(x, leaf_ids), dictionary)
        errors.append(float(residuals.sum(dtype=np.float64)) / energy)
        logger.info(
            "iteration %d/%d: relative error %.4f",
            iteration + 1,
            settings.iterations,
            errors[-1],
        )
        dictionary = replace_unused_atoms(groups, table, dictionary, residuals)
    return LearnedCodes(coder, tuple(errors))
