"""A run of Algorithm 2 that can be resumed from disk and that may refine the tree.

After every iteration the state goes to the checkpoint. Sweeps of refinement follow the
last iteration, in turns with the codes.
"""

import logging
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from service.engine.arrays import Float32Array, Int32Array
from service.engine.coding import Coder
from service.engine.hashing import Hash, HashFunction
from service.engine.tree import Tree
from trainer.learn.algorithm2 import CodeSettings, LearnedCodes, TrainingState, learn_codes_of
from trainer.learn.checkpoint import Checkpoint, fingerprint
from trainer.learn.points import LocalPoints, Points
from trainer.learn.refine import refine_codes, refine_tree
from trainer.learn.somp import group_by_leaf

__all__ = ["RunSettings", "learn_hash_codes", "learn_point_codes", "learn_tree_codes"]

logger = logging.getLogger(__name__)

# Descriptors that a fingerprint is made of, at most.
_TOLD_BY = 1000


@dataclass(frozen=True)
class RunSettings:
    """Settings of Algorithm 2, sweeps of refinement after it, seed, and a file to resume."""

    codes: CodeSettings
    refinements: int = 0
    seed: int = 0
    checkpoint: Path | None = None

    @property
    def facts(self) -> dict[str, object]:
        """What a state belongs to, beside the descriptors."""
        return {**asdict(self.codes), "seed": self.seed}


def learn_hash_codes(
    descriptors: Float32Array, hash_: HashFunction, settings: RunSettings
) -> LearnedCodes:
    """Algorithm 2 for a hash that stays as it is."""
    learned, _ = _learn(descriptors, hash_, settings)
    return learned


def learn_tree_codes(
    descriptors: Float32Array,
    tree: Tree,
    settings: RunSettings,
    image_ids: Int32Array | None = None,
) -> tuple[Hash, LearnedCodes]:
    """Algorithm 2, then `refinements` times the tree's decisions and the codes in turn.

    image_ids (n,), which image each descriptor came from, is for the refinements alone.
    """
    learned, state = _learn(descriptors, tree, settings)
    if settings.refinements:  # decisions are fitted to codes, so these come first
        learned, state = _refined(descriptors, tree, state)
    for sweep in range(settings.refinements):
        tree = refine_tree(descriptors, tree, learned.coder, image_ids)
        learned, state = _refined(descriptors, tree, state)
        error = learned.relative_errors[-1]
        logger.info("refinement %d/%d: relative error %.4f", sweep + 1, settings.refinements, error)
    return tree, learned


def _refined(
    descriptors: Float32Array, tree: Tree, state: TrainingState
) -> tuple[LearnedCodes, TrainingState]:
    """Codes for where the tree sends the descriptors now; leaves stay in their groups."""
    leaves = np.arange(tree.n_leaves, dtype=np.int32)
    group_ids = leaves if state.group_ids is None else state.group_ids
    leaf_ids = group_ids[tree.route(descriptors)]
    points = group_by_leaf(descriptors, leaf_ids, len(state.table), wide=tree.wide)
    table, dictionary, error = refine_codes(points, state.table, state.dictionary)
    errors = (*state.relative_errors, error)
    coder = Coder.from_table(table[group_ids], dictionary, wide=tree.wide)
    state = replace(state, table=table, dictionary=dictionary, relative_errors=errors)
    return LearnedCodes(coder, errors), state


def learn_point_codes(points: Points, settings: RunSettings) -> LearnedCodes:
    """Algorithm 2 for descriptors by leaf."""
    learned, _ = _learn_points(points, settings)
    return learned


def _learn(
    descriptors: Float32Array, hash_: HashFunction, settings: RunSettings
) -> tuple[LearnedCodes, TrainingState]:
    leaf_ids = hash_.route(descriptors)
    wide = settings.codes.wide
    points = LocalPoints(group_by_leaf(descriptors, leaf_ids, hash_.n_leaves, wide=wide))
    return _learn_points(points, settings)


def _learn_points(points: Points, settings: RunSettings) -> tuple[LearnedCodes, TrainingState]:
    """Algorithm 2 from the checkpoint or the start; the codes and the last state."""
    checkpoint, last = None, None
    if settings.checkpoint is not None:
        checkpoint = Checkpoint(settings.checkpoint, _run_fingerprint(points, settings))
    if checkpoint and (last := checkpoint.load()):
        logger.info("resuming after iteration %d of %s", last.iteration, checkpoint.path)

    def keep(state: TrainingState) -> None:
        nonlocal last
        last = state
        if checkpoint:
            checkpoint.save(state)

    learned = learn_codes_of(
        points,
        settings.codes,
        np.random.default_rng(settings.seed),
        after_iteration=keep,
        resume_from=last,
    )
    assert last is not None  # noqa: S101  # there is at least one iteration
    return learned, last


def _run_fingerprint(points: Points, settings: RunSettings) -> str:
    """What a run can be told by wherever its descriptors are: some of them, by leaf."""
    n, _ = points.shape
    places = np.arange(0, n, -(-n // _TOLD_BY))
    facts = {**settings.facts, "descriptors": n}
    return fingerprint(facts, points.populated, points.rows(places))
