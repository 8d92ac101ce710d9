"""What the tensors of a bundle are called, and which types and shapes they have."""

from collections.abc import Mapping
from typing import TypeVar

from service.engine.config import (
    DESCRIPTOR_WIDTH,
    BlockConfig,
    CodesConfig,
    EngineConfig,
    ViewConfig,
    weight_columns,
)
from service.engine.manifest import TensorSpec

__all__ = ["block_prefix", "expected_tensors", "hash_specs", "part_of", "prefixed", "view_prefix"]

Item = TypeVar("Item")


def expected_tensors(config: EngineConfig, n_labels: int) -> dict[str, TensorSpec]:
    """Type and shape of every tensor that a bundle with this configuration stores."""
    specs: dict[str, TensorSpec] = {}
    for number, view in enumerate(config.views):
        specs |= prefixed(view_prefix(number), hash_specs(view))
    for number, block in enumerate(config.blocks):
        specs |= prefixed(block_prefix(number), _block_specs(block, config.views[block.view]))
    return {
        **specs,
        "classifier_weights": TensorSpec("int8", (config.n_features, weight_columns(n_labels))),
        "classifier_scales": TensorSpec("float32", (len(config.blocks), n_labels)),
        "classifier_bias": TensorSpec("float32", (n_labels,)),
    }


def view_prefix(number: int) -> str:
    """How the names of a view's tensors begin."""
    return f"view{number}."


def block_prefix(number: int) -> str:
    """How the names of a block's tensors begin."""
    return f"block{number}."


def prefixed(prefix: str, items: Mapping[str, Item]) -> dict[str, Item]:
    """Tensors, or what is expected of them, under the names that they have in a bundle."""
    return {f"{prefix}{name}": item for name, item in items.items()}


def part_of(tensors: Mapping[str, Item], prefix: str) -> dict[str, Item]:
    """The tensors whose names begin with `prefix`, under the rest of their names."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


def hash_specs(view: ViewConfig) -> dict[str, TensorSpec]:
    """The tensors that a view has of its hash."""
    if view.hash == "tree":
        nodes = view.n_leaves - 1
        return {
            "tree_vectors": TensorSpec(_integers(view), (nodes, DESCRIPTOR_WIDTH)),
            "tree_thresholds": TensorSpec("float32", (nodes,)),
        }
    return {
        "hash_directions": TensorSpec("float32", (view.depth, DESCRIPTOR_WIDTH)),
        "hash_offsets": TensorSpec("float32", (view.depth,)),
    }


def _integers(view: ViewConfig) -> str:
    """The type of what descriptors of a view are multiplied with."""
    return "int16" if view.has_signs else "int8"


def _block_specs(block: BlockConfig, view: ViewConfig) -> dict[str, TensorSpec]:
    if isinstance(block, CodesConfig):
        leaves, nonzeros = view.n_leaves, block.nonzeros
        return {
            "table": TensorSpec("int32", (leaves, nonzeros)),
            "atoms": TensorSpec(_integers(view), (block.n_atoms, DESCRIPTOR_WIDTH)),
            "atom_scales": TensorSpec("float32", (block.n_atoms,)),
            "inverse_grams": TensorSpec("float32", (leaves, nonzeros, nonzeros)),
        }
    return {
        "means": TensorSpec("float32", (block.n_means, DESCRIPTOR_WIDTH)),
        "projections": TensorSpec("int8", (block.n_means, DESCRIPTOR_WIDTH, block.components)),
        "scales": TensorSpec("float32", (block.n_means, block.components)),
    }
