"""The sizes of everything that is measured; tests shrink them."""

from dataclasses import dataclass

from pydantic import Field

from trainer.settings import Settings

__all__ = ["BenchSettings", "ModelSize"]


@dataclass(frozen=True)
class ModelSize:
    """What the speed of a model depends on."""

    depth: int
    atoms: int
    nonzeros: int


class BenchSettings(Settings):
    """Whole numbers, each an option of the command; the defaults are the paper's sizes.

    The median of the rounds counts. `width`, `height` and `made` describe the images that
    stand in for photographs that are not there.
    """

    samples: int = Field(200_000, ge=1, description="descriptors that grow the tree")
    vectors: int = Field(15_000, ge=1, description="descriptors to code where coding is timed")
    depth: int = Field(16, ge=1, description="depth of the tree")
    atoms: int = Field(1024, ge=1, description="atoms of the dictionary")
    many_atoms: int = Field(8192, ge=1, description="atoms of the large dictionary")
    nonzeros: int = Field(5, ge=1, description="atoms a code may use")
    labels: int = Field(101, ge=2, description="labels of the classifier")
    photographs: int = Field(4, ge=1, description="photographs to classify in a row")
    sklearn_vectors: int = Field(500, ge=1, description="descriptors for scikit-learn's OMP")
    rounds: int = Field(7, ge=1, description="rounds of a comparison, at the least")
    milliseconds: int = Field(2000, ge=0, description="time of a comparison, at the least")
    width: int = Field(481, ge=20, description="width of a made photograph, in pixels")
    height: int = Field(321, ge=20, description="height of a made photograph, in pixels")
    made: int = Field(24, ge=1, description="photographs to make if there are none")
    requests: int = Field(6000, ge=1, description="test images for the service, at the most")
    load_seconds: int = Field(14, ge=1, description="time under one load, all rounds together")
    seed: int = Field(0, ge=0, description="seed of everything that is drawn at random")

    @property
    def size(self) -> ModelSize:
        """The model that figures are about unless they say otherwise."""
        return ModelSize(self.depth, self.atoms, self.nonzeros)

    @property
    def large(self) -> ModelSize:
        """The usual model, but with the large dictionary."""
        return ModelSize(self.depth, self.many_atoms, self.nonzeros)

    @property
    def atoms_curve(self) -> tuple[int, ...]:
        """The sizes of the dictionary to measure, doubling."""
        sizes = [self.atoms]
        while sizes[-1] < self.many_atoms:
            sizes.append(min(2 * sizes[-1], self.many_atoms))
        return tuple(sizes)

    @property
    def depth_curve(self) -> tuple[int, ...]:
        """The depths to measure, in four steps."""
        return tuple(sorted({max(1, self.depth * part // 4) for part in (1, 2, 3, 4)}))

    @property
    def nonzeros_curve(self) -> tuple[int, ...]:
        """The numbers of nonzeros to measure, up to twice as many as usual."""
        return tuple(sorted({1, max(1, self.nonzeros // 2), self.nonzeros, 2 * self.nonzeros}))
