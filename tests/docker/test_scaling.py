"""docker/scaling.py: the rules of the autoscaler, queues, and the page that has its tables."""

import importlib.util
import re
import subprocess
import sys
from typing import Any

import pytest

from service.settings import Settings
from tests.docker.test_kubernetes import CONTAINER, MANIFESTS
from tests.support.processes import ROOT

SCRIPT = ROOT / "docker" / "scaling.py"
PAGE = (ROOT / "docker" / "scaling.md").read_text("utf-8")


def load() -> Any:
    spec = importlib.util.spec_from_file_location("scaling", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["scaling"] = module  # where its data classes look for themselves
    spec.loader.exec_module(module)
    return module


scaling = load()


def test_its_rules_are_those_of_the_manifests() -> None:
    spec = MANIFESTS["autoscaler"]["spec"]
    (metric,) = spec["metrics"]
    rules, pod = scaling.Autoscaler(), scaling.Pod()
    assert (rules.least, rules.most) == (spec["minReplicas"], spec["maxReplicas"])
    assert 100 * rules.target == metric["resource"]["target"]["averageUtilization"]
    behavior = spec["behavior"]
    assert rules.down_seconds == behavior["scaleDown"]["stabilizationWindowSeconds"]
    assert behavior["scaleUp"]["stabilizationWindowSeconds"] == 0
    assert pod.cores == int(CONTAINER["resources"]["limits"]["cpu"])
    assert pod.queue == Settings.model_fields["queue_size"].default


@pytest.mark.parametrize(
    ("pods", "utilization", "wanted"),
    [
        (4, 0.7, 4),
        (4, 0.76, 4),  # within the tolerance
        (4, 0.8, 5),
        (4, 0.3, 2),
        (4, 0.1, 2),  # the least
        (9, 1.0, 10),  # the most
        (2, 10.0, 6),  # four at a time
    ],
)
def test_pods_are_wanted_in_proportion_to_the_load(
    pods: int, utilization: float, wanted: int
) -> None:
    assert scaling.Autoscaler().wanted(pods, utilization) == wanted


def test_waiting_follows_erlang() -> None:
    # One server: the share that waits is its load, and those wait 1 / (rate - arrivals) on average.
    one = scaling.Pod(cores=1, service_ms=10.0)
    assert scaling.wait_over(0.0, 50.0, one) == pytest.approx(0.5)
    assert scaling.wait_over(0.02, 50.0, one) == pytest.approx(0.5 * 2.718281828**-1)
    # Two servers at half load: the textbook's third.
    two = scaling.Pod(cores=2, service_ms=10.0)
    assert scaling.wait_over(0.0, 100.0, two) == pytest.approx(1 / 3)
    assert scaling.wait_over(1.0, 200.0, two) == 1.0


def fleet_after(rates: list[float], **rules: Any) -> Any:
    fleet = scaling._Fleet(scaling.Autoscaler(**rules), scaling.Pod())
    return [fleet.step(round(rate)) for rate in rates]


def test_pods_follow_a_step_up_at_once_and_a_step_down_after_the_time_to_settle() -> None:
    seconds = fleet_after([1_000.0] * 600 + [100.0] * 600)
    high = seconds[599].ready
    assert high == 5  # 1000 a second of 294 each, at 70 %
    assert seconds[60].ready >= high  # more, as long as there is a backlog
    assert seconds[600 + 280].ready == high
    assert seconds[-1].ready == 2


def test_no_request_is_forgotten_where_there_are_too_many() -> None:
    seconds = fleet_after([3_000.0] * 120, most=2)
    pod = scaling.Pod()
    served = 120 * 2 * pod.rate
    arrived = sum(item.arrived for item in seconds)
    rejected = sum(item.rejected for item in seconds)
    assert arrived == pytest.approx(served + rejected + seconds[-1].backlog, rel=1e-3)
    assert seconds[-1].backlog == 2 * pod.queue


def test_the_page_has_the_table_of_costs() -> None:
    command = [sys.executable, str(SCRIPT), "cost"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert printed in PAGE


def test_the_page_has_every_curve_and_the_first_as_it_comes_out() -> None:
    rows = re.findall(r"^\| ([^|]+) \| [\d.]+ M \|", PAGE, re.MULTILINE)
    assert rows == list(scaling.CURVES)
    _, _, first, *_ = (next(table) for table in [scaling.autoscaler_table()] for _ in range(3))
    assert first in PAGE
