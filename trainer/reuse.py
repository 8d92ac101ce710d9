"""`fit --from-bundle`: trees and dictionaries of another model, and a classifier of one's own.

They are most of the time of a fit, and hardly depend on which classes there are: to add a class
or to correct labels takes as long as reading the images.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from service.engine import Engine, FeatureExtractor, ImageError
from service.engine.sift import grid_shape
from trainer.config import FitConfig
from trainer.data.dataset import LabelledImage
from trainer.data.sampling import UnreadableImage, log_unreadable
from trainer.errors import ConfigError
from trainer.features import LearnedFeatures
from trainer.parallel import map_ordered
from trainer.stages import stage
from trainer.vectors import Pooling

__all__ = ["FEATURE_SETTINGS", "ReusedModel"]

logger = logging.getLogger(__name__)

FEATURE_SETTINGS = (
    "recipe",
    "samples",
    "depth",
    "atoms",
    "nonzeros",
    "iterations",
    "groups",
    "given_groups",
    "group_search",
    "dictionary_update",
    "refinements",
    "hash",
    "directions",
    "smallest_bucket",
    "rounds",
    "radius",
    "descriptor",
    "max_side",
    "sign_rule",
    "pyramid",
)
"""What of the settings is in the trees and dictionaries; all else is the classifier's."""


@dataclass(frozen=True)
class ReusedModel:
    """A bundle whose trees, dictionaries and weights between blocks are used again."""

    engine: Engine

    @classmethod
    def load(cls, folder: Path) -> "ReusedModel":
        """The model of a version folder, checked as for serving."""
        return cls(Engine.load(folder))

    def config(self, given: Mapping[str, Any]) -> FitConfig:
        """The settings of a fit: the classifier's as given, those of the features as they were."""
        wrong = sorted(set(given) & set(FEATURE_SETTINGS))
        if wrong:
            raise ConfigError(
                f"{wrong[0]} is given beside --from-bundle, whose trees and dictionaries stay as "
                "they are; expected settings of the classifier only"
            )
        settings = self._provenance("settings", {})
        kept = {name: settings[name] for name in FEATURE_SETTINGS if settings.get(name) is not None}
        kept.pop("given_groups", None)  # it names a file of somebody else
        mirroring = "always" if self._provenance("mirrored", False) else "never"  # noqa: FBT003
        return FitConfig.of({"mirroring": mirroring, **kept, **given})

    def features(self, images: Sequence[LabelledImage], config: FitConfig) -> LearnedFeatures:
        """The model's features, and which of the images can be read."""
        extractor = self._extractor(config)
        pooling = Pooling(extractor)
        with stage("descriptors"):
            results = list(map_ordered(lambda image: self._read(image, pooling), images, "images"))
        unreadable = tuple(found for found in results if isinstance(found, UnreadableImage))
        log_unreadable(unreadable)
        return LearnedFeatures(
            extractor,
            tuple(found for found in results if isinstance(found, LabelledImage)),
            unreadable,
            0,
            tuple(self._provenance("relative_errors", ())),
        )

    @property
    def reference(self) -> dict[str, object]:
        """Which model it is, for the provenance of another one."""
        manifest = self.engine.manifest
        return {"name": manifest.name, "version": manifest.version, "digest": manifest.digest}

    def _extractor(self, config: FitConfig) -> FeatureExtractor:
        engine = self.engine
        own = replace(
            engine.config,
            classifier=config.classifier,
            probability_scale=1.0,
            known_threshold=None,
        )
        return FeatureExtractor(own, [view.hash for view in engine.views], engine.blocks)

    def _read(self, image: LabelledImage, pooling: Pooling) -> LabelledImage | UnreadableImage:
        try:
            data = image.path.read_bytes()
            if not pooling.is_known(data):
                height, width = self.engine.decode(data).shape
                grid_shape(height, width, self.engine.config.view.step)
        except (ImageError, OSError) as error:
            return UnreadableImage(image.path, str(error))
        return image

    def _provenance(self, name: str, default: Any) -> Any:
        return self.engine.manifest.provenance.get(name, default)
