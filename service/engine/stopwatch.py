"""How long each stage of one image took, under the names that metrics and benchmarks use."""

import time
from typing import Literal, get_args

__all__ = ["STAGES", "Stage", "Stopwatch"]

Stage = Literal["decode", "sift", "coding", "pooling", "classifier"]
STAGES: tuple[Stage, ...] = get_args(Stage)


class Stopwatch:
    """Seconds of the stages that have ended; it runs from the moment it is made."""

    def __init__(self) -> None:
        self.seconds: dict[Stage, float] = {}
        self._last = time.perf_counter()

    def lap(self, stage: Stage) -> None:
        """What passed since the lap before belongs to this stage."""
        now = time.perf_counter()
        self.seconds[stage] = now - self._last
        self._last = now
