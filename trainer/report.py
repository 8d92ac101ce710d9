"""What the commands print for people; `--json` prints the same facts as one object."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from service.engine import Engine, Manifest
from service.engine.hashing import Hash
from service.engine.tree import Tree
from trainer.confusion import Confusion
from trainer.data.dataset import shortened
from trainer.evaluate import Evaluation, Selection
from trainer.metrics import Interval
from trainer.reproduce.explanations import ExplanationReport
from trainer.reproduce.solvers import SolverResult
from trainer.reproduce.training import TrainingCost
from trainer.tables import Table, aligned
from trainer.unknown import UnknownFigures

__all__ = [
    "describe_bundle",
    "evaluation_text",
    "explanations_text",
    "fit_text",
    "inspection_text",
    "known_text",
    "patches_text",
    "refinement_text",
    "solvers_text",
    "trained_on_text",
    "training_text",
]

_WORST_CLASSES = 10
_WEAKEST = 3
_MOST_CONFUSED = 5

_QUALITY_PARTS = {"test": "on held-out images", "folds": "on folds of the training images"}


def evaluation_text(evaluation: Evaluation) -> str:
    """Accuracy, the classes that fare worst, and the most frequent mistakes."""
    mean = f"{evaluation.mean_class_accuracy:.4f} ({_interval(evaluation.interval)})"
    lines = [
        f"mean per-class accuracy  {mean}, 95 % confidence in brackets",
        f"overall accuracy         {evaluation.accuracy:.4f}",
        f"log loss                 {evaluation.log_loss:.4f}",
        f"calibration error        {evaluation.calibration_error:.4f}",
        f"tested on                {evaluation.n_test} images of {evaluation.n_classes} classes",
        f"hardest classes          {_weakest(evaluation.confusion, _WORST_CLASSES)}",
    ]
    if evaluation.confusion.mistakes:
        lines.append(f"confused most            {_confused(evaluation.confusion)}")
    if evaluation.untested:
        lines.append(f"not tested               {shortened(evaluation.untested)}")
    return "\n".join(lines)


def _weakest(confusion: Confusion, most: int) -> str:
    """The classes of the lowest recall, each with its interval."""
    return ", ".join(
        f"{each.label} {each.recall:.2f} ({_interval(each.recall_interval)})"
        for each in confusion.weakest[:most]
        if each.recall is not None and each.recall_interval is not None
    )


def _confused(confusion: Confusion) -> str:
    """The most frequent mistakes, counted."""
    images = {each.label: each.images for each in confusion.classes}
    return ", ".join(
        f"{each.label} taken for {each.predicted} ({each.images} of {images[each.label]})"
        for each in confusion.mistakes[:_MOST_CONFUSED]
    )


def _interval(interval: Interval) -> str:
    return f"{interval[0]:.2f} to {interval[1]:.2f}"


def trained_on_text(selection: Selection) -> str:
    """How many of the tested images the bundle was trained on."""
    known = "unknown" if selection.trained_on is None else f"{selection.trained_on} images"
    return f"trained on, of these     {known}"


def known_text(evaluation: Evaluation, unknown: Sequence[UnknownFigures]) -> str:
    """How many test images are known, and how many of other images are not."""
    if evaluation.kept is None:
        lines = ["taken for known          all images: the bundle has no threshold"]
    else:
        lines = [f"taken for known          {evaluation.kept:.1%} of these images"]
    for figures in unknown:
        own = "" if figures.rejected is None else f"{figures.rejected:.1%}, "
        other = f"{figures.rejected_at_95:.1%} where 95 % of the tested are kept"
        title = f"{figures.folder}: {figures.n_images} unknown images"
        lines.append(f"{title}, rejected {own}{other}; AUROC {figures.auroc:.3f}")
    return "\n".join(lines)


def fit_text(manifest: Manifest, folder: Path, report: Path | None = None) -> str:
    """Where bundle and report are, how good the bundle is, what it took, and how to use it."""
    lines = [f"bundle {folder}"]
    if report is not None:
        lines.append(f"report {report}")
    for part, explanation in _QUALITY_PARTS.items():
        figures = manifest.quality.get(part)
        if isinstance(figures, dict):
            accuracy = f"mean per-class accuracy {figures['mean_class_accuracy']:.4f} {explanation}"
            lines.append(accuracy + _untested_text(part, figures["untested"]))
    lines += _rejection_lines(manifest.quality.get("folds"))
    if not manifest.quality:
        lines.append("accuracy unknown: no class has a second image to test on")
    judged = [figures for part in _QUALITY_PARTS if (figures := manifest.quality.get(part))]
    if judged and isinstance(judged[0], dict):  # of test images, if there are any
        lines += _confusion_lines(judged[0])
    lines += _stage_lines(manifest.provenance)
    lines.append(f"serve it: python -m service serve --models {folder.parent.parent}")
    return "\n".join(lines)


def _rejection_lines(folds: Any) -> Iterator[str]:
    """How many held-out images of the classes are known, and how many of others are not."""
    if not isinstance(folds, dict) or "kept" not in folds:
        return
    others = ""
    if "rejected" in folds:
        others = f", {folds['rejected']:.1%} of the unknown ones not, AUROC {folds['auroc']:.3f}"
    yield f"on folds {folds['kept']:.1%} of the images are known{others}"


def _confusion_lines(figures: Mapping[str, Any]) -> Iterator[str]:
    """The weakest classes and the most frequent mistakes, if they are recorded."""
    confusion = Confusion.from_json(figures)
    if confusion is None:
        return
    yield f"weakest classes: {_weakest(confusion, _WEAKEST)}"
    if confusion.mistakes:
        yield f"confused most: {_confused(confusion)}"


def _stage_lines(provenance: Mapping[str, Any]) -> Iterator[str]:
    """Seconds of every stage that took some, and the most memory."""
    stages: dict[str, Any] = provenance.get("stages", {})
    times = [f"{name} {each['seconds']:.1f}" for name, each in stages.items()]
    if times:
        peak = max((each["peak_bytes"] or 0 for each in stages.values()), default=0)
        memory = f"; {peak / 1e9:.2f} GB of memory at most" if peak else ""
        yield f"seconds: {', '.join(times)}{memory}"


def _untested_text(part: str, untested: Sequence[str]) -> str:
    """Which classes the accuracy knows nothing of, and how it counts them."""
    if not untested:
        return ""
    names = shortened(untested)
    if part == "folds":
        return f"; one image only, or near-duplicates of one, counted as missed: {names}"
    return f"; no image left to test, not counted: {names}"


def patches_text(ours: Mapping[str, float], paper: Mapping[str, float], figure: Path) -> str:
    """How many groups use an atom, ours beside the paper's."""
    lines = [f"{'':26}{'paper':>8}{'ours':>8}"]
    lines += [f"{name.replace('_', ' '):26}{paper[name]:8g}{ours[name]:8g}" for name in paper]
    return "\n".join([*lines, f"figure {figure}"])


