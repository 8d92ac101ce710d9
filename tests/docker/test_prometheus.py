"""Alert rules, scrape configuration and dashboard, as far as they can be judged without Prometheus.

`make image-test` has promtool and a real Prometheus judge them.
"""

import re

import pytest
import yaml

from tests.support import promql
from tests.support.processes import ROOT

PROMETHEUS = ROOT / "docker" / "prometheus"
GRAFANA = ROOT / "docker" / "grafana"
PANEL_KINDS = {"stat", "timeseries"}


@pytest.mark.parametrize("alert", promql.alerts(), ids=lambda alert: alert["alert"])
def test_an_alert_says_how_bad_it_is_and_what_has_happened(alert: dict[str, object]) -> None:
    assert set(alert) <= {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch("Leafcode[A-Z][A-Za-z]+", str(alert["alert"]))
    assert alert["labels"] in ({"severity": "critical"}, {"severity": "warning"})
    assert isinstance(alert["annotations"], dict)
    assert set(alert["annotations"]) == {"summary", "description"}
    assert re.fullmatch(r"\d+m", str(alert.get("for", "0m")))


def test_every_alert_is_tried_by_promtool() -> None:
    tests = (PROMETHEUS / "rules-test.yml").read_text()
    assert [alert["alert"] for alert in promql.alerts() if alert["alert"] not in tests] == []


def test_prometheus_reads_the_rules_and_scrapes_under_the_name_that_they_ask_for() -> None:
    configuration = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    assert configuration["rule_files"] == [promql.RULES.name]
    (scrape,) = configuration["scrape_configs"]
    asked = {
        selector.matched["job"]
        for expression in (promql.alert_expressions() | promql.panel_expressions()).values()
        for selector in promql.selectors(expression)
        if "job" in selector.matched
    }
    assert asked == {scrape["job_name"]} == {"leafcode"}


def test_panels_have_their_own_place_and_number() -> None:
    panels = promql.dashboard()["panels"]
    assert {panel["type"] for panel in panels} == PANEL_KINDS
    assert len({panel["id"] for panel in panels}) == len(panels)
    fields = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(fields)) == len(fields)
    assert max(x for x, _ in fields) == 23  # Grafana's width


@pytest.mark.parametrize(
    "words", ["Requests", "by stage", "Queue", "Rejections by reason", "Workers", "Memory"]
)
def test_the_dashboard_shows(words: str) -> None:
    assert any(words in panel["title"] for panel in promql.dashboard()["panels"])


def test_the_dashboard_asks_the_data_source_that_is_provisioned() -> None:
    (source,) = yaml.safe_load(
        (GRAFANA / "provisioning" / "datasources" / "prometheus.yaml").read_text()
    )["datasources"]
    found = promql.dashboard()
    asking = [*found["panels"], *found["annotations"]["list"], *found["templating"]["list"]]
    assert {(item["datasource"]["type"], item["datasource"]["uid"]) for item in asking} == {
        (source["type"], source["uid"])
    }
