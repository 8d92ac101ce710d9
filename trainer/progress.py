"""How far a fit is as a whole, and how long the rest of it will take.

`trainer.cost` expects so many CPU seconds of every stage. How many of them a second gets done is
seen in the stages that are over, so that a slow machine, or one that others use too, shows.
"""

import logging
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Self

from trainer.parallel import n_threads, progress_bar
from trainer.stages import StageName, StageRecording

__all__ = ["FitProgress", "duration_text"]

logger = logging.getLogger(__name__)

# Seconds of finished stages from which the rate is taken, and between two looks at the bar.
_LEAST_SECONDS = 2.0
_INTERVAL = 0.5
# Where there is no bar, a line for every tenth; none for a rest that nobody waits for.
_STEP = 0.1
_SHORT_REST = 10.0
# A stage that takes longer than expected is never quite done.
_ALMOST = 0.95


class FitProgress(AbstractContextManager["FitProgress"]):
    """A bar on a terminal, elsewhere lines; it is told whenever a stage begins, ends or goes on."""

    def __init__(self, expected: Mapping[StageName, float]) -> None:
        self._expected = expected
        self._bar: Any = progress_bar(
            total=1.0, desc="fit", bar_format="{desc}: {percentage:3.0f}%|{bar}|"
        )
        self._shown, self._said = time.monotonic(), 0
        self._lines = ExitStack()

    def __enter__(self) -> Self:
        if not self._bar.disable:
            from tqdm.contrib.logging import logging_redirect_tqdm  # noqa: PLC0415

            # Lines of the log come above the bar, not into it.
            self._lines.enter_context(logging_redirect_tqdm())
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
        self._bar.close()

    def update(self, run: StageRecording) -> None:
        """Show how far the run is, if it is time to."""
        now = time.monotonic()
        if now - self._shown < _INTERVAL:
            return
        self._shown = now
        share, seconds = self.estimate(run)
        if not self._bar.disable:
            self._bar.n = max(self._bar.n, share)
            rest = f"about {duration_text(seconds)} left"
            self._bar.set_description_str(f"fit, {rest}, {run.current}")
        elif int(share / _STEP) > self._said and seconds > _SHORT_REST:
            self._said = int(share / _STEP)
            logger.info("%.0f %% done, about %s left", 100 * share, duration_text(seconds))

    def estimate(self, run: StageRecording) -> tuple[float, float]:
        """The share that is done, and how many seconds the rest will take."""
        spent = {name: record.seconds for name, record in run.until_now().items()}
        over = [name for name in spent if name in self._expected and name not in run.open]
        rate = self._rate(sum(self._expected[name] for name in over), sum(spent[n] for n in over))
        done = sum(self._expected[name] for name in over)
        for name in set(run.open) & self._expected.keys():
            done += min(rate * spent.get(name, 0.0), _ALMOST * self._expected[name])
        total = sum(self._expected.values())
        return done / total, (total - done) / rate

    def _rate(self, done: float, seconds: float) -> float:
        """Expected CPU seconds that get done in a second."""
        return done / seconds if done and seconds > _LEAST_SECONDS else float(n_threads())


def duration_text(seconds: float) -> str:
    """A span of time in the unit that suits it."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.1f} hours"
