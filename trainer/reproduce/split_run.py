"""One split of an experiment: model, Gram matrix, classifier and result of each cell."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from service.engine.arrays import Float32Array
from trainer.evaluate import evaluate_scores
from trainer.learn.checkpoint import fingerprint
from trainer.learn.classifier import ClassifierSettings, fit_classifier
from trainer.learn.held_out import TrainingImages
from trainer.reproduce.cache import Entry
from trainer.reproduce.cells import Cell
from trainer.reproduce.experiment import Experiment
from trainer.reproduce.features import Features
from trainer.reproduce.grams import gram_matrices, within_memory
from trainer.reproduce.models import Models, cell_config
from trainer.reproduce.split_result import SplitResult

__all__ = ["SplitRun"]

logger = logging.getLogger(__name__)

Places = npt.NDArray[np.int64]

# To be raised when the classifier gives other results than before for the same settings.
_CLASSIFIER_VERSION = 2

# What of a fit's settings the pooled vectors depend on beside tensors, and the classifier.
_POOLING_SETTINGS = ("descriptor", "max_side", "sign_rule", "pyramid")
_CLASSIFIER_SETTINGS = ("classifier", "regularisation", "folds", "seed")

# How far the engine's pooled vector of an image, of length one, may be from the one on
# record. Another CPU may send a few descriptors to other leaves.
_SAME_POOLED = 0.02


@dataclass(frozen=True)
class _Measurement:
    """One cell of a split: where it is among the features, and its files on disk."""

    cell: Cell
    place: int
    gram: Entry
    result: Entry


@dataclass(frozen=True)
class SplitRun:
    """What is measured on the split of one seed, for cells that share their model."""

    experiment: Experiment
    seed: int
    cells: tuple[Cell, ...]

    def on_disk(self) -> dict[Cell, SplitResult]:
        """The results on disk; `NotLearnedError` where a model is not there and none is learned."""
        found = {m.cell: self.experiment.cache.facts(m.result) for m in self._measurements}
        return {cell: SplitResult(**facts) for cell, facts in found.items() if facts is not None}

    def computed(self) -> dict[Cell, SplitResult]:
        """The results that are not on disk yet."""
        cache, results = self.experiment.cache, {}
        missing = [m for m in self._measurements if cache.facts(m.result) is None]
        for measurement, gram in self._grams(missing):
            results[measurement.cell] = self._classified(gram)
            cache.keep_facts(measurement.result, asdict(results[measurement.cell]))
        return results

    @cached_property
    def _features(self) -> Features:
        experiment, first = self.experiment, self.cells[0]
        source = experiment.source(first, self.seed)
        where = (experiment.cache, experiment.config, first.descriptor, experiment.data)
        return Models(*where, source).features(self.cells)

    @cached_property
    def _train(self) -> Places:
        """Where the training images are among the files."""
        train = {image.path for image in self.experiment.split(self.seed).train}
        return np.flatnonzero([path in train for path in self.experiment.paths])

    @cached_property
    def _columns(self) -> Places:
        """Images that all others have inner products with: a foreign model serves all splits."""
        return np.arange(len(self.experiment.paths)) if self._is_foreign else self._train

    @property
    def _is_foreign(self) -> bool:
        return self.cells[0].dictionary == "foreign"

    @cached_property
    def _measurements(self) -> list[_Measurement]:
        measurements = []
        for place, (cell, probe) in enumerate(zip(self.cells, self._probes(), strict=True)):
            settings = cell_config(self.experiment.config, cell).to_json()
            facts: dict[str, object] = {
                **{name: settings[name] for name in _POOLING_SETTINGS},
                "files": self.experiment.files,
                "columns": self._columns.tolist(),
            }
            made_by = fingerprint(facts, *self._features.tensors(place), probe)
            gram = Entry("grams", self._words(cell), made_by)
            result = Entry("results", self._words(cell), self._result_fingerprint(made_by))
            measurements.append(_Measurement(cell, place, gram, result))
        return measurements

    def _words(self, cell: Cell) -> str:
        images = "all" if self._is_foreign else f"split{self.seed}"
        return f"{self.experiment.benchmark.name}-{cell.file_name}-{images}"

    def _result_fingerprint(self, gram: str) -> str:
        settings = self.experiment.config.to_json()
        facts: dict[str, object] = {
            **{name: settings[name] for name in _CLASSIFIER_SETTINGS},
            "gram": gram,
            "train": self._train.tolist(),
            "labels": self.experiment.labels.tolist(),
            "version": _CLASSIFIER_VERSION,
        }
        return fingerprint(facts)

    def _probes(self) -> list[npt.NDArray[np.float16]]:
        """The pooled vectors of the first image that are on record, if they are still right.

        They stand for the version of the engine: where it gives others, everything that was
        made by it is made again.
        """
        cache, first = self.experiment.cache, self.experiment.paths[0]
        on_record = []
        for place, pooled in enumerate(self._features.pooled(first.read_bytes())):
            facts: dict[str, object] = {"files": self.experiment.files}
            made_by = fingerprint(facts, *self._features.tensors(place))
            entry = Entry("probes", self._words(self.cells[place]), made_by)
            arrays = cache.arrays(entry)
            if arrays is None or not _agree(arrays["pooled"], pooled):
                arrays = {"pooled": pooled.astype(np.float16)}
                cache.keep_arrays(entry, arrays)
            on_record.append(arrays["pooled"])
        return on_record

    def _grams(
        self, measurements: Sequence[_Measurement]
    ) -> Iterator[tuple[_Measurement, Float32Array]]:
        """The Gram matrix of each measurement, from disk where it is there."""
        absent = []
        for measurement in measurements:
            arrays = self.experiment.cache.arrays(measurement.gram)
            if arrays is None:
                absent.append(measurement)
            else:
                yield measurement, arrays["gram"]
        widths = [self._features.widths[measurement.place] for measurement in absent]
        for run in within_memory(widths, len(self._columns)):
            yield from self._computed_grams(absent[run])

    def _computed_grams(
        self, measurements: Sequence[_Measurement]
    ) -> Iterator[tuple[_Measurement, Float32Array]]:
        features = self._features.only([measurement.place for measurement in measurements])
        paths = self.experiment.paths
        logger.info("%d images for %d cells of split %d", len(paths), len(measurements), self.seed)
        grams = gram_matrices(features, paths, self._columns)
        for measurement, gram in zip(measurements, grams, strict=True):
            self.experiment.cache.keep_arrays(measurement.gram, {"gram": gram})
        yield from zip(measurements, grams, strict=True)

    def _classified(self, gram: Float32Array) -> SplitResult:
        """The classifier of the training images on all others; gram (n, columns)."""
        experiment, config = self.experiment, self.experiment.config
        settings = ClassifierSettings(
            config.classifier, config.regularisation, config.folds, config.seed
        )
        columns = np.searchsorted(self._columns, self._train)
        test = np.setdiff1d(np.arange(len(gram)), self._train)
        names, labels = experiment.dataset.labels, experiment.labels
        training = TrainingImages(
            (gram[np.ix_(self._train, columns)],), labels[self._train], len(names)
        )
        fitted = fit_classifier(training, settings)
        scores = gram[np.ix_(test, columns)] @ fitted.coefficients + fitted.bias
        found = evaluate_scores(scores, labels[test], names, fitted.probability_scale)
        return SplitResult(
            found.mean_class_accuracy,
            fitted.fold_accuracy,
            fitted.regularisation,
            len(self._train),
            found.n_test,
            found.n_classes,
        )


def _agree(on_record: npt.NDArray[np.float16], pooled: Float32Array) -> bool:
    if on_record.shape != pooled.shape:
        return False
    return float(np.linalg.norm(on_record.astype(np.float32) - pooled)) <= _SAME_POOLED
