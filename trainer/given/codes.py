"""A coder for the leaves of a hash, from groups that are given.

Section 2.1 under the rule of section 2.3: the descriptors of a leaf choose one of the
given groups together, so that the look-up table needs a row per leaf and nothing else.
"""

import numpy as np

from service.engine.arrays import Float32Array
from service.engine.hashing import HashFunction
from trainer.given.groups import GroupStructure, learn_together
from trainer.learn.algorithm2 import CodeSettings, LearnedCodes
from trainer.learn.dictionary import first_dictionary
from trainer.learn.somp import group_by_leaf

__all__ = ["learn_given_codes"]


def learn_given_codes(
    descriptors: Float32Array,
    hash_: HashFunction,
    structure: GroupStructure,
    settings: CodeSettings,
    rng: np.random.Generator,
) -> LearnedCodes:
    """A dictionary for descriptors (n, d) and given groups, and the group of every leaf."""
    leaf_ids = hash_.route(descriptors)
    buckets = group_by_leaf(descriptors, leaf_ids, hash_.n_leaves, wide=settings.wide)
    first = first_dictionary(buckets.descriptors, settings.n_atoms, rng)
    learned = learn_together(buckets, structure, first, settings.iterations)
    chosen = structure.of_leaves(buckets, learned.dictionary)
    energy = float(np.einsum("ij,ij->", descriptors, descriptors, dtype=np.float64)) or 1.0
    errors = tuple(error / energy for error in learned.energies[1:])
    return LearnedCodes(chosen.coder(learned.dictionary, wide=settings.wide), errors)
