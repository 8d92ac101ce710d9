"""How answers are judged while workers are killed or versions are published."""

import json
from pathlib import Path

import pytest

from service.loadtest.answers import AnswerCounts, add_counts, count_answers, default_bundle
from service.loadtest.errors import LoadTestError
from service.loadtest.load import Exchange, Load
from service.loadtest.processes import ServiceProcess
from service.loadtest.reloads import ReloadResult
from service.loadtest.soak import KillResult


def exchange(number: int, status: int, document: object) -> Exchange:
    return Exchange(number, 0.0, 1.0, status, json.dumps(document).encode())


def labels(*names: str) -> dict[str, object]:
    return {"predictions": [{"label": name, "probability": 0.5} for name in names]}


def test_a_job_whose_worker_was_killed_twice_is_no_fault() -> None:
    lost_worker = {"type": "urn:leafcode:problem:worker-lost"}
    exchanges = (
        exchange(0, 200, labels("apple", "boat")),
        exchange(1, 200, labels("boat", "apple")),
        exchange(2, 503, lost_worker),
    )
    answers = count_answers(Load(exchanges, 0.0), [["apple", "boat"], ["boat", "apple"]])
    assert answers == AnswerCounts(right=2, problems={"503 worker-lost": 1})
    assert answers.requests == 3
    result = KillResult(answers, kills=3, seconds=1.0)
    assert result.faults() == []
    assert "workers killed      3 in 1 s" in result.text()


def test_everything_else_is_a_fault() -> None:
    exchanges = (
        exchange(0, 200, labels("boat")),
        exchange(1, 503, {"type": "urn:leafcode:problem:not-ready"}),
        Exchange(2, 0.0, 1.0, 0, b""),
        exchange(3, 504, []),
        exchange(4, 500, {"type": "about:blank"}),
    )
    answers = count_answers(Load(exchanges, 0.0), [["apple"]])
    assert answers == AnswerCounts(0, 1, 1, {"500": 1, "503 not-ready": 1, "504": 1})
    assert answers.faults() == [
        "1 answers had wrong labels",
        "1 requests got no answer",
        "1 answers were 500",
        "1 answers were 503 not-ready",
        "1 answers were 504",
        "no request was answered with labels",
    ]
    assert "503 not-ready       1" in answers.lines()


def test_a_lost_worker_is_a_fault_where_none_was_killed() -> None:
    result = ReloadResult(1, 0, AnswerCounts(right=1, problems={"503 worker-lost": 2}), 1.0)
    assert result.faults() == ["2 answers were 503 worker-lost"]
    assert "1 loaded, 0 rejected in 1 s" in result.text()


def test_counts_add_up() -> None:
    parts = [AnswerCounts(1, 2, 3, {"500": 1}), AnswerCounts(1, 1, 1, {"500": 1, "504": 2})]
    assert add_counts(parts) == AnswerCounts(2, 3, 4, {"500": 2, "504": 2})


def test_the_default_bundle_is_the_first_by_name_in_its_highest_version(tmp_path: Path) -> None:
    for folder in ("b/1", "a/2", "a/10", "a/.11-staging", "a/latest", ".c/1", "a foreign one/1"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "manifest.json").touch()
    (tmp_path / "a" / "12").mkdir()  # as the service, which passes it over
    assert default_bundle(tmp_path) == tmp_path / "a" / "10"


def test_a_service_that_does_not_start_says_why(tmp_path: Path) -> None:
    with (
        pytest.raises(LoadTestError, match="the service did not start: "),
        ServiceProcess(tmp_path),
    ):
        pass
