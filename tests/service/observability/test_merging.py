"""Metrics of several processes: their sum is what one process would have counted."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.http.problems import REASONS
from service.observability.merging import counts_of, merge
from service.observability.metrics import Metrics
from service.observability.request_record import RequestRecord
from service.pool.job import Timings
from tests.support.metrics_page import Samples, read

OF_PROCESS = "process_"
RECORDS = st.builds(
    RequestRecord,
    st.just("id"),
    status=st.sampled_from([200, 429, 504]),
    route=st.sampled_from(["/v1/classify", "/readyz"]),
    # Whole numbers, of which floating point has exact sums in any order.
    seconds=st.integers(0, 40).map(float),
    reason=st.sampled_from(["", "overloaded"]),
    jobs=st.lists(st.builds(Timings, st.just(1.0), st.just(2.0), st.just({"decode": 4.0}))),
)


def counted(records: list[RequestRecord]) -> Metrics:
    metrics = Metrics(REASONS)
    metrics.count(records)
    return metrics


def samples(page: bytes) -> Samples:
    return {key: it for key, it in read(page.decode()).items() if OF_PROCESS not in key[0]}


@given(st.lists(st.tuples(RECORDS, st.integers(0, 2))))
def test_merged_pages_are_the_page_of_all_events(events: list[tuple[RequestRecord, int]]) -> None:
    first, *others = (
        counted([record for record, owner in events if owner == process]) for process in range(3)
    )
    # As they come from another process.
    told = json.loads(json.dumps([other.numbers() for other in others]))
    whole = counted([record for record, _ in events])
    assert samples(first.page("", told)[0]) == samples(whole.page("")[0])


def gauge(name: str, value: float, **labels: str) -> list[object]:
    return [name, "gauge", "Text.", [[name, labels, value]]]


@pytest.mark.parametrize(
    ("name", "merged"),
    [
        ("leafcode_queue_depth", 5.0),
        ("leafcode_queue_limit", 5.0),
        ("leafcode_connections", 5.0),
        ("leafcode_accepting", 2.0),
        ("leafcode_build_info", 3.0),
        ("leafcode_model_info", 3.0),
        ("leafcode_memory_limit_bytes", 3.0),
        ("process_start_time_seconds", 2.0),
    ],
)
def test_gauges_of_what_all_share_are_not_added(name: str, merged: float) -> None:
    assert merge([[gauge(name, 2.0)], [gauge(name, 3.0)]]) == [gauge(name, merged)]


def test_samples_with_other_labels_stay_apart() -> None:
    pages = [[gauge("leafcode_worker_resident_bytes", 2.0, worker=number)] for number in "01"]
    ((*_, found),) = merge(pages)
    assert [labels["worker"] for _, labels, _ in found] == ["0", "1"]


def test_counts_outlive_their_process_and_gauges_do_not() -> None:
    page = [gauge("leafcode_workers", 2.0), *counted([RequestRecord("id", status=200)]).numbers()]
    kept = {name for name, *_ in counts_of(page)}
    assert {"leafcode_requests", "leafcode_request_seconds", "leafcode_rejections"} <= kept
    assert "leafcode_workers" not in kept
