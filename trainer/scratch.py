"""Descriptors that do not fit in memory: rows in a file, mapped, read as needed.

A mapped array is an array to everything else; only where rows are joined or put into
another order does it matter, because the result must be a file again.
"""

import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from service.engine.arrays import Float32Array
from service.engine.config import DESCRIPTOR_WIDTH

__all__ = ["joined", "reordered"]

# Rows that are copied at a time.
_BLOCK = 2**16


def joined(parts: Iterable[Float32Array], scratch: Path | None) -> Float32Array:
    """All rows of the parts (n, 128), in memory or in a file of the folder `scratch`."""
    if scratch is None:
        empty = np.empty((0, DESCRIPTOR_WIDTH), np.float32)
        return np.concatenate([empty, *parts])
    path = _new_file(scratch)
    with path.open("wb") as file:
        for part in parts:
            part.tofile(file)
    if not path.stat().st_size:
        return np.empty((0, DESCRIPTOR_WIDTH), np.float32)
    rows: Float32Array = np.memmap(path, np.float32, "r").reshape(-1, DESCRIPTOR_WIDTH)
    return rows


def reordered(rows: Float32Array, order: npt.NDArray[np.integer]) -> Float32Array:
    """rows[order]; in a new file beside the old one if the rows are mapped."""
    if not isinstance(rows, np.memmap) or rows.filename is None:
        picked: Float32Array = rows[order]
        return picked
    path = _new_file(Path(rows.filename).parent)
    shape = (len(order), *rows.shape[1:])
    moved: Float32Array = np.memmap(path, np.float32, "w+", shape=shape)
    for begin in range(0, len(order), _BLOCK):
        moved[begin : begin + _BLOCK] = rows[order[begin : begin + _BLOCK]]
    return moved


def _new_file(folder: Path) -> Path:
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".rows", delete=False) as file:
        return Path(file.name)
