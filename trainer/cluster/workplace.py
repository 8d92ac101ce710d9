"""The workers of a cluster as a place where a fit is done."""

import logging
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from service.engine import FeatureExtractor
from service.engine.config import ViewConfig
from trainer.cluster.features import ScatteredDescriptors, require_cluster_settings
from trainer.cluster.shards import StoredShards
from trainer.cluster.tasks import Tasks, spans
from trainer.cluster.vectors import ScatteredVectors
from trainer.config import FitConfig
from trainer.cost import FitCost
from trainer.data.dataset import LabelledImage
from trainer.errors import ConfigError
from trainer.features import DrawnDescriptors, FeaturePlan
from trainer.learn.held_out import Mask
from trainer.progress import duration_text
from trainer.stored_vectors import ManyVectors
from trainer.training_vectors import TrainingVectors

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["ClusterWorkplace"]

logger = logging.getLogger(__name__)

Shared = TypeVar("Shared")
Item = TypeVar("Item")
Result = TypeVar("Result")

# Items of a task, at least, and tasks at most.
_ITEMS = 32
_MOST_PARTS = 1024


@dataclass(frozen=True)
class ClusterWorkplace:
    """All that grows with the images is done and kept by workers."""

    client: "Client"
    is_local: bool = False

    @property
    def tasks(self) -> Tasks:
        """What is submitted to the workers."""
        return Tasks(self.client)

    def require(self, config: FitConfig) -> None:
        """Reject what needs all descriptors on one machine."""
        require_cluster_settings(config)

    def require_resources(self, cost: FitCost, scratch: Path | None) -> None:
        """Say what a fit takes; nobody knows what workers that may come and go have."""
        logger.info(
            "training takes about %s of CPU time, of all %d workers together (an estimate)",
            duration_text(cost.cpu_seconds),
            len(self.client.scheduler_info(n_workers=-1)["workers"]),
        )
        if cost.disk_bytes:
            self.require_folder(scratch)

    def require_folder(self, scratch: Path | None) -> None:
        """Reject a folder that the workers and the driver do not share."""
        if scratch is None:
            if not self.is_local:
                raise ConfigError(
                    "more images than Gram matrices can be kept of, and no --scratch: expected a "
                    "folder that all workers and this process can write and read"
                )
            return
        with tempfile.NamedTemporaryFile(dir=scratch, prefix="shared-") as file:
            found = self.client.run(_try_folder, file.name, on_error="return")
        for worker, error in sorted(found.items()):
            if error is not None:
                raise ConfigError(
                    f"the worker {worker} cannot use --scratch {scratch.parent}, expected a folder "
                    f"that all workers and this process share: {error}"
                )

    def draw(
        self, images: Sequence[LabelledImage], view: ViewConfig, plan: FeaturePlan
    ) -> DrawnDescriptors:
        """Descriptors of a view, which stay with the workers."""
        return ScatteredDescriptors.draw(self.tasks, images, view, plan)

    def pool(self, extractor: FeatureExtractor, images: Sequence[LabelledImage]) -> TrainingVectors:
        """Pooled vectors of training images, which stay with the workers."""
        return ScatteredVectors.pooled(self.tasks, extractor, images)

    def store(
        self,
        extractor: FeatureExtractor,
        images: Sequence[LabelledImage],
        are_mirrored: Mask,
        folder: Path,
    ) -> AbstractContextManager[ManyVectors]:
        """Pooled vectors of many images, in files that workers write."""
        return StoredShards.stored(self.tasks, extractor, images, are_mirrored, folder)

    def each(
        self,
        function: Callable[[Shared, Sequence[Item]], list[Result]],
        shared: Shared,
        items: Sequence[Item],
        title: str,
    ) -> list[Result]:
        """A result for each item, by the function of some of the items at a time."""
        given = self.tasks.given(shared)
        spanned = spans(len(items), _ITEMS, _MOST_PARTS)
        parts = [items[part.start : part.stop] for part in spanned]
        futures = self.tasks.map(function, [given] * len(parts), parts)
        return [each for part in self.tasks.results(futures, title) for each in part]


def _try_folder(name: str) -> str | None:
    """Why a worker cannot use the folder of a file that the driver has made; None if it can."""
    if not Path(name).exists():
        return "what this process writes is not there"
    try:
        with tempfile.TemporaryFile(dir=Path(name).parent):
            return None
    except OSError as error:
        return str(error)
