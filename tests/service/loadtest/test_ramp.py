"""The search for the knee, against servers that exist on paper: queues whose times are computed."""

import json
from collections.abc import Callable

import pytest

from service.loadtest.generator import even_times, poisson_times
from service.loadtest.load import Exchange, Load
from service.loadtest.ramp import RampLimits, RampReport, RampStep, find_knee
from service.loadtest.report import LoadReport

SECONDS = 10.0


def queue(
    times: list[float], workers: int, service: float, longest_queue: int | None = None
) -> Load:
    """What becomes of arrivals at `times`; each takes one of the workers for `service` seconds."""
    free = [0.0] * workers
    exchanges = []
    for number, due in enumerate(times):
        first = min(range(workers), key=lambda worker: free[worker])
        wait = max(0.0, free[first] - due)
        if longest_queue is not None and wait > longest_queue * service / workers:
            exchanges.append(Exchange(number, due, due, 429))
            continue
        free[first] = due + wait + service
        exchanges.append(Exchange(number, due, free[first], 200))
    return Load(tuple(exchanges), cpu_seconds=0.0)


def ramp(
    load_of: Callable[[float], Load], alone_ms: float, limits: RampLimits | None = None
) -> RampReport:
    steps: list[RampStep] = []

    def measure(rate: float) -> LoadReport:
        return LoadReport.of(load_of(rate), rate)

    find_knee(alone_ms, measure, limits or RampLimits(), steps.append)
    return RampReport.of(alone_ms, steps)


def even(rate: float) -> list[float]:
    return even_times(rate, max(1, round(rate * SECONDS)))


@pytest.mark.parametrize(
    ("workers", "service"), [(1, 0.1), (2, 0.005), (3, 0.0317), (8, 0.02)], ids=str
)
def test_the_knee_of_even_arrivals_is_the_capacity(workers: int, service: float) -> None:
    report = ramp(lambda rate: queue(even(rate), workers, service), 1e3 * service)
    capacity = workers / service
    assert report.knee is not None
    assert report.too_high is not None
    # Ten seconds of a little too much make a queue that is not yet long.
    assert 0.95 * capacity <= report.knee.rate <= 1.05 * capacity
    assert 1 < report.too_high.rate / report.knee.rate <= 1.05
    assert len(report.steps) < 20
    assert f"knee: {report.knee.rate:.1f} requests a second" in report.text()


def test_the_knee_of_poisson_arrivals_lies_lower() -> None:
    def load(rate: float) -> Load:
        return queue(poisson_times(rate, round(rate * SECONDS), seed=1), 2, 0.005)

    report = ramp(load, 5.0)
    assert report.knee is not None
    assert 0.75 * 400 < report.knee.rate < 0.95 * 400


def test_a_server_that_rejects_has_its_knee_where_it_begins_to() -> None:
    report = ramp(lambda rate: queue(even(rate), 2, 0.01, longest_queue=2), 10.0)
    assert report.knee is not None
    assert report.knee.rate == pytest.approx(200, rel=0.05)
    assert report.too_high is not None
    assert "of the requests failed, more than 1.0%" in report.too_high.fault


def test_a_limit_on_p99_decides_instead_of_the_slowdown() -> None:
    limits = RampLimits(max_p99_ms=1000)
    report = ramp(lambda rate: queue(even(rate), 1, 0.01), 10.0, limits)
    # By the end of ten seconds at this rate the queue is a second long.
    assert report.knee is not None
    assert report.knee.rate == pytest.approx(100 * 11 / 10, rel=0.05)
    assert report.too_high is not None
    assert report.too_high.fault.endswith(" ms, more than 1000")


def test_a_ramp_ends_at_the_highest_rate_that_is_allowed() -> None:
    limits = RampLimits(max_rate=130)
    report = ramp(lambda rate: queue(even(rate), 2, 0.01), 10.0, limits)
    assert [item.rate for item in report.steps] == [25, 50, 100, 130]
    assert report.text().endswith("knee: 130.0 requests a second or more")


def test_a_server_slower_than_it_looked_is_searched_below_the_first_rate() -> None:
    report = ramp(lambda rate: queue(even(rate), 1, 0.1), 10.0, RampLimits(max_p99_ms=500))
    assert report.knee is not None
    assert report.knee.rate == pytest.approx(10, rel=0.1)


def test_a_server_that_only_fails_has_no_knee_and_the_search_ends() -> None:
    def broken(rate: float) -> Load:
        return Load(tuple(Exchange(0, 0.0, 1.0, 500) for _ in even(rate)), 0.0)

    report = ramp(broken, 10.0)
    assert report.knee is None
    assert len(report.steps) < 10
    assert "100.0% of the requests failed" in report.text()
    assert json.loads(json.dumps(report.to_json()))["knee_per_second"] is None


def test_a_bad_moment_below_a_good_rate_moves_the_knee_below_it() -> None:
    good = queue(even(100), 2, 0.01)
    bad = queue(even(300), 2, 0.01)
    steps = [
        RampStep(rate, LoadReport.of(load, rate), fault)
        for rate, load, fault in ((100.0, good, ""), (50.0, bad, "slow"), (25.0, good, ""))
    ]
    knee = RampReport.of(10.0, steps).knee
    assert knee is not None
    assert knee.rate == 25


def test_a_generator_that_was_late_is_named_beside_the_knee() -> None:
    def load(rate: float) -> Load:
        found = queue(even(rate), 1, 0.01)
        late = 0.05 if rate > 60 else 0.0
        return Load(tuple(item._replace(late=late) for item in found.exchanges), 0.0)

    text = ramp(load, 10.0).text()
    assert "the knee may lie higher, because the generator was late" in text


def test_an_interrupted_ramp_without_a_step_has_a_report() -> None:
    report = RampReport.of(10.0, [])
    assert report.knee is None
    assert report.text()
