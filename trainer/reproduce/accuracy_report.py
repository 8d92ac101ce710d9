"""The table of accuracies for people: on the terminal, and as a section of RESULTS.md."""

from dataclasses import asdict

from service.engine.config import STEPS
from trainer.reproduce.accuracy import AccuracyReport, Row, has_all_splits
from trainer.reproduce.paper_tables import Accuracy
from trainer.tables import Table, aligned, piped, wrapped

__all__ = ["accuracy_json", "accuracy_section", "accuracy_text"]


def accuracy_text(report: AccuracyReport) -> str:
    """The table, and how it came about."""
    table = _table(report)
    return "\n".join([table.title, *aligned(table), "", wrapped(table.note)])


def accuracy_section(report: AccuracyReport, options: str = "") -> str:
    """The section of RESULTS.md, from its heading to its last line.

    `options` are those of the command that chose the cells.
    """
    table = _table(report)
    command = f"`{_command(report)}{options}`"
    parts = [f"## Accuracy: {table.title}", command, "\n".join(piped(table))]
    return "\n\n".join([*parts, wrapped(table.note)]) + "\n"


def accuracy_json(report: AccuracyReport) -> dict[str, object]:
    """The same facts as plain JSON values, with every split's result."""
    experiment = report.experiment
    return {
        "benchmark": experiment.benchmark.name,
        "with_background": experiment.benchmark.has_background,
        "train_per_class": experiment.train_per_class,
        "splits": list(report.seeds),
        "all_splits": has_all_splits(report.seeds),
        "settings": experiment.config.to_json(),
        "cells": [_row_json(row) for row in report.rows],
    }


def _row_json(row: Row) -> dict[str, object]:
    return {
        **asdict(row.cell),
        "dictionary_of": row.dictionary_of,
        "ours": asdict(row.ours) if row.ours else None,
        "paper": asdict(row.paper) if row.paper else None,
        "reaches": row.reaches,
        "splits": {str(seed): asdict(result) for seed, result in row.results.items()},
    }


def _table(report: AccuracyReport) -> Table:
    header = ("cell", "K", "ours", "paper", "difference", "reached", "splits", "dictionary of")
    return Table(
        report.experiment.benchmark.title,
        header,
        [_cells(row) for row in report.rows],
        _note(report),
        words=("reached", "splits", "dictionary of"),
    )


def _cells(row: Row) -> tuple[str, ...]:
    ours, paper = row.ours, row.paper
    difference = f"{ours.mean - paper.mean:+.3f}".replace("0.", ".") if ours and paper else "-"
    reached = {None: "-", True: "yes", False: "no"}[row.reaches]
    return (
        row.cell.column,
        str(row.cell.atoms),
        _accuracy(ours, with_deviation=len(row.results) > 1) if ours else "not measured",
        _accuracy(paper) if paper else "-",
        difference,
        reached,
        _splits(tuple(row.results)),
        row.dictionary_of,
    )


def _accuracy(found: Accuracy, *, with_deviation: bool = True) -> str:
    numbers = (found.mean, found.deviation) if with_deviation else (found.mean,)
    return " ± ".join(f"{number:.3f}".removeprefix("0") for number in numbers)


def _splits(seeds: tuple[int, ...]) -> str:
    """All ten of the protocol, or which of them: a quick look says so in every row."""
    if has_all_splits(seeds):
        return "ten"
    return f"only {', '.join(str(seed) for seed in seeds)}" if seeds else "none"


def _command(report: AccuracyReport) -> str:
    name = report.experiment.benchmark.name
    background = " --with-background" if report.experiment.benchmark.has_background else ""
    return f"python -m trainer reproduce {name}{background} --data <folder of all data sets>"


def _note(report: AccuracyReport) -> str:
    experiment = report.experiment
    n_classes, n_train = len(experiment.dataset.labels), experiment.train_per_class
    text = (
        f"Mean over {n_classes} classes of the per-class accuracy, {n_train} training images a "
        "class, the others test; mean and standard deviation over splits. Reached, judged by "
        "ten splits: our mean is at least the paper's less one of its standard deviations. The "
        "paper's largest dictionary has 8092 atoms, ours 8192."
    )
    quick_look = "" if has_all_splits(report.seeds) else "Fewer than the protocol's ten splits."
    sentences = [text, *_coding_sentences(report), _classifier_sentence(report), quick_look]
    return " ".join(sentence for sentence in sentences if sentence)


def _classifier_sentence(report: AccuracyReport) -> str:
    config = report.experiment.config
    kind = {"svm": "linear SVM", "logistic": "logistic regression"}[config.classifier]
    if config.regularisation is not None:
        return f"Classifier: {kind} with regularisation {config.regularisation:g}."
    return (
        f"Classifier: {kind}, its regularisation chosen on {config.folds} folds of the "
        "training images."
    )


def _coding_sentences(report: AccuracyReport) -> list[str]:
    config, cells = report.experiment.config, [row.cell for row in report.rows]
    sentences = []
    if any(cell.coder == "tree" for cell in cells):
        sentences.append(
            f"Trees of depth {config.depth_for(config.samples)}, learned with the dictionary "
            f"from {config.samples} descriptors in {config.iterations} iterations; the paper "
            "has depth 16 and two million descriptors of Pascal VOC 2011, which is not here."
        )
    if any(cell.coder == "omp" for cell in cells):
        sentences.append("OMP and its dictionary are SPAMS's, as in the paper.")
    if any(cell.descriptor == "lazebnik-sift" for cell in cells):
        sentences.append(
            f"Lazebnik's SIFT stands every {STEPS['lazebnik-sift']} pixels, the fast one every "
            f"{STEPS['fast-sift']}."
        )
    return sentences
