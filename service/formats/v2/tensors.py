"""Tensors of the Open Inference Protocol: in JSON, and as bytes behind it.

Bytes are little-endian and row-major without padding; an element of BYTES is its length
as a uint32, then its content, one of BOOL is one byte.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from service.engine.arrays import BoolArray, Float32Array, Int32Array
from service.errors import MalformedBodyError

__all__ = ["Datatype", "Tensor", "TensorType", "join_elements", "split_elements"]

Datatype = Literal["BOOL", "BYTES", "FP32", "INT32"]

_DATATYPES: dict[type, Datatype] = {np.bool_: "BOOL", np.float32: "FP32", np.int32: "INT32"}

_LENGTH = struct.Struct("<I")


@dataclass(frozen=True)
class TensorType:
    """A tensor that a model reads or answers; -1 in its shape stands for any size."""

    name: str
    datatype: Datatype
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Tensor:
    """A tensor with its values: an array of its shape, or texts in row-major order."""

    name: str
    shape: tuple[int, ...]
    values: BoolArray | Float32Array | Int32Array | tuple[str, ...]

    @property
    def datatype(self) -> Datatype:
        """The protocol's name for the type of the values."""
        if isinstance(self.values, tuple):
            return "BYTES"
        return _DATATYPES[self.values.dtype.type]

    def flat(self) -> list[object]:
        """The values for JSON, row-major."""
        if isinstance(self.values, tuple):
            return list(self.values)
        return [*self.values.ravel().tolist()]

    def to_bytes(self) -> bytes:
        """The values as the protocol's bytes."""
        if isinstance(self.values, tuple):
            return join_elements(text.encode() for text in self.values)
        return self.values.astype(self.values.dtype.newbyteorder("<"), copy=False).tobytes()


def join_elements(elements: Iterable[bytes]) -> bytes:
    """Elements of BYTES, each behind its length."""
    return b"".join(_LENGTH.pack(len(element)) + element for element in elements)


def split_elements(data: bytes | memoryview, count: int) -> tuple[bytes, ...]:
    """The `count` elements of a BYTES tensor that fill `data` exactly."""
    elements, start = [], 0
    for number in range(count):
        content = start + _LENGTH.size
        if content > len(data):
            raise MalformedBodyError(
                f"the tensor ends before the length of element {number}, "
                f"expected {count} elements, each behind its length as a uint32"
            )
        (length,) = _LENGTH.unpack_from(data, start)
        start = content + length
        if start > len(data):
            raise MalformedBodyError(
                f"element {number} says it has {length} bytes, only {len(data) - content} follow"
            )
        elements.append(bytes(data[content:start]))
    if start != len(data):
        raise MalformedBodyError(
            f"{len(data) - start} bytes follow the last element, expected {count} elements"
        )
    return tuple(elements)
