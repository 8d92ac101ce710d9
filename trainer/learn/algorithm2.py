"""Learning a dictionary and the active sets of its groups: the paper's Algorithm 2.

Given a hash g, its leaves are groups of their own or are glued into fewer (section
2.3); without g, every descriptor chooses its group by itself (section 2.2). Each
iteration maps one `TrainingState` to the next, so that a run can stop after any. For a
number of groups the error never rises; with one group per leaf it may, as the paper says.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from service.engine.arrays import Float32Array, Int32Array, frozen
from service.engine.coding import Coder
from service.engine.hashing import HashFunction
from trainer.errors import DataError
from trainer.learn.dictionary import DictionaryUpdate, first_places, unit_rows
from trainer.learn.group_choice import choose_groups, first_groups, glue
from trainer.learn.points import LocalPoints, Points, replace_unused_atoms
from trainer.learn.somp import LeafGroups, each_alone, group_by_leaf

__all__ = [
    "CodeSettings",
    "LearnedCodes",
    "LearnedGroups",
    "TrainingState",
    "learn_codes",
    "learn_codes_of",
    "learn_groups",
]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CodeSettings:
    """Size of the dictionary, nonzeros per code, and iterations of Algorithm 2.

    `groups` None: one for every leaf. Atoms are `wide` or narrow, see `engine/fixedpoint.py`.
    """

    n_atoms: int
    nonzeros: int
    iterations: int
    groups: int | None = None
    dictionary_update: DictionaryUpdate = "least-squares"
    wide: bool = True

    def __post_init__(self) -> None:
        if self.nonzeros > self.n_atoms:
            raise DataError(
                f"{self.nonzeros} nonzeros are more than the {self.n_atoms} atoms of the dictionary"
            )


@dataclass(frozen=True)
class LearnedCodes:
    """A coder for the leaves of the hash, and the relative error after each iteration."""

    coder: Coder
    relative_errors: tuple[float, ...]


@dataclass(frozen=True)
class LearnedGroups:
    """A coder for groups in place of leaves, each descriptor's group (n,), and errors."""

    coder: Coder
    group_ids: Int32Array
    relative_errors: tuple[float, ...]


@dataclass(frozen=True)
class TrainingState:
    """All that a run needs to go on after `iteration`, given the same descriptors and hash.

    dictionary (K, d); table (groups, m); group_ids (leaves,) the group of each leaf,
    None where every leaf is a group; rng_state of the bit generator, plain JSON values.
    """

    iteration: int
    dictionary: Float32Array
    table: Int32Array
    group_ids: Int32Array | None
    relative_errors: tuple[float, ...]
    rng_state: dict[str, Any]

    def __post_init__(self) -> None:
        for name in ("dictionary", "table"):
            object.__setattr__(self, name, frozen(getattr(self, name)))
        if self.group_ids is not None:
            object.__setattr__(self, "group_ids", frozen(self.group_ids))


AfterIteration = Callable[[TrainingState], None]


def learn_codes(  # noqa: PLR0913  # the last two are for callers that write the state to disk
    descriptors: Float32Array,
    hash_: HashFunction,
    settings: CodeSettings,
    rng: np.random.Generator,
    *,
    after_iteration: AfterIteration | None = None,
    resume_from: TrainingState | None = None,
) -> LearnedCodes:
    """Algorithm 2 for descriptors (n, d), given g: one table row per leaf comes out.

    A run that resumes from a state ends with the tensors of the uninterrupted run, bit
    for bit. The relative error is Σ‖x - Wz‖² / Σ‖x‖².
    """
    leaf_ids = hash_.route(descriptors)
    buckets = group_by_leaf(descriptors, leaf_ids, hash_.n_leaves, wide=settings.wide)
    return learn_codes_of(
        LocalPoints(buckets),
        settings,
        rng,
        after_iteration=after_iteration,
        resume_from=resume_from,
    )


