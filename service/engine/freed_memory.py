"""Memory that one image gives back is kept for the next one.

The C library returns freed memory to the system, and the system clears every page of it before
it is used again: 600 pages an image, a tenth of the time that classifying it takes.
"""

import ctypes
import sys
from functools import cache

__all__ = ["keep_freed_memory"]

# Of glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3

# What one image takes at working size is far below, what a large one takes to be decoded above;
# glibc allows no more. Arrays above it are returned as soon as they are freed.
_KEPT_BYTES = 32 * 2**20


@cache
def keep_freed_memory() -> bool:
    """Let this process keep up to 32 MB that it has freed; whether its C library can be told.

    That holds for the whole process, once for all.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None:  # not glibc
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _KEPT_BYTES) and mallopt(_TRIM_THRESHOLD, _KEPT_BYTES))
