"""Coding that begins while an image is being decoded, by threads that would wait for it."""

import threading
from contextlib import suppress
from types import TracebackType

from service.engine.arrays import Float32Array
from service.engine.classifier import SharedScores
from service.engine.errors import ImageError
from service.engine.jpeg_rows import OnRows
from service.engine.kernels.strips import Decoding
from service.engine.threads import Threads
from service.engine.views import ImageCoding, View

__all__ = ["EarlyStart"]


class EarlyStart:
    """In its `with` statement an image is decoded; other threads encode the rows that are there.

    That is for a view whose descriptors are of the image itself, if there is one. Where decoding
    fails, they are told so when the statement ends. They help with `scores` when they are done.
    """

    def __init__(
        self, view: View | None, threads: Threads, scores: SharedScores | None = None
    ) -> None:
        self._view = view
        self._threads = threads
        self._scores = scores
        self._lock = threading.Lock()
        self._image: tuple[Float32Array, Decoding] | None = None
        self._coding: ImageCoding | None = None

    @property
    def on_rows(self) -> OnRows | None:
        """What is to be told of rows, if that is of any use."""
        return None if self._view is None or self._threads.count == 1 else self._take

    def begun_for(self, view: View) -> ImageCoding | None:
        """What was begun for a view."""
        return self._coding if view is self._view else None

    def _take(self, gray: Float32Array, rows: int, decoding: Decoding) -> None:
        if self._image is None:
            self._image = gray, decoding
            self._threads.help(self._help, self._threads.count)
        if rows:
            self._show_rows(rows)

    def _help(self) -> None:
        """Encode rows. Whoever comes first begins: the decoder's thread has other work."""
        # An image that cannot be encoded is an error of whoever has it decoded.
        with suppress(ImageError):
            coding = self._begin()
            if coding is not None:
                coding.help()

    def _begin(self) -> ImageCoding | None:
        with self._lock:
            if self._coding is None and self._image is not None and self._view is not None:
                count, scores = self._threads.count, self._scores
                self._coding = self._view.begin_image(*self._image, count, scores)
            return self._coding

    def _show_rows(self, rows: int | None = None) -> None:
        coding = self._begin()
        if coding is not None:
            coding.show_rows(rows)

    def _give_up(self) -> None:
        with self._lock:
            self._image = None  # so that nobody begins any more
        if self._coding is not None:
            self._coding.give_up()

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self._show_rows()
        else:
            self._give_up()
