"""Held-out scores of a bundle's training images, which it does not hold, made once more.

Trees, dictionaries, weights and regularisation are the bundle's, folds are those of its seed: only
the classifiers of the folds are fitted again, which takes as long as reading the images.
"""

from typing import Any

from service.engine import Engine
from trainer.config import FitConfig
from trainer.data.dataset import Dataset
from trainer.evaluate import JudgedImages
from trainer.fit import train
from trainer.reuse import FEATURE_SETTINGS, ReusedModel

__all__ = ["judge_on_folds"]

# Mirroring and regularisation are those that training chose, and all images train.
_CHOSEN = frozenset({*FEATURE_SETTINGS, "mirroring", "regularisation", "train_per_class"})


def judge_on_folds(engine: Engine, training: Dataset) -> tuple[JudgedImages, ...]:
    """The training images, each by a classifier that did not see it; nothing without folds."""
    provenance: Any = engine.manifest.provenance
    settings = {
        name: value
        for name, value in provenance["settings"].items()
        if name in FitConfig.model_fields and name not in _CHOSEN and value is not None
    }
    reused = ReusedModel(engine)
    config = reused.config({**settings, "regularisation": provenance["regularisation"]})
    return train(training, config, engine.manifest.name, reused=reused).judged
