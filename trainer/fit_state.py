"""What an unfinished fit has learned, on disk, so that it goes on after an interruption.

Each fit has a folder of its own, named by a fingerprint of its images and settings: iterations of
the dictionary while it is learned, then trees, dictionaries and projections of all views. The
folder is removed when the bundle is published.
"""

import json
import logging
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from service.engine import EngineConfig, FeatureExtractor
from trainer.config import FitConfig
from trainer.data.dataset import LabelledImage
from trainer.data.files import replacing
from trainer.data.sampling import UnreadableImage
from trainer.features import LearnedFeatures
from trainer.learn.checkpoint import fingerprint

__all__ = ["FitState"]

logger = logging.getLogger(__name__)

# To be raised when learning gives other tensors than before for the same settings.
_LEARNING_VERSION = 2

_FEATURES_FILE = "features.safetensors"
_ITERATIONS_FILE = "iterations.npz"
_SHOWN_DIGITS = 32
# Seconds after which nobody will resume a fit any more.
_OLDEST = 14 * 24 * 3600.0


@dataclass(frozen=True)
class FitState:
    """The folder of one fit, and the images that it learns from."""

    folder: Path
    images: tuple[LabelledImage, ...]

    @classmethod
    def begin(
        cls,
        states: Path,
        images: Sequence[LabelledImage],
        config: FitConfig,
        *,
        resume: bool,
    ) -> "FitState | None":
        """The state of a fit of these images; empty, unless it is to `resume` what is there.

        None where nothing can be written.
        """
        state = cls(states / _fingerprint(images, config), tuple(images))
        if not resume:
            state.remove()
        elif not state.folder.exists():
            logger.info("there is nothing to resume: no fit of these images and settings")
        try:
            state.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            logger.warning("an interrupted fit could not be resumed: %s", error)
            return None
        _remove_old(states)
        return state

    @property
    def iterations(self) -> Path:
        """The file that keeps the dictionary after every iteration."""
        return self.folder / _ITERATIONS_FILE

    def remove(self) -> None:
        """Remove the folder, if it is there."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def keep(self, features: LearnedFeatures) -> None:
        """Write what was learned, in place of the iterations that led to it."""
        from safetensors.numpy import save  # noqa: PLC0415

        places = {image: place for place, image in enumerate(self.images)}
        paths = {image.path: place for image, place in places.items()}
        facts = {
            "config": features.extractor.config.to_json(),
            "images": [places[image] for image in features.images],
            "unreadable": [[paths[bad.path], bad.reason] for bad in features.unreadable],
            "n_descriptors": features.n_descriptors,
            "relative_errors": list(features.relative_errors),
        }
        data = save(dict(features.extractor.tensors()), {"facts": json.dumps(facts)})
        with replacing(self._features) as file:
            file.write(data)
        self.iterations.unlink(missing_ok=True)

    def features(self) -> LearnedFeatures | None:
        """What was learned before; None if it was not, or if the file is damaged."""
        if not self._features.exists():
            return None
        try:
            features = self._read_features()
        except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
            logger.warning("%s is damaged, so all is learned anew: %s", self._features, error)
            return None
        logger.info("resuming after trees and dictionaries, which were learned before")
        return features

    def _read_features(self) -> LearnedFeatures:
        from safetensors import SafetensorError, safe_open  # noqa: PLC0415

        try:
            with safe_open(self._features, "numpy") as file:
                facts = json.loads(file.metadata()["facts"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise ValueError(str(error)) from error
        return LearnedFeatures(
            FeatureExtractor.from_tensors(EngineConfig.from_json(facts["config"]), tensors),
            tuple(self.images[place] for place in facts["images"]),
            tuple(
                UnreadableImage(self.images[place].path, reason)
                for place, reason in facts["unreadable"]
            ),
            facts["n_descriptors"],
            tuple(facts["relative_errors"]),
        )

    @cached_property
    def _features(self) -> Path:
        return self.folder / _FEATURES_FILE


def _fingerprint(images: Sequence[LabelledImage], config: FitConfig) -> str:
    """Of all that is learned from; files are told by their names, sizes and times."""
    groups = [Path(config.given_groups)] if config.given_groups else []
    files = [_identity(path) for path in (*(image.path for image in images), *groups)]
    labels = [image.label for image in images]
    facts = {"files": files, "labels": labels, "version": _LEARNING_VERSION, **config.to_json()}
    return fingerprint(facts)[:_SHOWN_DIGITS]


def _identity(path: Path) -> list[object]:
    """What tells a file from others, and from itself after a change."""
    try:
        status = path.stat()
    except OSError:  # is told as unreadable when it is read
        return [str(path.absolute())]
    return [str(path.absolute()), status.st_size, status.st_mtime_ns]


def _remove_old(states: Path) -> None:
    """Remove what fits of long ago have left."""
    for folder in states.glob("*"):
        try:
            if time.time() - folder.stat().st_mtime > _OLDEST:
                shutil.rmtree(folder, ignore_errors=True)
        except FileNotFoundError:  # another fit has removed it
            continue
