"""How far a bulk classification is: a bar on a terminal, elsewhere lines."""

import logging
import time
from typing import Any, Self

from trainer.parallel import progress_bar
from trainer.predict.summary import TableCounts
from trainer.progress import duration_text

__all__ = ["PredictProgress"]

logger = logging.getLogger(__name__)

# Where there is no bar, a line for every tenth; none for a rest that nobody waits for.
_STEP = 0.1
_SHORT_REST = 10.0


class PredictProgress:
    """Images that are done, of `total`; `before` of them were when it began."""

    def __init__(self, total: int, before: int = 0) -> None:
        self._total, self._before, self._done, self._unreadable = total, before, before, 0
        self._bar: Any = progress_bar(total=total, initial=before, desc="predict", unit=" images")
        self._began, self._said = time.monotonic(), int(before / total / _STEP)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def advance(self, done: TableCounts) -> None:
        """Count a part that is done."""
        self._done += done.images
        self._unreadable += done.unreadable
        self._bar.set_postfix_str(f"{self._unreadable} unreadable", refresh=False)
        self._bar.update(done.images)
        if self._bar.disable:
            self._say()

    def _say(self) -> None:
        share = self._done / self._total
        rate = (self._done - self._before) / (time.monotonic() - self._began)
        rest = (self._total - self._done) / rate
        if int(share / _STEP) > self._said and rest > _SHORT_REST:
            self._said = int(share / _STEP)
            logger.info(
                "%d of %d images, %.0f a second, %d unreadable, about %s left",
                *(self._done, self._total, rate, self._unreadable, duration_text(rest)),
            )
