"""The samples of a `/metrics` page, by name and labels."""

from prometheus_client.parser import text_string_to_metric_families as parse

from tests.support.clients import web

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def read(page: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse(page)
        for sample in family.samples
    }


def value(samples: Samples, name: str, /, **labels: str) -> float:
    return samples.get((f"leafcode_{name}", tuple(sorted(labels.items()))), 0.0)


def metrics(url: str) -> Samples:
    return read(web.get(f"{url}/metrics").text)
