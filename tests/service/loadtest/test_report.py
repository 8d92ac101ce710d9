"""The report about a load, and the quantiles in it."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.loadtest.histogram import Latencies
from service.loadtest.load import Exchange, Load
from service.loadtest.report import LoadReport
from service.loadtest.server_timing import parse_server_timing

TIMING = b"queue;dur=%d, total;dur=%d"
LOAD = Load(
    (
        Exchange(0, 0.0, 1.0, 200, sent=10, received=5, server_timing=TIMING % (100, 900)),
        Exchange(1, 0.0, 2.0, 200, sent=10, received=5, server_timing=TIMING % (200, 1900)),
        Exchange(2, 0.0, 3.0, 200, sent=10, received=5, server_timing=TIMING % (300, 2900)),
        Exchange(3, 0.0, 4.0, 429, sent=10, received=7, server_timing=TIMING % (9999, 9999)),
        Exchange(4, 0.0, 5.0, 0, sent=10, reason="timed out"),
    ),
    cpu_seconds=0.25,
)


def times(count: int, *milliseconds: float) -> dict[str, float]:
    names = ("p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms")
    return {"count": count, **dict(zip(names, milliseconds, strict=True))}


def test_answers_are_counted_by_status_with_their_latencies() -> None:
    document = json.loads(json.dumps(LoadReport.of(LOAD, 2.0).to_json(), allow_nan=False))
    assert (document["requests"], document["seconds"], document["unanswered"]) == (5, 5, 1)
    assert document["answers"] == {
        "200": pytest.approx(times(3, 2000, 3000, 3000, 3000, 3000), rel=1e-3),
        "429": pytest.approx(times(1, 4000, 4000, 4000, 4000, 4000), rel=1e-3),
    }
    assert (document["answers_per_second"], document["successes_per_second"]) == (0.8, 0.6)
    assert (document["errors"], document["reasons"]) == (2, {"timed out": 1})
    assert (document["bytes_sent"], document["bytes_received"]) == (50, 22)
    assert (document["offered_per_second"], document["generator_core_share"]) == (2, 0.05)
    assert document["generator_bottleneck"] is None


def test_stages_are_those_of_answers_with_status_200() -> None:
    server = LoadReport.of(LOAD).to_json()["server"]
    assert list(server) == ["queue", "total"]
    assert server["queue"] == pytest.approx(times(3, 200, 300, 300, 300, 300), rel=1e-3)


def test_text_has_a_row_for_each_status_and_each_stage() -> None:
    total, rates, sent, errors, generator, *rows = LoadReport.of(LOAD, 2.0).text().splitlines()
    assert total == "5 requests in 5.0 s"
    assert rates == "a second: 2.0 offered, 0.8 answered, 0.6 of them with status 200"
    assert sent == "0.1 kB sent, 0.0 kB received"
    assert errors == "2 errors (40.0%): 1 status 429, 1 no answer (timed out)"
    assert generator.startswith("generator: 0.25 s of CPU, 5% of a core")
    names = [row[:12].strip() for row in rows if row]
    assert names == ["latency ms", "status 200", "status 429", "server ms", "queue", "total"]


def test_a_load_without_any_exchange_has_a_report() -> None:
    report = LoadReport.of(Load((), 0.0, unfinished=3))
    assert json.dumps(report.to_json(), allow_nan=False)
    assert "interrupted: 3 more were under way" in report.text()


@pytest.mark.parametrize(
    ("late", "cpu", "sentence"),
    [
        (0.0, 0.89, ""),
        (0.0, 0.91, "the generator was the bottleneck: it used 91% of its core"),
        (0.009, 0.1, ""),
        (0.02, 0.1, "the generator was late: 1 % of the requests were sent 20 ms or more after"),
    ],
)
def test_a_generator_that_set_the_pace_is_named(late: float, cpu: float, sentence: str) -> None:
    exchange = Exchange(0, 0.0, 1.0, 200, late=late)
    report = LoadReport.of(Load((exchange,), cpu), 1.0)
    assert report.bottleneck().startswith(sentence)
    assert bool(report.bottleneck()) == bool(sentence)
    assert report.bottleneck() in report.text()


@given(
    st.lists(st.floats(1e-6, 3599), min_size=1, max_size=300),
    st.sampled_from([0.0, 0.07, 0.5, 0.9, 0.99, 0.999, 1.0]),
)
def test_quantiles_are_those_of_sorted_times_to_three_digits(
    seconds: list[float], share: float
) -> None:
    exact = float(np.quantile(seconds, share, method="inverted_cdf"))
    found = Latencies(seconds).quantile(share)
    # Half a microsecond of rounding, then up to the end of a bucket.
    assert exact - 0.6e-6 <= found <= 1.001 * exact + 1.1e-6


@pytest.mark.parametrize("count", [1, 2, 99, 100, 101, 160, 1000, 1001])
def test_at_least_the_share_of_a_quantile_was_as_fast(count: int) -> None:
    """The library alone tells of 160 times the 158th as p99, which 1.25 % exceed."""
    seconds = [(place + 1) / 1e3 for place in range(count)]
    report = Latencies(seconds).quantiles()
    ranks = [-(-count * share // 1000) for share in (500, 900, 990, 999)]
    found = (report.p50_ms, report.p90_ms, report.p99_ms, report.p999_ms)
    assert found == pytest.approx(ranks, rel=1e-3)
    assert report.max_ms == count


def test_times_beyond_an_hour_count_as_an_hour() -> None:
    latencies = Latencies([-1.0, 1e6])
    assert len(latencies) == 2
    assert latencies.quantile(1.0) == 3600


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"queue;dur=0.5, total;dur=2", {"queue": 0.0005, "total": 0.002}),
        (b'cache;desc="a hit";dur=1.5,miss', {"cache": 0.0015}),
        (b"a;dur=., b;dur=1.2.3, c;dur=x, d;dur=4", {"d": 0.004}),
        (b"", {}),
    ],
    ids=["ours", "described", "malformed", "empty"],
)
def test_server_timing_is_read(value: bytes, seconds: dict[str, float]) -> None:
    assert parse_server_timing(value) == pytest.approx(seconds)
