"""Tree and coder together: serving routes and codes descriptors in one pass.

The kernel is made of the same parts as `Tree.route` and `Coder.encode` and gives the same
numbers. Training calls those two, because it needs the leaves before there is a coder.
"""

from service.engine.arrays import Float32Array
from service.engine.codes import Codes
from service.engine.coding import Coder
from service.engine.fixedpoint import Descriptors
from service.engine.kernels.encoding import encode_runs
from service.engine.tree import Tree

__all__ = ["encode_by_tree"]


def encode_by_tree(
    descriptors: Descriptors, tree: Tree, coder: Coder, codes: Codes, lengths: Float32Array
) -> None:
    """Fill `codes`, leaf ids included, and `lengths` (n,) of n descriptors."""
    lines = coder.lines
    encode_runs(
        descriptors.flat,
        descriptors.starts,
        descriptors.stride,
        descriptors.longest,
        tree.directions,
        tree.cuts,
        tree.depth,
        lines.table,
        lines.inverses,
        lines.atoms,
        lines.atom_scales,
        lengths,
        codes.leaf_ids,
        codes.atom_ids,
        codes.values,
    )
