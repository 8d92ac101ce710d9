"""The report about a load."""

import json

from service.loadtest.generator import Exchange, Load
from service.loadtest.report import LoadReport

LOAD = Load(
    tuple(
        Exchange(number, 0.0, ended, status, b"")
        for number, (ended, status) in enumerate(
            [(1.0, 200), (2.0, 200), (3.0, 200), (4.0, 429), (5.0, 0)]
        )
    ),
    cpu_seconds=0.25,
)


def test_answers_are_counted_by_status_with_their_latencies() -> None:
    document = json.loads(json.dumps(LoadReport.of(LOAD).to_json()))
    assert document["requests"] == 5
    assert document["seconds"] == 5
    assert document["unanswered"] == 1
    assert document["answers"] == {
        "200": {"count": 3, "p50_ms": 2000, "p90_ms": 3000, "p99_ms": 3000, "max_ms": 3000},
        "429": {"count": 1, "p50_ms": 4000, "p90_ms": 4000, "p99_ms": 4000, "max_ms": 4000},
    }
    assert document["answers_per_second"] == 0.8
    assert document["successes_per_second"] == 0.6
    assert document["generator_cpu_seconds"] == 0.25


def test_text_has_a_row_for_each_status_and_one_without() -> None:
    header, *rows, totals = LoadReport.of(LOAD).text().splitlines()
    assert header.split()[:2] == ["status", "count"]
    assert [row.split()[:2] for row in rows] == [["200", "3"], ["429", "1"], ["none", "1"]]
    assert totals.startswith("5 requests in 5.0 s, 0.8 answers a second")
