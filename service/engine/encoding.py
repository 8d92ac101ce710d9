"""Tree and coder together: what serves goes through both in one pass.

Same parts, same numbers as `Tree.route` and `Coder.encode` one after the other, which
training uses because it needs the leaves before there is a coder.
"""

from service.engine.arrays import Float32Array
from service.engine.coding import Coder, Codes
from service.engine.fixedpoint import Descriptors
from service.engine.kernels.encoding import encode_runs
from service.engine.tree import Tree

__all__ = ["encode_by_tree"]


def encode_by_tree(
    descriptors: Descriptors,
    place: slice,
    model: tuple[Tree, Coder],
    codes: Codes,
    lengths: Float32Array,
) -> None:
    """Fill the rows `place` of codes and lengths (n,) from the descriptors there."""
    tree, coder = model
    lines = coder.lines
    encode_runs(
        descriptors.flat,
        descriptors.starts[place],
        descriptors.stride,
        descriptors.longest,
        tree.directions,
        tree.cuts,
        tree.depth,
        lines.table,
        lines.inverses,
        lines.atoms,
        lines.atom_scales,
        lengths[place],
        codes.leaf_ids[place],
        codes.atom_ids[place],
        codes.values[place],
    )
