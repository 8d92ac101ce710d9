"""What the bytes of a JPEG tell before any of it is decoded.

A few bytes may ask for gigabytes of memory, or for minutes.
"""

import re

import numpy as np

from service.engine.arrays import frozen
from service.engine.errors import BrokenImageError
from service.engine.kernels.scans import count_pairs

__all__ = ["check_length", "check_scans", "is_decoded_in_rows"]

# Progressive encoders write about ten scans; each one costs the decoder a pass over
# the whole image, and 400 scans of a 107 KB file took 5.4 s.
_MOST_SCANS = 64

# 0xFF starts a marker unless a stuffed zero or more fill follows; TEM (0x01) and restart
# markers have no length.
_MARKER = re.compile(rb"\xff+([^\x00\x01\xff\xd0-\xd7])", re.DOTALL)
_START_OF_SCAN = 0xDA
# Coded by Huffman in sequence; all others: progressive, lossless, hierarchical or arithmetic.
_SEQUENTIAL_FRAMES = (0xC0, 0xC1)
_OTHER_FRAMES = (0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF)
_ARITHMETIC_FRAMES = (b"\xff\xc9", b"\xff\xca")
_START_OF_IMAGE, _END_OF_IMAGE = 0xD8, 0xD9


def is_decoded_in_rows(data: bytes) -> bool:
    """Whether the first scan of a JPEG has all of its components, coded in sequence.

    Then libjpeg keeps a few rows of blocks, and at a reduced size a JPEG of 12000x9000 pixels
    took 7 MB. Of any other it keeps all coefficients: 311 to 620 MB, at whatever size.
    """
    components, position = None, 0
    while match := _MARKER.search(data, position):
        marker, body = match[1][0], match.end()
        if marker == _START_OF_SCAN:
            return components is not None and data[body + 2 : body + 3] == components
        if marker in _SEQUENTIAL_FRAMES:
            components = data[body + 7 : body + 8]
        elif marker in _OTHER_FRAMES:
            return False
        position = body if marker == _START_OF_IMAGE else body + _big_endian(data, body)
    return False


def check_length(data: bytes, size: tuple[int, int]) -> None:
    """Reject a JPEG that holds less than its size takes; the decoder would fill it with grey.

    Every block of 8x8 pixels has a Huffman code, of a bit or more, for its mean. Arithmetic
    coding may take less. Where only a part of the blocks is missing, nothing here can tell.
    """
    blocks = -(-size[0] // 8) * -(-size[1] // 8)
    if len(data) * 8 < blocks and not any(mark in data for mark in _ARITHMETIC_FRAMES):
        raise BrokenImageError(
            f"the JPEG is {size[0]}x{size[1]} pixels, which take at least {blocks // 8} bytes, "
            f"but has {len(data)}; it is truncated or its header is damaged"
        )


def check_scans(data: bytes) -> None:
    """Reject a JPEG of more scans than any encoder writes."""
    scans = _count_scans(data)
    if scans > _MOST_SCANS:
        raise BrokenImageError(f"the JPEG has {scans} scans, expected at most {_MOST_SCANS}")


def _count_scans(data: bytes) -> int:
    """Scans of the first image in a JPEG file, thumbnails and trailing data left out.

    Where few pairs of bytes look like the start of a scan, every pair counts as a scan, true
    or not, because going from marker to marker takes as long as decoding.
    """
    # In a twentieth of the time of bytes.count, which took 5 % of that of decoding.
    suspects = count_pairs(frozen(np.frombuffer(data, np.uint8)), 0xFF, _START_OF_SCAN)
    if suspects <= _MOST_SCANS:
        return suspects
    scans, position = 0, 0
    while match := _MARKER.search(data, position):
        marker = match[1][0]
        if marker == _END_OF_IMAGE:
            break
        scans += marker == _START_OF_SCAN
        # A segment states its length, its own two bytes included.
        body = match.end()
        position = body if marker == _START_OF_IMAGE else body + _big_endian(data, body)
    return scans


def _big_endian(data: bytes, position: int) -> int:
    return max(int.from_bytes(data[position : position + 2], "big"), 2)
