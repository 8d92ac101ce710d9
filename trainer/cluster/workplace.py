"""The workers of a cluster as a place where a fit is done."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from service.engine import FeatureExtractor
from service.engine.config import ViewConfig
from trainer.cluster.features import ScatteredDescriptors, require_cluster_settings
from trainer.cluster.tasks import Tasks, spans
from trainer.cluster.vectors import ScatteredVectors
from trainer.config import FitConfig
from trainer.data.dataset import LabelledImage
from trainer.features import DrawnDescriptors, FeaturePlan
from trainer.training_vectors import TrainingVectors

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["ClusterWorkplace"]

Shared = TypeVar("Shared")
Item = TypeVar("Item")
Result = TypeVar("Result")

# Items of a task, at least, and tasks at most.
_ITEMS = 64
_MOST_PARTS = 1024


@dataclass(frozen=True)
class ClusterWorkplace:
    """All that grows with the images is done and kept by workers."""

    tasks: Tasks

    name = "cluster"
    """Trees have other tops than on one machine."""

    @classmethod
    def of(cls, client: "Client") -> "ClusterWorkplace":
        """The workers that a client is connected to."""
        return cls(Tasks(client))

    def require(self, config: FitConfig) -> None:
        """Reject what needs all descriptors on one machine."""
        require_cluster_settings(config)

    def draw(
        self, images: Sequence[LabelledImage], view: ViewConfig, plan: FeaturePlan
    ) -> DrawnDescriptors:
        """Descriptors of a view, which stay with the workers."""
        return ScatteredDescriptors.draw(self.tasks, images, view, plan)

    def pool(self, extractor: FeatureExtractor, images: Sequence[LabelledImage]) -> TrainingVectors:
        """Pooled vectors of training images, which stay with the workers."""
        return ScatteredVectors.pooled(self.tasks, extractor, images)

    def each(
        self,
        function: Callable[[Shared, Sequence[Item]], list[Result]],
        shared: Shared,
        items: Sequence[Item],
        title: str,
    ) -> list[Result]:
        """A result for each item, by the function of some of the items at a time."""
        given = self.tasks.given(shared)
        futures = [
            self.tasks.submit(function, given, items[part.start : part.stop])
            for part in spans(len(items), _ITEMS, _MOST_PARTS)
        ]
        return [each for part in self.tasks.results(futures, title) for each in part]
