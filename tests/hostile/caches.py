"""Files of compiled kernels that were damaged: they cost time, and nothing else.

A kind damages the files of one small kernel, which must then be compiled again.
"""

import pickle
import random
from pathlib import Path

import numpy as np

from tests.hostile.corpus import kind, pick
from tests.hostile.threats import Threat

Rng = np.random.Generator


def files(rng: Rng, folder: Path) -> Path:
    """The index or the machine code."""
    return pick(rng, sorted(folder.rglob(f"*.{pick(rng, ('nbi', 'nbc'))}")))


@kind(Threat.DAMAGED_KERNELS)
def cache_file_cut_short(rng: Rng, folder: Path) -> None:
    path = files(rng, folder)
    data = path.read_bytes()
    path.write_bytes(data[: int(rng.integers(len(data)))])


@kind(Threat.DAMAGED_KERNELS)
def flipped_bit_of_a_kernel(rng: Rng, folder: Path) -> None:
    path = files(rng, folder)
    data = bytearray(path.read_bytes())
    data[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
    path.write_bytes(data)


@kind(Threat.DAMAGED_KERNELS)
def zeros_in_a_kernel(rng: Rng, folder: Path) -> None:
    """What a file system leaves of a page that was never written."""
    path = files(rng, folder)
    data = bytearray(path.read_bytes())
    start = int(rng.integers(len(data)))
    data[start : start + 4_096] = bytes(len(data[start : start + 4_096]))
    path.write_bytes(bytes(data) if any(data[:32]) else b"")


@kind(Threat.DAMAGED_KERNELS)
def something_else_in_place_of_a_kernel(rng: Rng, folder: Path) -> None:
    others = (b"", rng.bytes(500), pickle.dumps({}), pickle.dumps(random.random), b"\x80\x04]")
    files(rng, folder).write_bytes(pick(rng, others))


@kind(Threat.DAMAGED_KERNELS)
def folder_in_place_of_a_kernel(rng: Rng, folder: Path) -> None:
    path = files(rng, folder)
    path.unlink()
    path.mkdir()
