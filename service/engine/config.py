"""Every number that changes an answer, as stored in the bundle's manifest.

`EngineConfig` is what the trainer decides and the service obeys. Operational
limits (bytes, pixels) are not here: they do not change an answer.
"""

from dataclasses import asdict, dataclass
from typing import Literal, get_args

__all__ = [
    "DESCRIPTOR_WIDTH",
    "ClassifierKind",
    "Descriptor",
    "EngineConfig",
    "HashKind",
    "SignRule",
]

Descriptor = Literal["fast-sift", "lazebnik-sift"]
HashKind = Literal["tree", "tanh", "sine"]
SignRule = Literal["absolute", "raw", "split"]
ClassifierKind = Literal["svm", "logistic"]

# 4 x 4 cells with 8 orientations each.
DESCRIPTOR_WIDTH = 128

_LARGEST_DEPTH = 24


@dataclass(frozen=True)
class EngineConfig:
    """The engine's configuration; values that no engine can run are rejected.

    `pyramid` lists the regions per side of each level, finest first, and every
    coarser level divides the finest. `probability_scale` multiplies the scores
    before the softmax; the trainer fits it on held-out scores. `hash` sends descriptors to
    leaves: the tree, or a projection hash whose number of bits is `depth`.
    """

    depth: int
    n_atoms: int
    nonzeros: int
    descriptor: Descriptor = "fast-sift"
    max_side: int = 300
    sign_rule: SignRule = "absolute"
    pyramid: tuple[int, ...] = (4, 2, 1)
    classifier: ClassifierKind = "svm"
    probability_scale: float = 1.0
    hash: HashKind = "tree"

    def __post_init__(self) -> None:
        _require_choice("descriptor", self.descriptor, get_args(Descriptor))
        _require_choice("hash", self.hash, get_args(HashKind))
        _require_choice("sign_rule", self.sign_rule, get_args(SignRule))
        _require_choice("classifier", self.classifier, get_args(ClassifierKind))
        _require_whole("depth", self.depth, 1, _LARGEST_DEPTH)
        _require_whole("n_atoms", self.n_atoms, 1, 2**20)
        _require_whole("nonzeros", self.nonzeros, 1, min(self.n_atoms, DESCRIPTOR_WIDTH))
        _require_whole("max_side", self.max_side, 20, 65_535)
        if not self.pyramid:
            raise ValueError("pyramid is empty, expected at least one level")
        for regions in self.pyramid:
            _require_whole("pyramid level", regions, 1, 64)
            if self.pyramid[0] % regions:
                raise ValueError(
                    f"pyramid level {regions} does not divide the finest level {self.pyramid[0]}"
                )
        if not 0 < self.probability_scale < float("inf"):
            raise ValueError(
                f"probability_scale is {self.probability_scale}, expected a positive number"
            )

    @property
    def n_leaves(self) -> int:
        """Leaves of the complete binary tree, or buckets of the projection hash."""
        return int(2**self.depth)

    @property
    def n_channels(self) -> int:
        """Pooled values per region: one per atom, two when the signs are kept apart."""
        return self.n_atoms * (2 if self.sign_rule == "split" else 1)

    @property
    def n_features(self) -> int:
        """Length of the pooled vector."""
        return self.n_channels * sum(regions**2 for regions in self.pyramid)

    def to_json(self) -> dict[str, object]:
        """The configuration as plain JSON values."""
        return {**asdict(self), "pyramid": list(self.pyramid)}


def _require_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} is {value!r}, expected one of {', '.join(choices)}")


def _require_whole(name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{name} is {value!r}, expected a whole number from {low} to {high}")
