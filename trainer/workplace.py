"""Where the work of a fit is done that grows with the images: here, or on a cluster.

`fit` is the same for both. What it asks for are descriptors to learn from, pooled vectors to
classify by, and answers about single images.
"""

import logging
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, TypeVar

from service.engine import FeatureExtractor
from service.engine.config import ViewConfig
from trainer.config import FitConfig
from trainer.cost import FitCost, cost_text, require_resources
from trainer.data.dataset import LabelledImage
from trainer.features import DrawnDescriptors, FeaturePlan, draw_here
from trainer.learn.held_out import Mask
from trainer.stored_vectors import ManyVectors, VectorsHere
from trainer.training_vectors import LocalVectors, TrainingVectors

__all__ = ["THIS_MACHINE", "ThisMachine", "Workplace"]

logger = logging.getLogger(__name__)

Shared = TypeVar("Shared")
Item = TypeVar("Item")
Result = TypeVar("Result")


class Workplace(Protocol):
    """Somebody who works on images."""

    def require(self, config: FitConfig) -> None:
        """Reject settings that cannot be worked by."""

    def require_resources(self, cost: FitCost, scratch: Path | None) -> None:
        """Say what a fit takes, and reject one that takes more than there is."""

    def draw(
        self, images: Sequence[LabelledImage], view: ViewConfig, plan: FeaturePlan
    ) -> DrawnDescriptors:
        """Descriptors of a view."""

    def pool(self, extractor: FeatureExtractor, images: Sequence[LabelledImage]) -> TrainingVectors:
        """Pooled vectors of training images."""

    def store(
        self,
        extractor: FeatureExtractor,
        images: Sequence[LabelledImage],
        are_mirrored: Mask,
        folder: Path,
    ) -> AbstractContextManager[ManyVectors]:
        """Pooled vectors of many images, some of them mirrored, on disk until the end."""

    def each(
        self,
        function: Callable[[Shared, Sequence[Item]], list[Result]],
        shared: Shared,
        items: Sequence[Item],
        title: str,
    ) -> list[Result]:
        """A result for each item, by a function of what all need and of some of the items."""


class ThisMachine:
    """All is done by threads of this process."""

    def require(self, config: FitConfig) -> None:
        """Every setting can be worked by."""

    def require_resources(self, cost: FitCost, scratch: Path | None) -> None:
        """Say what a fit takes, and reject one that takes more than this machine has."""
        logger.info("training takes %s", cost_text(cost))
        require_resources(cost, scratch or Path(tempfile.gettempdir()))

    def draw(
        self, images: Sequence[LabelledImage], view: ViewConfig, plan: FeaturePlan
    ) -> DrawnDescriptors:
        """Descriptors of a view, in memory or in mapped files."""
        return draw_here(images, view, plan)

    def pool(self, extractor: FeatureExtractor, images: Sequence[LabelledImage]) -> TrainingVectors:
        """Pooled vectors of training images, in memory."""
        return LocalVectors.pooled(extractor, images)

    def store(
        self,
        extractor: FeatureExtractor,
        images: Sequence[LabelledImage],
        are_mirrored: Mask,
        folder: Path,
    ) -> AbstractContextManager[ManyVectors]:
        """Pooled vectors of many images in one file."""
        return VectorsHere.stored(extractor, images, are_mirrored, folder)

    def each(
        self,
        function: Callable[[Shared, Sequence[Item]], list[Result]],
        shared: Shared,
        items: Sequence[Item],
        title: str,  # noqa: ARG002  # functions of all items show how far they are
    ) -> list[Result]:
        """A result for each item, by a function of all of them."""
        return function(shared, items)


THIS_MACHINE = ThisMachine()
"""Where a fit is done unless something else is said."""
