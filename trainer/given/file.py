"""Given groups from a file: JSON or `.npy`, checked against the settings of a run."""

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from trainer.errors import ConfigError, DataError
from trainer.given.greedy import GreedyGroups, available_in
from trainer.given.groups import GivenGroups, GroupStructure, given_groups

__all__ = ["GroupSearch", "GroupsFile", "read_groups"]

logger = logging.getLogger(__name__)

GroupSearch = Literal["exhaustive", "greedy"]

_EXPECTED = (
    "expected a JSON list of lists of atom ids, an object with such lists as 'groups' and "
    "'costs', or a .npy array of shape (groups, atoms)"
)


@dataclass(frozen=True)
class GroupsFile:
    """A file of groups, for how many atoms and nonzeros, and how a leaf finds its group.

    "exhaustive" tries every group; "greedy" is the modified OMP, for very many.
    """

    path: Path
    n_atoms: int
    nonzeros: int
    search: GroupSearch = "exhaustive"


def read_groups(file: GroupsFile) -> GroupStructure:
    """The groups of the file; a `ConfigError` says why where they do not fit the settings."""
    groups, costs = _parse(file.path)
    try:
        listed = given_groups(groups, costs, file.nonzeros)
    except DataError as error:
        raise ConfigError(f"{file.path}: {error}") from error
    _check_fit(listed, file)
    if file.search == "exhaustive":
        return listed
    if listed.has_costs:
        raise ConfigError(
            f"{file.path} has costs, which the greedy search of groups does not know; "
            "expected none, or the exhaustive search"
        )
    return GreedyGroups(available_in(listed), file.nonzeros)


def _check_fit(groups: GivenGroups, file: GroupsFile) -> None:
    sizes = groups.present.sum(axis=1).astype(int)
    largest = int(sizes.argmax())
    if sizes[largest] > file.nonzeros:
        raise ConfigError(
            f"{file.path}: group {largest} has {sizes[largest]} atoms, "
            f"expected at most the {file.nonzeros} nonzeros of a code"
        )
    used = np.unique(groups.table[groups.present > 0])
    if used[-1] >= file.n_atoms:
        row = int(np.flatnonzero((groups.table >= file.n_atoms).any(axis=1))[0])
        raise ConfigError(
            f"{file.path}: group {row} names atom {used[-1]}, "
            f"expected ids from 0 to {file.n_atoms - 1} for {file.n_atoms} atoms"
        )
    if len(used) < file.n_atoms:
        logger.warning(
            "%d of the %d atoms are in no group and stay unused",
            file.n_atoms - len(used),
            file.n_atoms,
        )
    span = " to ".join(str(size) for size in sorted({int(sizes.min()), int(sizes.max())}))
    logger.info("%d given groups of %s atoms", len(sizes), span)


def _parse(path: Path) -> tuple[list[list[int]], list[list[float]] | None]:
    try:
        if path.suffix == ".npy":
            return _whole_lists(path, np.load(path, allow_pickle=False).tolist()), None
        document = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
    except (EOFError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as groups: {error}; {_EXPECTED}") from error
    if not isinstance(document, dict):
        return _whole_lists(path, document), None
    unknown = sorted(set(document) - {"groups", "costs"})
    if "groups" not in document or unknown:
        raise ConfigError(f"{path} has the members {sorted(document)}, {_EXPECTED}")
    costs = document.get("costs")
    if costs is not None and not _is_lists_of(costs, (int, float)):
        raise ConfigError(f"{path}: 'costs' is not a list of lists of numbers")
    return _whole_lists(path, document["groups"]), costs


def _whole_lists(path: Path, value: Any) -> list[list[int]]:
    if not _is_lists_of(value, (int,)):
        raise ConfigError(f"{path} does not hold lists of whole numbers, {_EXPECTED}")
    lists: list[list[int]] = value
    return lists


def _is_lists_of(value: object, kinds: tuple[type, ...]) -> bool:
    return isinstance(value, list) and all(
        isinstance(row, list)
        and all(isinstance(item, kinds) and not isinstance(item, bool) for item in row)
        for row in value
    )
