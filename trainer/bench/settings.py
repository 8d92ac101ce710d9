"""The sizes of everything that is measured; tests shrink them."""

from dataclasses import dataclass

__all__ = ["BenchSettings", "ModelSize"]


@dataclass(frozen=True)
class ModelSize:
    """What the speed of a model depends on."""

    depth: int
    atoms: int
    nonzeros: int


@dataclass(frozen=True)
class BenchSettings:
    """Whole numbers, each an option of the command; the defaults are the paper's sizes.

    `samples` descriptors grow the tree; `vectors` are coded where coding alone is measured;
    `many_atoms` is the large dictionary; `photographs` are classified one after the other.
    `rounds` and `milliseconds` are the least that a comparison takes; the median of the
    rounds counts. `width`, `height` and `made` describe the images that stand in for
    photographs that are not there.
    `requests` test images at most go to the running service, and `load_seconds` is how long
    it is kept under a certain load, in all rounds together.
    """

    samples: int = 200_000
    vectors: int = 15_000
    depth: int = 16
    atoms: int = 1024
    many_atoms: int = 8192
    nonzeros: int = 5
    labels: int = 101
    photographs: int = 4
    sklearn_vectors: int = 500
    rounds: int = 7
    milliseconds: int = 2000
    width: int = 481
    height: int = 321
    made: int = 24
    requests: int = 6000
    load_seconds: int = 14
    seed: int = 0

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
