"""Outcomes as lines of text: a table for people, or one JSON object an image for programs."""

import json
import sys
from collections.abc import Iterable
from dataclasses import asdict
from typing import Protocol, TextIO

from service.engine import Manifest
from service.repository import ModelKey
from service.terminal.columns import Columns, display_width, printable
from service.terminal.labeller import Outcome

__all__ = ["JsonReport", "Report", "TableReport"]


# Behind the best label of an image that looks like none of the model's classes.
_UNKNOWN = " ?"


class Report(Protocol):
    """Writes outcomes as they come, each of them at once."""

    def begin(self) -> None:
        """Write what comes before the first image."""

    def tell(self, image: str, outcome: Outcome) -> None:
        """Write what became of an image."""

    def end(self, images: int, failed: int, seconds: float) -> None:
        """Write what comes after the last image."""


class TableReport:
    """One row an image on standard output, bad images on standard error."""

    def __init__(self, manifest: Manifest, images: Iterable[str], width: int | None) -> None:
        self._model = ModelKey.of(manifest)
        head = ("image", "label")
        names = max(display_width(printable(name)) for name in (head[0], *images))
        labels = max(display_width(printable(label)) for label in (head[1], *manifest.labels))
        if manifest.config.known_threshold is not None:
            labels += len(_UNKNOWN)
        self._columns = Columns.of(names, labels, width)
        self._unknown = 0

    def begin(self) -> None:
        """Write the names of the columns."""
        _write(self._columns.row("image", "label", "prob.", ["further labels"]))

    def tell(self, image: str, outcome: Outcome) -> None:
        """Write the row of an image, or why it has none."""
        image = printable(image)
        if isinstance(outcome, str):
            _write(f"{image}: {outcome}", sys.stderr)
            return
        best, *others = outcome.predictions
        further = [f"{printable(item.label)} {item.probability:.1%}" for item in others]
        label, probability = printable(best.label), f"{best.probability:.1%}"
        if not outcome.known:
            self._unknown += 1
            label += _UNKNOWN
        _write(self._columns.row(image, label, probability, further))

    def end(self, images: int, failed: int, seconds: float) -> None:
        """Write how many images there were, which model labelled them and how fast."""
        failures = f", {failed} failed" if failed else ""
        unknown = f", {self._unknown} like none of the classes (?)" if self._unknown else ""
        noun = "image" if images == 1 else "images"
        rate = f"{images / seconds:.1f} a second"
        _write(f"{images} {noun}{failures}{unknown}, {rate}, by {self._model}")


class JsonReport:
    """One JSON object a line and image on standard output, bad images among them."""

    def __init__(self, manifest: Manifest) -> None:
        self._model = asdict(ModelKey.of(manifest)) | {"digest": manifest.digest}

    def begin(self) -> None:
        """Write nothing: every line is an image."""

    def tell(self, image: str, outcome: Outcome) -> None:
        """Write the line of an image."""
        if isinstance(outcome, str):
            line: dict[str, object] = {"image": image, "error": outcome}
        else:
            line = {
                "image": image,
                "model": self._model,
                "known": outcome.known,
                "predictions": [asdict(item) for item in outcome.predictions],
            }
        _write(json.dumps(line))

    def end(self, images: int, failed: int, seconds: float) -> None:
        """Write nothing: every line is an image."""


def _write(line: str, stream: TextIO | None = None) -> None:
    """Write a line at once, to standard output unless another stream is given."""
    print(line, file=stream, flush=True)
