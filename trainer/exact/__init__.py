"""Exact OMP in place of the tree: the paper's baseline."""
