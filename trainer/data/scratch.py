"""Descriptors that do not fit in memory: rows in a file, mapped, read as needed.

A mapped array is an array to everything else; only where rows are joined, copied or put
into another order does it matter, because the result must be a file again. Files have no
name once they are mapped, so that their space is free again when the array is.
"""

import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from service.engine.arrays import Float32Array
from service.engine.config import DESCRIPTOR_WIDTH

__all__ = ["copied", "joined", "reordered"]

# Rows that are copied at a time.
_BLOCK = 2**13


def joined(parts: Iterable[Float32Array], scratch: Path | None) -> Float32Array:
    """All rows of the parts (n, 128), in memory or in a file of the folder `scratch`."""
    if scratch is None:
        empty = np.empty((0, DESCRIPTOR_WIDTH), np.float32)
        return np.concatenate([empty, *parts])
    with tempfile.NamedTemporaryFile(dir=scratch, suffix=".rows") as file:
        for part in parts:
            part.tofile(file)
        if not file.tell():
            return np.empty((0, DESCRIPTOR_WIDTH), np.float32)
        file.flush()
        rows: Float32Array = np.memmap(file.name, np.float32, "r").reshape(-1, DESCRIPTOR_WIDTH)
        return rows


def reordered(rows: Float32Array, order: npt.NDArray[np.integer]) -> Float32Array:
    """rows[order]; in a new file beside the old one if the rows are mapped."""
    folder = _folder(rows)
    if folder is None or not len(order):
        picked: Float32Array = rows[order]
        return picked
    moved = _mapped(folder, (len(order), *rows.shape[1:]))
    for begin in range(0, len(order), _BLOCK):
        moved[begin : begin + _BLOCK] = rows[order[begin : begin + _BLOCK]]
    return moved


def copied(rows: Float32Array) -> Float32Array:
    """A copy to write to; in a new file beside the old one if the rows are mapped."""
    folder = _folder(rows)
    copy = np.empty(rows.shape, np.float32) if folder is None else _mapped(folder, rows.shape)
    copy[:] = rows
    return copy


def _mapped(folder: Path, shape: tuple[int, ...]) -> Float32Array:
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".rows") as file:
        rows: Float32Array = np.memmap(file.name, np.float32, "w+", shape=shape)
        return rows


def _folder(rows: Float32Array) -> Path | None:
    """Where the file of mapped rows was made; None for rows in memory.

    A plain view of a mapped array does not say so itself, the array below it does.
    """
    below: object = rows
    while isinstance(below, np.ndarray):
        if isinstance(below, np.memmap) and below.filename is not None:
            return Path(below.filename).parent
        below = below.base
    return None