def learn_codes_of(
    points: Points,
    settings: CodeSettings,
    rng: np.random.Generator,
    *,
    after_iteration: AfterIteration | None = None,
    resume_from: TrainingState | None = None,
) -> LearnedCodes:
    """The same for descriptors that are in the order of their leaves already."""
    state = _algorithm_2(_new_run(points, settings, rng), resume_from, after_iteration)
    table = state.table if state.group_ids is None else state.table[state.group_ids]
    coder = Coder.from_table(table, state.dictionary, wide=points.wide)
    return LearnedCodes(coder, state.relative_errors)


def learn_groups(
    descriptors: Float32Array,
    settings: CodeSettings,
    rng: np.random.Generator,
    *,
    after_iteration: AfterIteration | None = None,
    resume_from: TrainingState | None = None,
) -> LearnedGroups:
    """Algorithm 2 for descriptors (n, d) without g: `settings.groups` groups come out."""
    if settings.groups is None:
        raise DataError("no number of groups, expected one because there are no leaves")
    run = _new_run(LocalPoints(each_alone(descriptors, wide=settings.wide)), settings, rng)
    state = _algorithm_2(run, resume_from, after_iteration)
    group_ids = np.arange(len(descriptors)) if state.group_ids is None else state.group_ids
    coder = Coder.from_table(state.table, state.dictionary, wide=run.buckets.wide)
    return LearnedGroups(coder, group_ids.astype(np.int32), state.relative_errors)


@dataclass(frozen=True)
class _Run:
    """What stays the same through all iterations; n_groups None: each bucket is a group."""

    buckets: Points
    n_groups: int | None
    settings: CodeSettings
    rng: np.random.Generator

    @property
    def local_buckets(self) -> LeafGroups:
        """All descriptors, without which leaves cannot share groups."""
        if not isinstance(self.buckets, LocalPoints):
            raise DataError("leaves share groups only where all descriptors are in one place")
        return self.buckets.groups

    @property
    def never_rises(self) -> bool:
        """Whether steps 2 and 3 keep what was there if it codes better.

        Not with one group per leaf. There it was measured: 100 000 SIFT descriptors, depth
        11, 512 atoms end at .3198 instead of .3214 (.3292 and .3295 on others), for a quarter
        more time.
        """
        return self.settings.groups is not None


def _algorithm_2(
    run: _Run, resume_from: TrainingState | None, after_iteration: AfterIteration | None
) -> TrainingState:
    state = _first_state(run) if resume_from is None else _resumed_state(run, resume_from)
    while state.iteration < run.settings.iterations:
        state = _iterate(run, state)
        logger.info(
            "iteration %d/%d: relative error %.4f",
            state.iteration,
            run.settings.iterations,
            state.relative_errors[-1],
        )
        if after_iteration is not None:
            after_iteration(state)
    return state


def _iterate(run: _Run, state: TrainingState) -> TrainingState:
    dictionary = _with_unused_atoms_replaced(run, state)
    # 1: each bucket chooses a group
    group_ids, current = _choose_groups(run, state, dictionary)
    points = _by_group(run, group_ids)
    # 2: each group chooses its atoms
    table = _choose_atoms(run, points, current, dictionary)
    # 3: the dictionary is updated
    dictionary, error = _updated_dictionary(run, points, table, dictionary)
    return TrainingState(
        state.iteration + 1,
        dictionary,
        table,
        group_ids,
        (*state.relative_errors, error),
        dict(run.rng.bit_generator.state),
    )


def _choose_groups(
    run: _Run, state: TrainingState, dictionary: Float32Array
) -> tuple[Int32Array | None, Int32Array]:
    """The group of each leaf, and the table by which the groups code their leaves so far."""
    if run.n_groups is None:
        return None, state.table
    choice = choose_groups(run.local_buckets, state.table, dictionary, run.rng)
    return choice.group_ids, choice.table


