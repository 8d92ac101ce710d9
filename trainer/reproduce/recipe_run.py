"""A recipe on one split: a whole fit, and its bundle on the images that it did not see.

Other cells share trees and Gram matrices between sizes of dictionaries; a recipe has nothing to
share, and its weights between blocks are learned anew on every split.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from trainer.config import FitConfig
from trainer.fit import fit
from trainer.learn.checkpoint import fingerprint
from trainer.reproduce.cache import Entry
from trainer.reproduce.cells import Cell
from trainer.reproduce.experiment import Experiment
from trainer.reproduce.models import cell_config
from trainer.reproduce.split_result import SplitResult

__all__ = ["RecipeRun"]

# To be raised when a fit gives other results than before for the same settings.
_FIT_VERSION = 4


@dataclass(frozen=True)
class RecipeRun:
    """What is measured on the split of one seed for one recipe."""

    experiment: Experiment
    seed: int
    cell: Cell

    def on_disk(self) -> dict[Cell, SplitResult]:
        """The result on disk, if it is there."""
        facts = self.experiment.cache.facts(self._entry)
        return {} if facts is None else {self.cell: SplitResult(**facts)}

    def computed(self) -> dict[Cell, SplitResult]:
        """The result, if it is not on disk yet."""
        if self.on_disk():
            return {}
        self.experiment.split(self.seed)  # every class must have images to test
        bundle = fit(self.experiment.dataset, self._config, self.cell.recipe)
        result = _result(bundle.manifest.quality, bundle.manifest.provenance)
        self.experiment.cache.keep_facts(self._entry, asdict(result))
        return {self.cell: result}

    @cached_property
    def _config(self) -> FitConfig:
        chosen = {
            "recipe": self.cell.recipe,
            "train_per_class": self.experiment.train_per_class,
            "split_seed": self.seed,
        }
        settings = cell_config(self.experiment.config, self.cell)
        return FitConfig.of({**settings.model_dump(), **chosen})

    @cached_property
    def _entry(self) -> Entry:
        facts: dict[str, object] = {
            **self._config.to_json(),
            "files": self.experiment.files,
            "version": _FIT_VERSION,
        }
        words = f"{self.experiment.benchmark.name}-{self.cell.file_name}-split{self.seed}"
        return Entry("results", words, fingerprint(facts))


def _result(quality: Mapping[str, Any], provenance: Mapping[str, Any]) -> SplitResult:
    test, folds = quality["test"], quality["folds"]
    return SplitResult(
        test["mean_class_accuracy"],
        folds["mean_class_accuracy"],
        provenance["regularisation"],
        provenance["n_train"],
        test["n_test"],
        test["n_classes"],
    )
