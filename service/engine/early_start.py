"""Coding that begins while an image is being decoded, by threads that would wait for it."""

from types import TracebackType

from service.engine.arrays import Float32Array
from service.engine.jpeg_rows import OnRows
from service.engine.kernels.strips import Decoding
from service.engine.threads import Threads
from service.engine.views import ImageCoding, View

__all__ = ["EarlyStart"]


class EarlyStart:
    """In its `with` statement an image is decoded; other threads encode the rows that are there.

    That is for a view whose descriptors are of the image itself, if there is one. Where decoding
    fails, they are told so when the statement ends.
    """

    def __init__(self, view: View | None, threads: Threads) -> None:
        self._view = view
        self._threads = threads
        self._coding: ImageCoding | None = None

    @property
    def on_rows(self) -> OnRows | None:
        """What is to be told of rows, if that is of any use."""
        return None if self._view is None or self._threads.count == 1 else self._take

    def begun_for(self, view: View) -> ImageCoding | None:
        """What was begun for a view."""
        return self._coding if view is self._view else None

    def _take(self, gray: Float32Array, rows: int, decoding: Decoding) -> None:
        if self._coding is None and self._view is not None:
            self._coding = self._view.begin_image(gray, self._threads, decoding)
        if self._coding is not None and rows:
            self._coding.show_rows(rows)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._coding is None:
            return
        if kind is None:
            self._coding.show_rows()
        else:
            self._coding.give_up()
