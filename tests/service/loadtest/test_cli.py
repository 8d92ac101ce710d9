"""The commands `soak` and `flood` against real services."""

import json
from pathlib import Path

import pytest

from service.cli import main
from service.loadtest.answers import AnswerCounts
from service.loadtest.flood import FloodResult
from tests.support import bundles


def test_soak_kills_workers_and_publishes_versions_and_every_request_is_answered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundles.write_model(tmp_path)
    kills = ["--requests", "200", "--kill-every-ms", "200"]
    reloads, long = ["--reloads", "5", "--bad", "2"], ["--duration", "0"]
    assert main(["soak", "--models", str(tmp_path), *kills, *reloads, *long, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    answers = document["kills"]["answers"]
    assert answers["right"] + answers["problems"].get("503 worker-lost", 0) == 200
    assert document["kills"]["kills"] > 0
    assert (document["reloads"]["loaded"], document["reloads"]["rejected"]) == (3, 2)
    assert document["reloads"]["answers"]["right"] >= 200


def test_soak_without_a_model_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["soak", "--models", str(tmp_path / "nowhere")]) == 1
    assert "has no model, expected <name>/<version>/ below it" in capsys.readouterr().err


def test_flood_leaves_good_requests_answered_and_memory_bounded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundles.write_model(tmp_path)
    bad = ["--connections", "200", "--stalled", "20", "--unread", "5", "--body-bytes", "200000"]
    limits = ["--max-connections", "64", "--transfer-bytes", "1000000", "--requests", "40"]
    assert main(["flood", "--models", str(tmp_path), *bad, *limits, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["answers"]["right"] == 80
    assert 0 < document["resident_before"] <= document["resident_peak"]
    assert document["resident_peak"] - document["resident_before"] <= document["allowance"]


def test_flood_says_what_did_not_pass() -> None:
    result = FloodResult(
        AnswerCounts(right=1, problems={"429 overloaded": 2}), 1.0, 10, 30, 15, 1.0
    )
    assert result.faults() == [
        "2 answers were 429 overloaded",
        "memory grew by 20 bytes, expected at most 15",
    ]
