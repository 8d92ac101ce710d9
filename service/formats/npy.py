"""Arrays as `.npy` files, read and written, and descriptors as bare little-endian float32.

Every byte comes from a stranger. numpy reads the header, but only a short one; type and
shape are checked against the bytes that are really there before anything is built from
them, and an array of Python objects, which numpy would unpickle, is rejected by its type.
"""

import io
import tokenize
import warnings
from typing import Any, Literal

import numpy as np
from numpy.lib import format as npy_format

from service.engine import DESCRIPTOR_WIDTH, DescriptorError
from service.engine.arrays import Float32Array
from service.errors import MalformedBodyError, OversizedBodyError

__all__ = ["parse_npy", "parse_raw", "write_npy"]

# numpy itself writes 128 bytes; its parser is Python's own, which long input slows down.
_MAX_HEADER_BYTES = 1_000
_ROW_BYTES = 4 * DESCRIPTOR_WIDTH
_READERS = {
    (1, 0): npy_format.read_array_header_1_0,
    (2, 0): npy_format.read_array_header_2_0,
}
# All that Python's tokenizer and parser, and numpy on top of them, raise at a bad header.
_UNREADABLE = (
    ValueError,
    TypeError,
    SyntaxError,
    tokenize.TokenError,
    RecursionError,
    MemoryError,
    UserWarning,
)


def parse_raw(body: bytes, most: int) -> Float32Array:
    """Descriptors (n, 128) of little-endian float32; n follows from the length."""
    if len(body) % _ROW_BYTES:
        raise DescriptorError(
            f"the body has {len(body)} bytes, expected a multiple of {_ROW_BYTES}: "
            f"{DESCRIPTOR_WIDTH} little-endian float32 numbers a descriptor"
        )
    _check_count(len(body) // _ROW_BYTES, most)
    return np.frombuffer(body, "<f4").astype(np.float32, copy=False).reshape(-1, DESCRIPTOR_WIDTH)


def parse_npy(body: bytes, most: int) -> Float32Array:
    """Descriptors (n, 128) of a `.npy` file: float16, 32 or 64, in C or Fortran order."""
    shape, order, dtype, start = _read_header(body)
    if dtype.kind != "f" or dtype.itemsize not in (2, 4, 8):
        raise DescriptorError(
            f"the .npy array has the type {str(dtype)[:80]}, expected float16, float32 or float64"
        )
    if len(shape) != 2 or shape[1] != DESCRIPTOR_WIDTH or shape[0] < 0:
        raise DescriptorError(
            f"the .npy array has the shape {str(shape)[:80]}, expected (n, {DESCRIPTOR_WIDTH})"
        )
    _check_count(shape[0], most)
    expected, found = shape[0] * shape[1] * dtype.itemsize, len(body) - start
    if expected != found:
        raise MalformedBodyError(
            f"the .npy file has {found} bytes behind its header, expected {expected}"
        )
    values = np.frombuffer(body, dtype, offset=start).reshape(shape, order=order)
    with np.errstate(over="ignore"):  # the engine rejects what has become infinite
        return np.require(values, np.float32, ["C", "ALIGNED"])


def write_npy(values: Float32Array) -> bytes:
    """A `.npy` file of an array."""
    file = io.BytesIO()
    np.save(file, values, allow_pickle=False)
    return file.getvalue()


def _read_header(body: bytes) -> tuple[tuple[int, ...], Literal["C", "F"], np.dtype[Any], int]:
    head = io.BytesIO(body[:_MAX_HEADER_BYTES])
    try:
        version = npy_format.read_magic(head)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            shape, fortran_order, dtype = _READERS[version](head)
    except KeyError as error:
        raise MalformedBodyError(
            f"the .npy file is of version {version[0]}.{version[1]}, expected 1.0 or 2.0"
        ) from error
    except _UNREADABLE as error:
        raise MalformedBodyError(
            "the body is no .npy file, or its header cannot be read or is longer than "
            f"{_MAX_HEADER_BYTES} bytes"
        ) from error
    return shape, "F" if fortran_order else "C", dtype, head.tell()


def _check_count(n: int, most: int) -> None:
    if n > most:
        raise OversizedBodyError(f"the body has {n} descriptors, expected at most {most}")
