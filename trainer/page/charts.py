"""Small charts as SVG; colours are classes of the page, so that they are light or dark with it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainer.metrics import Interval, ReliabilityBin, share_interval
from trainer.page.markup import Markup, number, tag

__all__ = ["error_chart", "occupancy_chart", "reliability_chart", "share_bar", "whisker"]

_WHISKER = (120, 14)
_MOST_POINTS = 200


@dataclass(frozen=True)
class _Frame:
    """A plot with axes: where the values from (0, 0) to (1, 1) are drawn."""

    width: float
    height: float
    left: float = 56
    top: float = 10
    bottom: float = 40
    right: float = 24

    def x(self, value: float) -> float:
        return self.left + value * (self.width - self.left - self.right)

    def y(self, value: float) -> float:
        return self.height - self.bottom - value * (self.height - self.top - self.bottom)

    def line(self, start: tuple[float, float], end: tuple[float, float], kind: str) -> Markup:
        (x1, y1), (x2, y2) = start, end
        return tag("line", x1=self.x(x1), y1=self.y(y1), x2=self.x(x2), y2=self.y(y2), class_=kind)

    def path(self, points: Sequence[tuple[float, float]], kind: str) -> Markup:
        places = [f"{number(self.x(x))} {number(self.y(y))}" for x, y in points]
        return tag("path", d="M" + "L".join(places), class_=kind)

    def dot(self, x: float, y: float, title: str) -> Markup:
        return tag("circle", tag("title", title), cx=self.x(x), cy=self.y(y), r=4, class_="dot")

    def words(self, x: float, y: float, text: str, anchor: str = "middle") -> Markup:
        return tag("text", text, x=float(x), y=float(y), text_anchor=anchor)

    def axes(
        self, x_ticks: Sequence[tuple[float, str]], y_ticks: Sequence[tuple[float, str]]
    ) -> Iterator[Markup]:
        for place, text in x_ticks:
            yield self.words(self.x(place), self.height - self.bottom + 16, text)
        for place, text in y_ticks:
            yield self.line((0, place), (1, place), "grid")
            yield self.words(self.left - 6, self.y(place) + 4, text, "end")

    def drawn(self, parts: Sequence[Markup], title: str, axis: str) -> Markup:
        """The chart; `title` is what a screen reader says, `axis` stands beneath."""
        named = self.words(self.x(0.5), self.height - 6, axis)
        box = f"0 0 {number(self.width)} {number(self.height)}"
        return tag("svg", *parts, named, viewBox=box, class_="chart", role="img", aria_label=title)


def reliability_chart(bins: Sequence[ReliabilityBin]) -> Markup:
    """The share of right labels over their probability; on the diagonal both are the same."""
    frame = _Frame(380, 340)
    quarters = [(place / 4, f"{place * 25} %") for place in range(5)]
    most = max(each.images for each in bins)
    parts = [*frame.axes(quarters, quarters), frame.line((0, 0), (1, 1), "diagonal")]
    for each in bins:
        title = (
            f"{each.images} images, mean probability {each.confidence:.2f}, "
            f"share of right labels {each.accuracy:.2f}"
        )
        height = frame.y(0) - frame.y(0.25 * each.images / most)
        width = frame.x(each.high) - frame.x(each.low) - 2
        low, high = share_interval(each.right, each.images)
        parts += [
            tag(
                "rect",
                tag("title", title),
                x=frame.x(each.low) + 1,
                y=frame.y(0) - height,
                width=width,
                height=height,
                class_="count",
            ),
            frame.line((each.confidence, low), (each.confidence, high), "whisker"),
            frame.dot(each.confidence, each.accuracy, title),
        ]
    summary = "Share of right labels over the probability that the model gave them"
    return frame.drawn(parts, summary, "probability of the label")


def error_chart(errors: Sequence[float]) -> Markup:
    """The relative coding error after each iteration."""
    frame = _Frame(460, 240)
    ticks = _ticks(errors)
    low, high = ticks[0], ticks[-1]
    count = max(1, len(errors) - 1)
    points = [(place / count, (error - low) / (high - low)) for place, error in enumerate(errors)]
    every = max(1, len(errors) // 10)
    x_ticks = [(points[i][0], str(i + 1)) for i in range(0, len(errors), every)]
    y_ticks = [((tick - low) / (high - low), f"{tick:.2f}") for tick in ticks]
    parts = [*frame.axes(x_ticks, y_ticks), frame.path(points, "curve")]
    parts += [
        frame.dot(x, y, f"iteration {place + 1}: {errors[place]:.4f}")
        for place, (x, y) in enumerate(points)
    ]
    summary = f"Relative coding error, from {errors[0]:.4f} to {errors[-1]:.4f}"
    return frame.drawn(parts, summary, "iteration")


def _ticks(values: Sequence[float]) -> list[float]:
    """Two to seven whole hundredths, evenly apart, around values."""
    low, high = math.floor(min(values) * 100), math.ceil(max(values) * 100)
    step = max(1, math.ceil((high - low) / 5))
    count = max(1, math.ceil((high - low) / step))
    return [(low + place * step) / 100 for place in range(count + 1)]


def occupancy_chart(counts: npt.NDArray[np.int64]) -> Markup:
    """How many descriptors each leaf gets, the fullest leaf first, on a logarithmic axis."""
    frame = _Frame(460, 240)
    ordered = np.sort(counts)[::-1]
    powers = max(1, math.ceil(math.log10(max(int(ordered[0]), 2))))
    places = np.unique(np.linspace(0, len(ordered) - 1, _MOST_POINTS).round().astype(np.int64))
    points = [
        (place / max(1, len(ordered) - 1), math.log10(max(int(ordered[place]), 1)) / powers)
        for place in places.tolist()
    ]
    y_ticks = [(power / powers, f"{10**power:,}") for power in range(powers + 1)]
    x_ticks = [(0.0, "1"), (0.5, str(len(ordered) // 2)), (1.0, str(len(ordered)))]
    mean = math.log10(max(float(ordered.mean()), 1.0)) / powers
    parts = [
        *frame.axes(x_ticks, y_ticks),
        frame.line((0, mean), (1, mean), "diagonal"),
        frame.path(points, "curve"),
    ]
    return frame.drawn(parts, "Descriptors in each leaf", "leaves, the fullest first")


def whisker(share: float, interval: Interval) -> Markup:
    """A share between 0 and 1 and its interval, for a row of a table."""
    width, height = _WHISKER
    middle, inner = height / 2, width - 8
    ends = [4 + inner * end for end in interval]
    parts = (
        tag("line", x1=4, y1=middle, x2=4 + inner, y2=middle, class_="grid"),
        tag("line", x1=ends[0], y1=middle, x2=ends[1], y2=middle, class_="whisker"),
        tag("circle", cx=4 + inner * share, cy=middle, r=3.5, class_="dot"),
    )
    box = f"0 0 {width} {height}"
    return tag("svg", *parts, viewBox=box, class_="bar", aria_hidden="true")


def share_bar(share: float) -> Markup:
    """A part of a whole, for a row of a table."""
    width, height = _WHISKER
    return tag(
        "svg",
        tag("rect", x=0, y=3, width=max(1.0, share * width), height=height - 6, class_="fill"),
        viewBox=f"0 0 {width} {height}",
        class_="bar",
        aria_hidden="true",
    )