def refinement_text(errors: Mapping[str, float]) -> str:
    """Held-out relative errors, and how much of the gap to OMP refining closes."""
    lines = [f"{name.replace('_', ' '):14}{error:.4f}" for name, error in errors.items()]
    gap = errors["plain_tree"] - errors["omp"]
    closed = (errors["plain_tree"] - errors["refined_tree"]) / gap
    return "\n".join([*lines, f"refining closes {closed:.1%} of the gap between tree and OMP"])


def explanations_text(report: ExplanationReport) -> str:
    """How well explanations add up, and how soon the score falls in the order of each map."""
    difference = f"by at most {report.largest_difference:.2g}, {report.n_images} test images"
    lines = [f"{report.name}: cells and bias differ from the score {difference}"]
    if report.curves:
        lines.append(f"mean score of {report.n_curves} images while cells are taken away, by order")
    lines += [
        f"  {name:16}{area:7.3f} ± {report.deviations[name]:.3f}"
        for name, area in report.curves.items()
    ]
    return "\n".join(lines)


def training_text(costs: Sequence[TrainingCost]) -> str:
    """Seconds of tree and dictionary by number of descriptors."""
    lines = ["descriptors   tree s   dictionary s   us each   peak GB   relative error"]
    lines += [
        f"{cost.n_descriptors:11d}{cost.tree_seconds:9.1f}{cost.dictionary_seconds:15.1f}"
        f"{cost.microseconds_each:10.1f}{_peak(cost):>10}"
        f"{cost.relative_errors[0]:10.4f} -> {cost.relative_errors[-1]:.4f}"
        for cost in costs
    ]
    return "\n".join(lines)


