"""Views that workers learn: descriptors, tree, codes and residuals of a recipe's view."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from service.engine.blocks import ResidualsBlock
from service.engine.config import ResidualsConfig, ViewConfig
from service.engine.hashing import Hash
from service.engine.tree import Tree
from trainer.cluster.residuals import learn_scattered_residuals
from trainer.cluster.sampling import ScatteredSample, draw_sample
from trainer.cluster.subtrees import ScatteredPoints, ScatteredTree, grow_scattered_tree
from trainer.cluster.tasks import Tasks
from trainer.config import FitConfig
from trainer.data.dataset import LabelledImage
from trainer.data.sampling import UnreadableImage
from trainer.errors import ConfigError
from trainer.features import FeaturePlan, learn_tree, sample_settings
from trainer.learn.algorithm2 import LearnedCodes
from trainer.learn.training_run import RunSettings, learn_point_codes
from trainer.learn.tree import TreeSettings

__all__ = ["ScatteredDescriptors", "require_cluster_settings"]

# What needs all descriptors in one place, by name, with what a cluster can do instead.
_ON_ONE_MACHINE: dict[str, object] = {
    "hash": "tree",
    "groups": None,
    "given_groups": None,
    "refinements": 0,
    "dictionary_update": "least-squares",
}


def require_cluster_settings(config: FitConfig) -> None:
    """Reject settings of which a cluster knows nothing, before anything is done."""
    for name, expected in _ON_ONE_MACHINE.items():
        if getattr(config, name) != expected:
            raise ConfigError(
                f"{name} is {getattr(config, name)!r} with --cluster, expected {expected!r}: "
                "it needs all descriptors on one machine"
            )


@dataclass
class ScatteredDescriptors:
    """Descriptors of a view on the workers; the tree that is asked for first takes them over."""

    tasks: Tasks
    sample: ScatteredSample
    grown: ScatteredTree | None = field(default=None, init=False)

    @classmethod
    def draw(
        cls, tasks: Tasks, images: Sequence[LabelledImage], view: ViewConfig, plan: FeaturePlan
    ) -> "ScatteredDescriptors":
        """Have descriptors of a view drawn."""
        return cls(tasks, draw_sample(tasks, images, sample_settings(view, plan)))

    @property
    def n_descriptors(self) -> int:
        """How many there are."""
        return self.sample.n_descriptors

    @property
    def images(self) -> tuple[LabelledImage, ...]:
        """The images that could be read."""
        return self.sample.images

    @property
    def unreadable(self) -> tuple[UnreadableImage, ...]:
        """Those that could not."""
        return self.sample.unreadable

    def tree(self, settings: TreeSettings) -> Tree:
        """The tree of these descriptors, which are with its subtrees afterwards."""
        self.grown = grow_scattered_tree(self.tasks, self.sample, settings)
        return self.grown.tree

    def codes(
        self, view: ViewConfig, run: RunSettings, plan: FeaturePlan
    ) -> tuple[Hash, LearnedCodes]:
        """The tree, and how its leaves code them."""
        tree = learn_tree(self, view, plan.config)
        return tree, learn_point_codes(ScatteredPoints(self.tasks, self._grown), run)

    def residuals(self, tree: Tree, config: ResidualsConfig) -> ResidualsBlock:
        """A block of their residuals."""
        assert tree is self._grown.tree  # noqa: S101  # a view has one tree
        return learn_scattered_residuals(self.tasks, self._grown, config)

    @property
    def _grown(self) -> ScatteredTree:
        assert self.grown is not None  # noqa: S101  # the tree comes first
        return self.grown
