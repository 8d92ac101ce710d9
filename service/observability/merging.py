"""The metrics of several processes as those of one.

Counts and durations add up. So do gauges of what each process has for itself; those of what
all of them have together are not added.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

__all__ = ["MergedPages", "counts_of", "from_json", "merge", "to_json"]

# Of the machine, of the model folder, or of the service; all others add up.
_NOT_ADDED: dict[str, Callable[[float, float], float]] = {
    "leafcode_accepting": min,
    "leafcode_build_info": max,
    "leafcode_memory_bytes": max,
    "leafcode_memory_limit_bytes": max,
    "leafcode_model_info": max,
    "leafcode_rejected_versions": max,
    "process_start_time_seconds": min,
}
_COUNTS = ("counter", "histogram")


def to_json(families: Iterable[Metric]) -> list[Any]:
    """Plain values for another process."""
    return [
        [
            *(family.name, family.type, family.documentation),
            [[item.name, item.labels, item.value] for item in family.samples],
        ]
        for family in families
    ]


def from_json(page: Iterable[Any]) -> list[Metric]:
    """The families that `to_json` wrote."""
    return [_family(*fields) for fields in page]


def _family(name: str, kind: str, text: str, samples: Iterable[Any]) -> Metric:
    family = Metric(name, text, kind)
    for sample in samples:
        family.add_sample(*sample)
    return family


def counts_of(page: Iterable[Any]) -> list[Any]:
    """The part of a page that must not be forgotten when its process ends.

    A sum that falls looks to Prometheus as if all of it had been counted again.
    """
    return [fields for fields in page if fields[1] in _COUNTS]


def merge(pages: Sequence[Sequence[Any]]) -> list[Any]:
    """One page for several, in the order in which families and samples first come."""
    families: dict[str, tuple[list[Any], dict[tuple[Any, ...], list[Any]]]] = {}
    for name, kind, text, samples in (fields for page in pages for fields in page):
        _, merged = families.setdefault(name, ([name, kind, text], {}))
        add = _NOT_ADDED.get(name, float.__add__)
        for sample, labels, value in samples:
            known = merged.setdefault((sample, *sorted(labels.items())), [sample, labels, None])
            known[2] = value if known[2] is None else add(float(known[2]), float(value))
    return [[*head, list(samples.values())] for head, samples in families.values()]


class MergedPages(Collector):
    """Several pages as one, for an encoder."""

    def __init__(self, pages: Sequence[Sequence[Any]]) -> None:
        self._page = merge(pages)

    def collect(self) -> Iterator[Metric]:
        """The merged families."""
        yield from from_json(self._page)