def solvers_text(results: Sequence[SolverResult]) -> str:
    """What each solver took and found."""
    rows = [
        (each.name, f"{each.cpu_seconds:.1f}", f"{each.accuracy:.4f}", f"{each.excess:.4f}")
        for each in results
    ]
    header = ("solver", "CPU s", "accuracy", "above the least objective")
    return "\n".join(aligned(Table("", header, list(rows))))


def _peak(cost: TrainingCost) -> str:
    return "unknown" if cost.peak_gigabytes is None else f"{cost.peak_gigabytes:.1f}"


def describe_bundle(engine: Engine) -> dict[str, object]:
    """A bundle's facts as plain JSON values."""
    manifest = engine.manifest
    document = manifest.to_json()
    del document["probes"]
    active_sets = np.unique(engine.coder.table, axis=0)
    uses = np.bincount(active_sets.ravel(), minlength=engine.config.codes.n_atoms)
    return {
        **document,
        "n_probes": len(manifest.probes),
        "active_sets": {
            "different": len(active_sets),
            "median_per_atom": float(np.median(uses)),
            "unused_atoms": int((uses == 0).sum()),
        },
        "hash": _describe_hash(engine.hash),
    }


def _describe_hash(hash_: Hash) -> dict[str, object]:
    if isinstance(hash_, Tree):
        splits = int(np.count_nonzero(hash_.vectors.any(axis=1)))
        return {"kind": "tree", "nodes": len(hash_.vectors), "splits": splits}
    return {"kind": "projections", "leaves": hash_.n_leaves}


def inspection_text(engine: Engine) -> str:
    """A bundle's facts for people."""
    manifest, facts = engine.manifest, describe_bundle(engine)
    lines = [
        f"{manifest.name} version {manifest.version}, {manifest.created}",
        f"digest  {manifest.digest}",
        f"labels  {len(manifest.labels)}: {shortened(manifest.labels)}",
        "config",
        *_table(manifest.config.to_json()),
        "tensors",
        *_table({name: str(spec) for name, spec in manifest.tensors.items()}),
    ]
    for part in ("hash", "active_sets"):
        section = facts[part]
        if isinstance(section, dict):
            lines += [part.replace("_", " "), *_table(section)]
    lines += ["quality", *_quality_lines(manifest.quality)]
    lines += ["provenance", *_table(manifest.provenance)]
    lines.append(f"sound: digests, shapes, values and {facts['n_probes']} probes agree")
    return "\n".join(lines)


def _quality_lines(quality: Mapping[str, Any]) -> Iterator[str]:
    """Figures of every part; of its classes and mistakes only the worst, --json has all."""
    for part, figures in quality.items():
        if not isinstance(figures, dict):
            yield from _table({part: figures})
            continue
        long = ("classes", "mistakes", "reliability")
        yield f"  {part}"
        yield from _table({n: v for n, v in figures.items() if n not in long}, "    ")
        yield from (f"    {line}" for line in _confusion_lines(figures))


def _table(facts: dict[str, object], indent: str = "  ") -> list[str]:
    lines: list[str] = []
    width = max((len(name) for name in facts), default=0)
    for name, value in facts.items():
        if isinstance(value, dict) and value:
            lines += [f"{indent}{name}", *_table(value, indent + "  ")]
        else:
            lines.append(f"{indent}{name:<{width}}  {_rounded(value)}")
    return lines


def _rounded(value: object) -> object:
    if isinstance(value, list):
        return ", ".join(str(_rounded(item)) for item in value) or "-"
    return f"{value:.4g}" if isinstance(value, float) else value
