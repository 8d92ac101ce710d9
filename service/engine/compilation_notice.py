"""Whether kernels are compiled, or only loaded from the cache: somebody may be waiting.

Not in `compiling.py`, whose content every compiled kernel depends on.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from numba.core import event

__all__ = ["compiling_is_told"]


class _FirstCompilation(event.Listener):
    """Calls `tell` when the first kernel is compiled, those that are loaded do not count."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell
        self.told = False

    def on_start(self, event: object) -> None:  # noqa: ARG002
        """A kernel is about to be compiled."""
        if not self.told:
            self.told = True
            self._tell()

    def on_end(self, event: object) -> None:
        """A kernel was compiled."""


@contextmanager
def compiling_is_told(tell: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Call `tell` once in the block, before the first kernel that the cache does not have.

    Gives a function that says whether that has happened.
    """
    listener = _FirstCompilation(tell)
    with event.install_listener("numba:compile", listener):
        yield lambda: listener.told
