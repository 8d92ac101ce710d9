"""Cells of the paper's tables of accuracy, and which of them a bare command measures.

A cell is one way from an image to a pooled vector; every cell is measured on every split by
the same classifier.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal, TypeVar, get_args

from service.engine.sift import SiftKind
from trainer.errors import ConfigError
from trainer.recipes import RecipeName

__all__ = [
    "DEFAULT_CELLS",
    "Cell",
    "Coding",
    "Origin",
    "Selection",
    "chosen_cells",
    "whole_numbers",
]

Coding = Literal["tree", "omp"]
Origin = Literal["own", "foreign"]

Choice = TypeVar("Choice", bound=str)

_DESCRIPTORS: dict[SiftKind, str] = {
    "fast-sift": "fast SIFT",
    "lazebnik-sift": "Lazebnik's SIFT",
}
_CODINGS: dict[Coding, str] = {"tree": "tree", "omp": "OMP"}
_ORIGINS: tuple[Origin, ...] = get_args(Origin)
_RECIPES: tuple[RecipeName, ...] = get_args(RecipeName)


@dataclass(frozen=True)
class Cell:
    """Coder, descriptor, nonzeros and atoms, and whose images the dictionary is of.

    `own`: the training images of the split, so that there is one dictionary a split.
    `foreign`: the other data sets, one dictionary for all splits, as in the paper. A recipe
    other than the paper's has further blocks beside these codes, and own trees.
    """

    coder: Coding
    descriptor: SiftKind
    nonzeros: int
    atoms: int
    dictionary: Origin = "own"
    recipe: RecipeName = "paper"

    def __post_init__(self) -> None:
        if self.recipe != "paper" and (self.coder, self.dictionary) != ("tree", "own"):
            raise ConfigError(
                f"the recipe {self.recipe} with the coder {self.coder} and a dictionary that is "
                f"{self.dictionary}, expected the tree and own"
            )

    @property
    def column(self) -> str:
        """What the cell shares with its neighbours of other K."""
        if self.recipe != "paper":
            return f"recipe {self.recipe}, {_DESCRIPTORS[self.descriptor]}, m={self.nonzeros}"
        return f"{_CODINGS[self.coder]}, {_DESCRIPTORS[self.descriptor]}, m={self.nonzeros}"

    @property
    def file_name(self) -> str:
        """Tells people what a file of the cache is of."""
        name = f"{self.coder}-{self.descriptor}-m{self.nonzeros}-k{self.atoms}"
        recipe = "" if self.recipe == "paper" else f"{self.recipe}-"
        return f"{recipe}{name}-{self.dictionary}"


# Targets are of own dictionaries; the others are coded by one foreign dictionary, as the paper has
# it, because with one a split every image is coded ten times.
DEFAULT_CELLS = (
    *(Cell("tree", "fast-sift", 5, atoms) for atoms in (1024, 2048, 4096)),
    Cell("tree", "fast-sift", 5, 8192, "foreign"),
    Cell("tree", "fast-sift", 10, 1024, "foreign"),
    *(Cell("tree", "lazebnik-sift", 5, atoms, "foreign") for atoms in (1024, 2048)),
    Cell("omp", "lazebnik-sift", 5, 1024, "foreign"),
)


@dataclass(frozen=True)
class Selection:
    """Values that the command line chose, comma-separated; None where it left the default."""

    atoms: str | None = None
    nonzeros: str | None = None
    coder: str | None = None
    descriptor: str | None = None
    dictionary: str | None = None
    recipe: str | None = None


def chosen_cells(selection: Selection) -> tuple[Cell, ...]:
    """The default cells, or every combination of the chosen values.

    Where nothing but the dictionary is chosen, the default cells with that dictionary.
    """
    origins = _choices("dictionary", selection.dictionary or "own", _ORIGINS)
    if selection == Selection(dictionary=selection.dictionary):
        if selection.dictionary is None:
            return DEFAULT_CELLS
        return tuple(replace(cell, dictionary=o) for cell in DEFAULT_CELLS for o in origins)
    combinations = product(
        _choices("coder", selection.coder or "tree", _CODINGS),
        _choices("descriptor", selection.descriptor or "fast-sift", _DESCRIPTORS),
        whole_numbers("nonzeros", selection.nonzeros or "5"),
        whole_numbers("atoms", selection.atoms or "1024"),
        origins,
        _choices("recipe", selection.recipe or "paper", _RECIPES),
    )
    return tuple(Cell(*values) for values in combinations)


def whole_numbers(name: str, text: str) -> tuple[int, ...]:
    """The numbers of a list such as `1024,2048` or `0-9`, in order, none twice."""
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not (first.isdecimal() and (last.isdecimal() if dash else True)):
            raise ConfigError(f"{name} is {text!r}, expected whole numbers such as 1,2 or 0-9")
        numbers += range(int(first), int(last if dash else first) + 1)
    if not numbers:
        raise ConfigError(f"{name} is {text!r}, expected at least one whole number")
    return tuple(dict.fromkeys(numbers))


def _choices(name: str, text: str, known: Collection[Choice]) -> tuple[Choice, ...]:
    """The names of a comma-separated list, each one of those that are known."""
    by_text = {str(choice): choice for choice in known}
    parts = [part.strip() for part in text.split(",")]
    unknown = [part for part in parts if part not in by_text]
    if unknown:
        raise ConfigError(f"{name} is {text!r}, expected a list of {', '.join(by_text)}")
    return tuple(by_text[part] for part in dict.fromkeys(parts))
