"""The rows of docker/README.md's table of metrics, as a page of `/metrics` has them."""

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families as parse

# What comes without a sample until there is something to count.
_LABELS = {"leafcode_job_rejections": ["reason"]}
_OF_HISTOGRAMS = {"le"}


def rows(page: str) -> list[str]:
    return sorted(map(_row, parse(page)))


def _row(family: Metric) -> str:
    name = f"{family.name}_total" if family.type == "counter" else family.name
    labels = _LABELS.get(family.name, [])
    for sample in family.samples:
        labels = sorted(set(sample.labels) - _OF_HISTOGRAMS)
    told = ", ".join(f"`{label}`" for label in labels)
    return f"| `{name}` | {family.type} | {told} | {family.documentation} |"
