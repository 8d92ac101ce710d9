"""The alerts' and the dashboard's expressions, and the metrics and labels that they name."""

import json
from dataclasses import dataclass
from typing import Any

import promql_parser
import yaml

from tests.support.processes import ROOT

RULES = ROOT / "docker" / "prometheus" / "rules.yml"
DASHBOARD = ROOT / "docker" / "grafana" / "dashboards" / "leafcode.json"
# What Grafana puts in their place.
VARIABLES = {"$__rate_interval": "1m", "$instance": ".*"}
# What Prometheus adds to everything that it scrapes.
SCRAPED = frozenset({"job", "instance"})


@dataclass(frozen=True)
class Selector:
    """One metric of an expression: what its labels must match, and how its series are grouped."""

    metric: str
    matched: dict[str, str]
    grouped: frozenset[str]

    @property
    def labels(self) -> set[str]:
        return set(self.matched) | self.grouped


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def alert_expressions() -> dict[str, str]:
    return {alert["alert"]: alert["expr"] for alert in alerts()}


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return found


def panel_expressions() -> dict[str, str]:
    """Every expression of the dashboard, by panel and letter, as Prometheus gets it."""
    found = dashboard()
    texts = {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in found["panels"]
        for target in panel["targets"]
    }
    texts |= {item["name"]: item["expr"] for item in found["annotations"]["list"]}
    for variable, value in VARIABLES.items():
        texts = {name: text.replace(variable, value) for name, text in texts.items()}
    return texts


def selectors(expression: str) -> list[Selector]:
    """Every metric that an expression names; raises `ValueError` if it is not PromQL."""
    found: list[Selector] = []
    groups: list[frozenset[str]] = []

    def enter(node: promql_parser.Expr) -> None:
        if isinstance(node, promql_parser.AggregateExpr):
            groups.append(frozenset(node.modifier.labels if node.modifier else ()))
        if isinstance(node, promql_parser.VectorSelector):
            found.append(_selector(node, frozenset().union(*groups)))

    def leave(node: promql_parser.Expr) -> None:
        if isinstance(node, promql_parser.AggregateExpr):
            groups.pop()

    promql_parser.walk(promql_parser.parse(expression), enter, leave)
    return found


def _selector(node: promql_parser.VectorSelector, grouped: frozenset[str]) -> Selector:
    assert node.name, f"a selector without the name of a metric: {node}"
    matched = {matcher.name: matcher.value for matcher in node.matchers.matchers}
    return Selector(node.name, matched, grouped)