def _choose_atoms(
    run: _Run, points: Points, current: Int32Array, dictionary: Float32Array
) -> Int32Array:
    """The active sets (groups, m) of SOMP; being greedy, it may lose to the current ones."""
    chosen = points.active_sets(dictionary, run.settings.nonzeros)
    if not run.never_rises or not len(current):
        return chosen
    before, after = (points.residuals(table, dictionary).by_leaf for table in (current, chosen))
    return np.where((before < after)[:, None], current, chosen)


def _updated_dictionary(
    run: _Run, points: Points, table: Int32Array, dictionary: Float32Array
) -> tuple[Float32Array, float]:
    """Better atoms for the active sets of table (groups, m), and the error they leave.

    Seldom the update brings atoms of a set so close together that coding, which drops such
    directions, loses by it. Where the error must not rise, the old dictionary then stays.
    """
    updated = points.updated_dictionary(run.settings.dictionary_update, table, dictionary)
    error = _relative_error(points, table, updated)
    if not run.never_rises or error <= (before := _relative_error(points, table, dictionary)):
        return updated, error
    return dictionary, before


def _by_group(run: _Run, group_ids: Int32Array | None) -> Points:
    if group_ids is None or run.n_groups is None:
        return run.buckets
    return LocalPoints(glue(run.local_buckets, group_ids, run.n_groups))


def _with_unused_atoms_replaced(run: _Run, state: TrainingState) -> Float32Array:
    """The dictionary for the next iteration (section 2.2).

    Not done at the end of an iteration: the state keeps the dictionary that its error
    belongs to, and replacing is the same whether the run was interrupted or not.
    """
    unused = np.setdiff1d(np.arange(run.settings.n_atoms), state.table)
    if state.iteration == 0 or not unused.size:
        return state.dictionary
    points = _by_group(run, state.group_ids)
    energies = points.residuals(state.table, state.dictionary).by_leaf
    return replace_unused_atoms(points, state.table, state.dictionary, energies)


def _relative_error(points: Points, table: Int32Array, dictionary: Float32Array) -> float:
    energy, residual = points.energy, points.residuals(table, dictionary).total
    return residual / energy if energy > 0 else 0.0


def _new_run(buckets: Points, settings: CodeSettings, rng: np.random.Generator) -> _Run:
    n_buckets = buckets.n_leaves
    wanted = n_buckets if settings.groups is None else settings.groups
    if not 1 <= wanted <= n_buckets:
        raise DataError(f"{wanted} groups for {n_buckets} buckets, expected 1 to {n_buckets}")
    n_groups = wanted if wanted < len(buckets.populated) else None
    return _Run(buckets, n_groups, settings, rng)


def _first_state(run: _Run) -> TrainingState:
    settings = run.settings
    places = first_places(run.buckets.shape[0], settings.n_atoms, run.rng)
    dictionary = unit_rows(run.buckets.rows(places))
    table = np.zeros((0, settings.nonzeros), np.int32)  # chosen in step 2
    if run.n_groups is not None:  # step 1 needs something to choose from
        buckets = run.local_buckets
        table = first_groups(buckets, run.n_groups, dictionary, settings.nonzeros, run.rng)
    return TrainingState(0, dictionary, table, None, (), dict(run.rng.bit_generator.state))


def _resumed_state(run: _Run, state: TrainingState) -> TrainingState:
    settings, n_buckets = run.settings, run.buckets.n_leaves
    n_groups = n_buckets if run.n_groups is None else run.n_groups
    found = (
        state.dictionary.shape,
        state.table.shape,
        None if state.group_ids is None else state.group_ids.shape,
    )
    expected = (
        (settings.n_atoms, run.buckets.shape[1]),
        (n_groups, settings.nonzeros),
        None if run.n_groups is None else (n_buckets,),
    )
    if found != expected:
        raise DataError(
            f"the state to resume from has dictionary, table and groups of shapes {found}, "
            f"expected {expected}: it belongs to another run"
        )
    if state.iteration > settings.iterations:
        raise DataError(
            f"the state to resume from has finished {state.iteration} iterations, "
            f"expected at most {settings.iterations}"
        )
    run.rng.bit_generator.state = state.rng_state
    return state
