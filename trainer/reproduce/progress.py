"""How far a table is, and how long the rest of it will take."""

import logging
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from typing import Any

from trainer.parallel import progress_bar
from trainer.reproduce.cells import Cell

__all__ = ["Progress"]

logger = logging.getLogger(__name__)

# A cell's share of the work grows with its atoms, and OMP looks at all of them for every
# descriptor. With a foreign dictionary only the first split has images to code.
_ATOMS_FOR_TWICE = 2048
_OMP = 8.0
_LATER_SPLIT = 0.05


class Progress(AbstractContextManager["Progress"]):
    """Counts the results of all cells on all splits, and times those that are computed."""

    def __init__(self, cells: Sequence[Cell], seeds: Sequence[int]) -> None:
        self._ahead = {
            (cell, seed): _cost(cell, is_first=seed == seeds[0]) for cell in cells for seed in seeds
        }
        self._total = len(self._ahead)
        self._computed, self._seconds = 0.0, 0.0
        self._bar: Any = progress_bar(total=self._total, desc="results")

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def found(self, cells: Collection[Cell], seed: int) -> None:
        """Results of a split were on disk."""
        for cell in cells:
            self._ahead.pop((cell, seed))
        self._bar.update(len(cells))

    def computed(self, cells: Collection[Cell], seed: int, seconds: float) -> None:
        """Results of a split took so many seconds together."""
        self._computed += sum(self._ahead[cell, seed] for cell in cells)
        self._seconds += seconds
        self.found(cells, seed)
        if cells:
            logger.info("%d of %d results, %s", self.done, self._total, self.remaining())

    @property
    def done(self) -> int:
        """How many results there are."""
        return self._total - len(self._ahead)

    def remaining(self) -> str:
        """How long the rest takes at the rate so far."""
        if not self._ahead:
            return "none is left"
        minutes = self._seconds / self._computed * sum(self._ahead.values()) / 60
        return f"about {minutes // 60:.0f} h {minutes % 60:.0f} min left"


def _cost(cell: Cell, *, is_first: bool) -> float:
    cost = 1 + cell.atoms / _ATOMS_FOR_TWICE
    if cell.coder == "omp":
        cost *= _OMP
    return cost if is_first or cell.dictionary == "own" else cost * _LATER_SPLIT
