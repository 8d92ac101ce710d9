"""How long each stage of one image took, under the names that metrics and benchmarks use."""

import time
from collections.abc import Mapping
from typing import Literal, get_args

__all__ = ["STAGES", "Stage", "Stopwatch"]

Stage = Literal["decode", "sift", "coding", "pooling", "classifier", "explanation"]
STAGES: tuple[Stage, ...] = get_args(Stage)


class Stopwatch:
    """Seconds of the stages that have ended; the clock starts when it is made."""

    def __init__(self) -> None:
        self.seconds: dict[Stage, float] = {}
        self._last = time.perf_counter()

    def lap(self, stage: Stage) -> None:
        """Add the time since the previous lap, or since the start, to this stage's."""
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now

    def share(self, parts: Mapping[Stage, float]) -> None:
        """Add the time since the previous lap to some stages, in proportion to their parts.

        That of several threads, whose stages overlap, is told like this.
        """
        now, whole = time.perf_counter(), sum(parts.values())
        for stage, part in parts.items():
            if part > 0:
                own = (now - self._last) * part / whole
                self.seconds[stage] = self.seconds.get(stage, 0.0) + own
        if whole > 0:
            self._last = now
