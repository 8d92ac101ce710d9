"""Alerts and dashboard ask for metrics that a running service has, and so for nothing in vain."""

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from tests.support import pictures, promql
from tests.support.clients import web
from tests.support.metric_table import rows
from tests.support.processes import ROOT, Server
from tests.support.promql import SCRAPED, Selector

EXPRESSIONS = promql.alert_expressions() | promql.panel_expressions()
# Written by Prometheus itself.
BY_PROMETHEUS = {"up": set[str]()}


@pytest.fixture(scope="module")
def present(server: Server) -> dict[str, dict[str, set[str]]]:
    """Every series of the page after one request: its labels and their values."""
    web.post(f"{server.url}/v1/classify", content=pictures.png()).raise_for_status()
    found: dict[str, dict[str, set[str]]] = {name: {} for name in BY_PROMETHEUS}
    for family in parse(web.get(f"{server.url}/metrics").text):
        for sample in family.samples:
            labels = found.setdefault(sample.name, {})
            for label, text in sample.labels.items():
                labels.setdefault(label, set()).add(text)
    return found


def complaints(selector: Selector, present: dict[str, dict[str, set[str]]]) -> list[str]:
    """What an expression asks for that the service does not have."""
    if selector.metric not in present:
        return [f"no metric {selector.metric}"]
    labels = present[selector.metric]
    unknown = selector.labels.difference(labels, SCRAPED)
    missing = [f"{selector.metric} has no label {label}" for label in sorted(unknown)]
    for label in ("reason", "stage"):  # all of their values are there from the start
        if text := selector.matched.get(label):
            missing += [f"no {label} {value}" for value in set(text.split("|")) - labels[label]]
    return missing


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_an_expression_asks_for_what_a_running_service_has(
    name: str, present: dict[str, dict[str, set[str]]]
) -> None:
    found = promql.selectors(EXPRESSIONS[name])
    assert found
    assert [words for selector in found for words in complaints(selector, present)] == []


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("leafcode_queue_deep > 1", "no metric leafcode_queue_deep"),
        ("sum by (state) (leafcode_workers)", "leafcode_workers has no label state"),
        (
            'rate(leafcode_rejections_total{reason=~"deadline|late"}[1m])',
            "no reason late",
        ),
        ('leafcode_requests_total{path="/"}', "leafcode_requests_total has no label path"),
    ],
)
def test_a_mistake_would_be_found(
    expression: str, complaint: str, present: dict[str, dict[str, set[str]]]
) -> None:
    (selector,) = promql.selectors(expression)
    assert complaints(selector, present) == [complaint]


def test_what_is_not_promql_would_be_found() -> None:
    with pytest.raises(ValueError, match="invalid promql query"):
        promql.selectors("sum by instance (leafcode_workers)")


def test_routes_of_expressions_are_served(server: Server) -> None:
    paths = set(web.get(f"{server.url}/openapi.json").json()["paths"])
    asked = {
        route
        for expression in EXPRESSIONS.values()
        for selector in promql.selectors(expression)
        for route in selector.matched.get("route", "").split("|")
        if route
    }
    assert asked <= paths


def test_the_operators_page_lists_every_metric_in_its_own_words(server: Server) -> None:
    web.post(f"{server.url}/v1/classify", content=pictures.png()).raise_for_status()
    expected = rows(web.get(f"{server.url}/metrics").text)
    _, _, listed = (ROOT / "docker" / "README.md").read_text("utf-8").partition("## All metrics")
    found = [line for line in listed.splitlines() if line.startswith("| `")]
    assert found == expected
