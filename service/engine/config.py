"""Every number that changes an answer, as stored in the bundle's manifest.

`EngineConfig` is what the trainer decides and the service obeys. Operational
limits (bytes, pixels) are not here: they do not change an answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, ClassVar, Literal, get_args

__all__ = [
    "COLOUR_REDUCTION",
    "DESCRIPTOR_WIDTH",
    "EXPLANATION_CELLS",
    "MAX_ATOMS",
    "STEPS",
    "BlockConfig",
    "ClassifierKind",
    "CodesConfig",
    "Descriptor",
    "EngineConfig",
    "HashKind",
    "ResidualsConfig",
    "SignRule",
    "ViewConfig",
    "weight_columns",
]

Descriptor = Literal["fast-sift", "lazebnik-sift", "contour-sift", "colour"]
HashKind = Literal["tree", "tanh", "sine"]
SignRule = Literal["absolute", "raw", "split"]
ClassifierKind = Literal["svm", "logistic"]

# 4 x 4 cells with 8 orientations, or other numbers, each.
DESCRIPTOR_WIDTH = 128

# Leaves name their atoms by 16 bits, so that what coding reads of five is one cache line.
MAX_ATOMS = 2**16

# Cells of an explanation in each direction, whatever the shape of the image: a cell of an image
# of 300 pixels is about half a patch wide, and maps of different images have the same shape.
EXPLANATION_CELLS = 32

# Pixels from one descriptor to the next, unless a view says otherwise. The paper says two for
# the fast one and nothing for Lazebnik's. For a 300x200 image hers takes 2.7 times the fast
# one's time at a step of four, but leaves a quarter of the descriptors to code; at two it takes
# 7 times.
STEPS: dict[Descriptor, int] = {
    "fast-sift": 2,
    "lazebnik-sift": 4,
    "contour-sift": 2,
    "colour": 2,
}

# The maps of these have one cell for two pixels.
_EVEN_STEPS: frozenset[Descriptor] = frozenset({"fast-sift", "contour-sift", "colour"})

_LARGEST_DEPTH = 24
# Colours are decoded at half of the working size: JPEGs mostly store no more.
COLOUR_REDUCTION = 2

# Columns of weights that are computed at a time, and so padded to: without, the last ones would
# be computed one by one. 0.75 ms instead of 1.03 for 138 000 features and 101 labels.
_LANES = 16

_LARGEST_STEP = 64
_LARGEST_STRIDE = 64
_LARGEST_REDUCTION = 16

# Sums of residuals are 32-bit integers, which hold the descriptors of 1024 x 1024 places in one
# node. Those of colours are up to sixteen times as long as those of SIFT.
_LARGEST_SUMMED_GRID = 1024
_LARGEST_SUMMED_COLOURS = 256


@dataclass(frozen=True)
class ViewConfig:
    """A copy of the image, its descriptors, and what sends them to leaves.

    The copy is the image at working size, both sides divided by `reduction`. `step` is the
    distance of descriptors in pixels of the copy. `hash` is the tree, or a projection hash
    whose number of bits is `depth`.
    """

    depth: int
    descriptor: Descriptor = "fast-sift"
    step: int = 0
    reduction: int = 1
    hash: HashKind = "tree"

    def __post_init__(self) -> None:
        _require_choice("descriptor", self.descriptor, get_args(Descriptor))
        _require_choice("hash", self.hash, get_args(HashKind))
        _require_whole("depth", self.depth, 1, _LARGEST_DEPTH)
        _require_whole("reduction", self.reduction, 1, _LARGEST_REDUCTION)
        if self.step == 0 and type(self.step) is int:  # of JSON, not false and not 0.0
            object.__setattr__(self, "step", STEPS[self.descriptor])
        _require_whole("step", self.step, 1, _LARGEST_STEP)
        if self.descriptor in _EVEN_STEPS and self.step % 2:
            raise ValueError(f"step is {self.step}, expected an even number for {self.descriptor}")
        if self.descriptor == "colour" and self.reduction != COLOUR_REDUCTION:
            raise ValueError(
                f"reduction is {self.reduction}, expected {COLOUR_REDUCTION} for colour"
            )

    @property
    def n_leaves(self) -> int:
        """Leaves of the complete binary tree, or buckets of the projection hash."""
        return int(2**self.depth)

    @property
    def has_signs(self) -> bool:
        """Whether values of descriptors may be negative, so that tree and atoms are wide."""
        return self.descriptor == "colour"


@dataclass(frozen=True)
class CodesConfig:
    """A block of codes, the paper's: the largest value of each atom in each region.

    `pyramid` lists the regions per side of each level, finest first, and every coarser level
    divides the finest. `view` is the number of the view that is coded: every descriptor of its
    grid, or one of `stride` in each direction.
    """

    kind: ClassVar[Literal["codes"]] = "codes"

    n_atoms: int
    nonzeros: int
    sign_rule: SignRule = "absolute"
    pyramid: tuple[int, ...] = (4, 2, 1)
    weight: float = 1.0
    view: int = 0
    stride: int = 1

    def __post_init__(self) -> None:
        _require_choice("sign_rule", self.sign_rule, get_args(SignRule))
        _require_whole("n_atoms", self.n_atoms, 1, MAX_ATOMS)
        _require_whole("nonzeros", self.nonzeros, 1, min(self.n_atoms, DESCRIPTOR_WIDTH))
        _require_whole("stride", self.stride, 1, _LARGEST_STRIDE)
        _require_pyramid(self.pyramid)
        _require_positive("weight", self.weight)

    @property
    def n_channels(self) -> int:
        """Pooled values per region: one per atom, two when the signs are kept apart."""
        return self.n_atoms * (2 if self.sign_rule == "split" else 1)

    @property
    def n_features(self) -> int:
        """Length of the block."""
        return self.n_channels * _regions(self.pyramid)


@dataclass(frozen=True)
class ResidualsConfig:
    """A block of residuals: how the descriptors of a node differ from its mean, in each region.

    Each level of the pyramid has nodes of its own: those of the view's tree so many decisions
    below its root as `levels` says. The differences of a node and region are added up and
    projected to `components` numbers.
    """

    kind: ClassVar[Literal["residuals"]] = "residuals"

    levels: tuple[int, ...]
    components: int
    pyramid: tuple[int, ...] = (4, 2, 1)
    weight: float = 1.0
    view: int = 0

    def __post_init__(self) -> None:
        for level in self.levels:
            _require_whole("level", level, 0, _LARGEST_DEPTH)
        _require_whole("components", self.components, 1, DESCRIPTOR_WIDTH)
        _require_pyramid(self.pyramid)
        _require_positive("weight", self.weight)
        if len(self.levels) != len(self.pyramid):
            raise ValueError(
                f"levels are {list(self.levels)} for the pyramid {list(self.pyramid)}, "
                "expected one for each level of the pyramid"
            )

    @property
    def n_nodes(self) -> int:
        """Nodes of the deepest level, over which descriptors are added up."""
        return int(2 ** max(self.levels))

    @property
    def n_means(self) -> int:
        """Nodes of all levels of the tree that are used, each with a mean."""
        return sum(int(2**level) for level in set(self.levels))

    def nodes_of(self, level: int) -> slice:
        """Where the nodes of a level of the tree are among all that have means, highest first."""
        first = sum(int(2**above) for above in set(self.levels) if above < level)
        return slice(first, first + int(2**level))

    @property
    def n_features(self) -> int:
        """Length of the block."""
        pairs = zip(self.levels, self.pyramid, strict=True)
        return self.components * sum(int(2**level) * regions**2 for level, regions in pairs)


BlockConfig = CodesConfig | ResidualsConfig

_BLOCKS: dict[str, type[BlockConfig]] = {"codes": CodesConfig, "residuals": ResidualsConfig}


@dataclass(frozen=True)
class EngineConfig:
    """The engine's configuration; values that no engine can run are rejected.

    Images are brought to a working size of at most `max_side` pixels a side. The pooled vector
    is the list of blocks; a view has at most one of each kind, and one block at least is of
    codes. `probability_scale` multiplies the scores before the softmax, `known_threshold` is the
    best score that an image of one of the classes has at least; the trainer fits both to held-out
    scores. None, of bundles from before and of those without folds, takes all images for known.
    """

    views: tuple[ViewConfig, ...]
    blocks: tuple[BlockConfig, ...]
    max_side: int = 300
    classifier: ClassifierKind = "svm"
    probability_scale: float = 1.0
    known_threshold: float | None = None

    def __post_init__(self) -> None:
        _require_choice("classifier", self.classifier, get_args(ClassifierKind))
        _require_whole("max_side", self.max_side, 20, 65_535)
        _require_positive("probability_scale", self.probability_scale)
        if self.known_threshold is not None:
            _require_finite("known_threshold", self.known_threshold)
        for block in self.blocks:
            self._check_block(block)
        named = [(block.view, block.kind) for block in self.blocks]
        if len(set(named)) != len(named):
            raise ValueError("two blocks of one kind share a view, expected one of each kind")
        if {block.view for block in self.blocks} != set(range(len(self.views))):
            raise ValueError("a view has no block, expected one or two")
        if not any(isinstance(block, CodesConfig) for block in self.blocks):
            raise ValueError("no block has codes, expected at least one")
        if self.view.descriptor == "colour":
            raise ValueError("the first block of codes is of colours, expected SIFT")

    def _check_block(self, block: BlockConfig) -> None:
        _require_whole("view", block.view, 0, len(self.views) - 1)
        view = self.views[block.view]
        if isinstance(block, CodesConfig):
            return
        if view.hash != "tree":
            raise ValueError(f"residuals of a view whose hash is {view.hash}, expected a tree")
        _require_whole("level", max(block.levels), 0, view.depth)
        places = _LARGEST_SUMMED_COLOURS if view.descriptor == "colour" else _LARGEST_SUMMED_GRID
        _require_whole("max_side", self.max_side, 20, places * view.step * view.reduction)

    @classmethod
    def of_codes(
        cls,
        view: ViewConfig,
        codes: CodesConfig,
        max_side: int = 300,
        classifier: ClassifierKind = "svm",
    ) -> "EngineConfig":
        """The paper's pipeline: one view, and one block, of codes."""
        return cls((view,), (codes,), max_side, classifier)

    @cached_property
    def codes(self) -> CodesConfig:
        """The first block of codes: the paper's, whose codes the service returns."""
        return next(block for block in self.blocks if isinstance(block, CodesConfig))

    @property
    def view(self) -> ViewConfig:
        """The view of the first block of codes."""
        return self.views[self.codes.view]

    @cached_property
    def needs_colour(self) -> bool:
        """Whether any view reads more than grey values."""
        return any(view.descriptor == "colour" for view in self.views)

    @cached_property
    def n_features(self) -> int:
        """Length of the pooled vector."""
        return sum(block.n_features for block in self.blocks)

    @cached_property
    def slices(self) -> tuple[slice, ...]:
        """Where the blocks are in the pooled vector, in their order."""
        ends = list(accumulate((block.n_features for block in self.blocks), initial=0))
        return tuple(slice(begin, end) for begin, end in pairwise(ends))

    def to_json(self) -> dict[str, object]:
        """The configuration as plain JSON values."""
        return {
            "max_side": self.max_side,
            "views": [asdict(view) for view in self.views],
            "blocks": [_block_to_json(block) for block in self.blocks],
            "classifier": self.classifier,
            "probability_scale": self.probability_scale,
            "known_threshold": self.known_threshold,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "EngineConfig":
        """The configuration that `to_json` wrote; `ValueError` or `TypeError` for another."""
        fields = dict(document)
        views = _objects("views", fields.pop("views", None))
        blocks = _objects("blocks", fields.pop("blocks", None))
        return cls(
            tuple(ViewConfig(**view) for view in views),
            tuple(_block_from_json(block) for block in blocks),
            **fields,
        )


def weight_columns(n_labels: int) -> int:
    """Columns that the classifier's weights of so many labels are stored in."""
    return -(-n_labels // _LANES) * _LANES


def _block_to_json(block: BlockConfig) -> dict[str, object]:
    fields = asdict(block)
    lists = {name: list(value) for name, value in fields.items() if isinstance(value, tuple)}
    return {"kind": block.kind, **fields, **lists}


def _block_from_json(document: Mapping[str, Any]) -> BlockConfig:
    fields = dict(document)
    kind = fields.pop("kind", None)
    _require_choice("kind", kind, tuple(_BLOCKS))
    for name in ("pyramid", "levels") if kind == "residuals" else ("pyramid",):
        if not isinstance(fields.get(name), list):
            raise TypeError(f"{name} is {fields.get(name)!r}, expected a list of whole numbers")
        fields[name] = tuple(fields[name])
    return _BLOCKS[kind](**fields)


def _objects(name: str, items: object) -> Sequence[Mapping[str, Any]]:
    if items is None:
        raise ValueError(
            f"there are no {name}, expected a list of objects; a bundle of the time before "
            "views and blocks has none and must be trained again"
        )
    if not isinstance(items, list) or not items or not all(isinstance(i, dict) for i in items):
        raise ValueError(f"{name} is {items!r}, expected a list of objects")
    return items


def _regions(pyramid: tuple[int, ...]) -> int:
    return sum(regions**2 for regions in pyramid)


def _require_pyramid(pyramid: tuple[int, ...]) -> None:
    if not pyramid:
        raise ValueError("pyramid is empty, expected at least one level")
    for regions in pyramid:
        _require_whole("pyramid level", regions, 1, 64)
        if pyramid[0] % regions:
            raise ValueError(
                f"pyramid level {regions} does not divide the finest level {pyramid[0]}"
            )


def _require_positive(name: str, value: object) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value < float("inf"):  # type: ignore[operator]
        raise ValueError(f"{name} is {value!r}, expected a positive number")


def _require_finite(name: str, value: object) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not float("-inf") < value < float("inf"):  # type: ignore[operator]
        raise ValueError(f"{name} is {value!r}, expected a finite number or null")


def _require_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} is {value!r}, expected one of {', '.join(choices)}")


def _require_whole(name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{name} is {value!r}, expected a whole number from {low} to {high}")
