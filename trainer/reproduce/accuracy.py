"""The paper's experiment: accuracy of chosen cells on random splits of a data set.

For every split and cell: tree and dictionary, Gram matrix, classifier, result. Each of these
is kept on disk, so that an interrupted run goes on where it was and another choice of cells
takes what is there.
"""

import statistics
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from trainer.exact.omp import require_spams
from trainer.reproduce.cells import Cell
from trainer.reproduce.experiment import Experiment
from trainer.reproduce.models import NotLearnedError
from trainer.reproduce.paper_tables import Accuracy, paper_accuracy
from trainer.reproduce.progress import Progress
from trainer.reproduce.recipe_run import RecipeRun
from trainer.reproduce.split_result import SplitResult
from trainer.reproduce.split_run import SplitRun

__all__ = ["AccuracyReport", "Row", "has_all_splits", "measure_accuracy"]


@dataclass(frozen=True)
class Row:
    """A cell, its results by split, what the paper has, and what the dictionary is of."""

    cell: Cell
    results: Mapping[int, SplitResult]
    paper: Accuracy | None
    dictionary_of: str

    @property
    def ours(self) -> Accuracy | None:
        """Mean and standard deviation over the splits; None if there are none."""
        found = [result.mean_class_accuracy for result in self.results.values()]
        if not found:
            return None
        return Accuracy(statistics.mean(found), statistics.stdev(found) if found[1:] else 0.0)

    @property
    def reaches(self) -> bool | None:
        """Whether our mean reaches the paper's less one standard deviation.

        None where the paper has no figure, or where we have not all of the protocol's splits.
        """
        if self.ours is None or self.paper is None or not has_all_splits(self.results):
            return None
        return self.ours.mean >= self.paper.floor


@dataclass(frozen=True)
class AccuracyReport:
    """All rows of a table, and what they were measured on."""

    experiment: Experiment
    seeds: tuple[int, ...]
    rows: tuple[Row, ...]


def has_all_splits(seeds: Collection[int]) -> bool:
    """Whether these are the ten splits of the protocol: fewer are a quick look."""
    return set(seeds) == set(range(10))


def measure_accuracy(
    experiment: Experiment, cells: Sequence[Cell], seeds: Sequence[int]
) -> AccuracyReport:
    """Results by cell and split; without those that are not on disk if none is computed."""
    if any(cell.coder == "omp" for cell in cells):
        require_spams()
    results: dict[Cell, dict[int, SplitResult]] = {cell: {} for cell in cells}
    with Progress(cells, seeds) as progress:
        for seed in seeds:
            for family in _families(cells, together=experiment.may_compute):
                run = _run(experiment, seed, family)
                for cell, result in _results(run, progress).items():
                    results[cell][seed] = result
    rows = tuple(_row(experiment, cell, found) for cell, found in results.items())
    return AccuracyReport(experiment, tuple(seeds), rows)


def _run(experiment: Experiment, seed: int, family: tuple[Cell, ...]) -> SplitRun | RecipeRun:
    if family[0].recipe != "paper":
        return RecipeRun(experiment, seed, family[0])
    return SplitRun(experiment, seed, family)


def _results(run: SplitRun | RecipeRun, progress: Progress) -> dict[Cell, SplitResult]:
    started = time.monotonic()
    try:
        found = run.on_disk()
    except NotLearnedError:
        return {}
    progress.found(found, run.seed)
    if not run.experiment.may_compute:
        return found
    computed = run.computed()
    progress.computed(computed, run.seed, time.monotonic() - started)
    return {**found, **computed}


def _families(cells: Sequence[Cell], *, together: bool) -> Iterator[tuple[Cell, ...]]:
    """Cells that share a tree; each alone if not `together`, and recipes and OMP always."""

    def family(cell: Cell) -> tuple[str, ...]:
        shared = (cell.recipe, cell.coder, cell.descriptor, cell.dictionary)
        is_shared = together and cell.coder == "tree" and cell.recipe == "paper"
        return shared if is_shared else (*shared, cell.file_name)

    for _, members in groupby(sorted(cells, key=family, reverse=True), family):
        yield tuple(members)


def _row(experiment: Experiment, cell: Cell, results: Mapping[int, SplitResult]) -> Row:
    dictionary_of = "training images of the split"
    if cell.dictionary == "foreign":
        dictionary_of = f"other data sets: {', '.join(experiment.foreign.names)}"
    # The paper leaves the background out.
    is_papers = not experiment.benchmark.has_background
    paper = paper_accuracy(experiment.benchmark.name, cell) if is_papers else None
    return Row(cell, results, paper, dictionary_of)
