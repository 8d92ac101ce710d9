"""Memory that a worker has freed, given back to the system."""

import ctypes

__all__ = ["give_back"]


def give_back() -> None:
    """Return what the C library keeps of freed arrays, where it can.

    It keeps arrays of less than 32 MB for later ones. Pieces of descriptors come and go in
    gigabytes, and what comes later has other sizes.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
