"""The command `chaos`: one real fault, and what is said about others."""

import json
import os
from pathlib import Path

import pytest

from service.cli import main
from service.loadtest.answers import AnswerCounts
from service.loadtest.chaos.catalogue import FAULTS
from service.loadtest.chaos.cli import _row, _summary
from service.loadtest.chaos.experiment import FaultResult
from tests.support import bundles


def test_a_service_that_is_terminated_under_load_answers_what_it_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundles.write_model(tmp_path)
    options = ["--models", str(tmp_path), "--measure-seconds", "0.1", "--json"]
    assert main(["chaos", "sigterm", *options]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["answers"]["right"] > 8
    assert set(result["answers"]["problems"]) <= {"503 not-ready"}
    assert (result["name"], result["after"], result["faults"]) == ("sigterm", None, [])


def test_a_fault_that_cannot_be_injected_says_so_and_does_not_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bundles.write_model(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 1)
    assert main(["chaos", "log-full", "--models", str(tmp_path)]) == 0
    _, row, summary = capsys.readouterr().out.splitlines()
    assert row.endswith("not injected: mounting a small file system needs root")
    assert summary.startswith("0 of 0 faults passed, 1 could not be injected here")


def test_an_unknown_fault_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chaos", "earthquake"]) == 1
    assert "no fault is called 'earthquake', expected one of workers-killed, " in (
        capsys.readouterr().err
    )


def test_every_fault_has_a_sentence() -> None:
    assert len(FAULTS) == 14
    assert all(fault.sentence().endswith(".") for fault in FAULTS.values())


def test_a_row_has_the_allowed_errors_or_what_was_wrong() -> None:
    answers = AnswerCounts(right=8, problems={"504 deadline": 2})
    good = FaultResult("a", answers, 100.0, 99.0, 3.0)
    bad = FaultResult("b", answers, 100.0, 50.0, 3.0, ("too slow", "one process left"))
    assert " ".join(_row(good).split()) == "a 10 8 2 100 99 passed (2 × 504 deadline)"
    assert _row(bad).endswith("too slow; one process left")
    assert _summary([good, bad]) == (
        "1 of 2 faults passed, 0 could not be injected here; "
        "20 requests while they lasted, 6 s in all"
    )
