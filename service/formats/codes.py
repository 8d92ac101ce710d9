"""`POST /v1/codes` inside a worker: descriptors in every form, codes in every form.

Reading and writing millions of numbers takes longer than coding them, so all of it
happens beside the engine and only bytes cross to the event loop.
"""

import io
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic_core import to_json

from service.engine import Codes, Manifest
from service.engine.arrays import Float32Array
from service.formats.json_bodies import parse_descriptors
from service.formats.npy import parse_npy, parse_raw

__all__ = ["CodeForms", "Grid", "Source", "Target", "parse", "write_codes"]

Source = Literal["json", "raw", "npy", "image"]
Target = Literal["json", "npz"]


class Grid(NamedTuple):
    """Where an image's descriptors are, in pixels of the image at working size.

    The first patch, of `side` pixels, has its corner at `left` and `top`.
    """

    rows: int
    cols: int
    step: int
    left: int
    top: int
    side: int
    width: int
    height: int


@dataclass(frozen=True)
class CodeForms:
    """What a request holds, and what its answer shall be."""

    source: Source
    target: Target


_PARSERS = {"json": parse_descriptors, "raw": parse_raw, "npy": parse_npy}


def parse(source: Source, body: bytes, most: int) -> Float32Array:
    """The descriptors (n, 128) of a body that holds them."""
    return _PARSERS[source](body, most)


def write_codes(manifest: Manifest, codes: Codes, grid: Grid | None, target: Target) -> bytes:
    """The answer: JSON of `CodeColumns`, or the same as arrays of an `.npz` file."""
    return _to_json(manifest, codes, grid) if target == "json" else _to_npz(manifest, codes, grid)


def _to_json(manifest: Manifest, codes: Codes, grid: Grid | None) -> bytes:
    """Built without `CodeColumns`, because checking every number costs as much again."""
    document: dict[str, object] = {
        "model": {
            "name": manifest.name,
            "version": manifest.version,
            "digest": manifest.digest,
        },
        "n_atoms": manifest.config.codes.n_atoms,
        "leaf_ids": codes.leaf_ids.tolist(),
        "atom_ids": codes.atom_ids.tolist(),
        "values": codes.values.tolist(),
    }
    if grid is not None:
        document["grid"] = grid._asdict()
    return to_json(document)


def _to_npz(manifest: Manifest, codes: Codes, grid: Grid | None) -> bytes:
    """Stored, not compressed: float values hardly shrink, and packing costs more than coding."""
    file = io.BytesIO()
    arrays: dict[str, npt.ArrayLike] = {
        "leaf_ids": codes.leaf_ids,
        "atom_ids": codes.atom_ids,
        "values": codes.values,
        "n_atoms": manifest.config.codes.n_atoms,
        "model_name": manifest.name,
        "model_version": manifest.version,
        "model_digest": manifest.digest,
    }
    if grid is not None:
        arrays["grid"] = (grid.rows, grid.cols)
        arrays["grid_step"], arrays["grid_side"] = grid.step, grid.side
        arrays["grid_origin"], arrays["image_size"] = (
            (grid.left, grid.top),
            (grid.width, grid.height),
        )
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()
