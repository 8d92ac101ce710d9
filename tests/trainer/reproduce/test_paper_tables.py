"""The paper's tables, some of their cells typed from its pages once more."""

from itertools import product

import pytest

from trainer.reproduce.accuracy import Row
from trainer.reproduce.cells import DEFAULT_CELLS, Cell
from trainer.reproduce.paper_tables import Accuracy, paper_accuracy
from trainer.reproduce.split_result import SplitResult


@pytest.mark.parametrize(
    ("benchmark", "cell", "mean", "deviation"),
    [
        ("caltech101", Cell("tree", "lazebnik-sift", 5, 1024), 0.722, 0.011),
        ("caltech101", Cell("tree", "lazebnik-sift", 10, 2048), 0.731, 0.011),
        ("caltech101", Cell("tree", "fast-sift", 5, 1024), 0.710, 0.007),
        ("caltech101", Cell("tree", "fast-sift", 5, 8192), 0.739, 0.003),
        ("caltech101", Cell("tree", "fast-sift", 10, 4096), 0.724, 0.004),
        ("caltech101", Cell("omp", "lazebnik-sift", 10, 4096), 0.757, 0.010),
        ("scenes15", Cell("tree", "lazebnik-sift", 5, 8192), 0.811, 0.004),
        ("scenes15", Cell("tree", "fast-sift", 5, 2048), 0.796, 0.007),
        ("scenes15", Cell("tree", "fast-sift", 10, 1024), 0.770, 0.007),
        ("scenes15", Cell("omp", "lazebnik-sift", 5, 1024), 0.801, 0.006),
    ],
)
def test_a_cell_has_the_papers_figures(
    benchmark: str, cell: Cell, mean: float, deviation: float
) -> None:
    assert paper_accuracy(benchmark, cell) == Accuracy(mean, deviation)


@pytest.mark.parametrize("benchmark", ["caltech101", "scenes15"])
def test_each_table_has_twenty_figures(benchmark: str) -> None:
    codings = product(("tree", "omp"), ("fast-sift", "lazebnik-sift"), (5, 10))
    sizes = (1024, 2048, 4096, 8192)
    cells = [Cell(*coding, size) for coding in codings for size in sizes]  # type: ignore[arg-type]
    assert sum(paper_accuracy(benchmark, cell) is not None for cell in cells) == 20


@pytest.mark.parametrize("benchmark", ["caltech101", "scenes15"])
def test_every_cell_of_a_bare_command_is_in_the_paper(benchmark: str) -> None:
    for cell in DEFAULT_CELLS:
        assert (paper_accuracy(benchmark, cell) is not None) == (cell.recipe == "paper")


def test_what_must_be_reached_is_the_mean_less_one_deviation() -> None:
    assert Accuracy(0.71, 0.007).floor == pytest.approx(0.703)


def test_what_the_paper_did_not_measure_has_no_figure() -> None:
    assert paper_accuracy("caltech101", Cell("tree", "fast-sift", 5, 512)) is None
    assert paper_accuracy("photos", Cell("tree", "fast-sift", 5, 1024)) is None


@pytest.mark.parametrize(
    ("mean", "seeds", "reaches"), [(0.704, 10, True), (0.702, 10, False), (0.8, 9, None)]
)
def test_a_row_is_judged_by_ten_splits(mean: float, seeds: int, reaches: object) -> None:
    cell = Cell("tree", "fast-sift", 5, 1024)
    results = {seed: SplitResult(mean, None, 1.0, 3030, 5647, 101) for seed in range(seeds)}
    assert Row(cell, results, paper_accuracy("caltech101", cell), "").reaches is reaches
