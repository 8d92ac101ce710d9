"""The commands `loadtest`, `soak` and `flood` against real services."""

import io
import json
from pathlib import Path

import pytest

from service.cli import main
from service.loadtest.flood import FloodResult
from service.loadtest.soak import AnswerCounts
from tests.support import bundles, pictures
from tests.support.processes import Server
from tests.support.scripted_server import OK, listening


def test_loadtest_reports_for_people(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["loadtest", server.url, "--requests", "6", "--clients", "2"]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[1].split()[:2] == ["200", "6"]
    assert "6 requests in " in printed


def test_loadtest_sends_images_of_a_folder_and_a_list_at_a_rate(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one.png").write_bytes(pictures.png())
    (tmp_path / "two.JPG").write_bytes(b"no image")
    (tmp_path / "notes.txt").write_text(f"{tmp_path / 'one.png'}\n")
    plan = ["--rate", "200", "--requests", "4", "--json"]
    assert main(["loadtest", server.url, "--images", str(tmp_path), *plan]) == 0
    answers = json.loads(capsys.readouterr().out)["answers"]
    assert {status: item["count"] for status, item in answers.items()} == {"200": 2, "415": 2}
    assert main(["loadtest", server.url, "--image-list", str(tmp_path / "notes.txt"), *plan]) == 0
    assert set(json.loads(capsys.readouterr().out)["answers"]) == {"200"}


def test_loadtest_takes_plans_from_a_program(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = '{"clients": 2, "requests": 3}\n{"rate": 100, "requests": 2, "images": [1]}\n'
    monkeypatch.setattr("sys.stdin", io.StringIO(plans))
    assert main(["loadtest", server.url, "--batch"]) == 0
    reports = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [report["answers"]["200"]["count"] for report in reports] == [3, 2]


def test_loadtest_sends_the_number_of_labels_and_the_timeout(
    capsys: pytest.CaptureFixture[str],
) -> None:
    heads: list[bytes] = []

    def respond(head: bytes, _: bytes) -> list[bytes]:
        heads.append(head)
        return [OK]

    with listening(respond) as (host, port):
        command = ["loadtest", f"http://{host}:{port}", "--top-k", "3", "--timeout-ms", "700"]
        assert main([*command, "--requests", "1"]) == 0
    assert heads[0].startswith(b"POST /v1/classify?top_k=3 HTTP/1.1\r\n")
    assert b"\r\nX-Timeout-Ms: 700\r\n" in heads[0]
    assert "1 requests" in capsys.readouterr().out


def test_loadtest_fails_if_a_request_got_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    with listening(lambda *_: []) as (host, port):
        assert main(["loadtest", f"http://{host}:{port}", "--requests", "2"]) == 1
    assert "none        2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["ftp://host"], 2, "'ftp://host' is not a URL of a service"),
        (["http://host", "--poisson"], 2, "Poisson arrivals need a rate"),
        (["http://host", "--images", "/nowhere"], 1, "/nowhere cannot be read: No such file"),
        (["http://host", "--image-list", "/nowhere"], 1, "/nowhere cannot be read"),
        (["http://host", "--image-list", "/dev/null"], 1, "/dev/null is empty, expected one image"),
    ],
)
def test_loadtest_says_what_is_wrong_with_its_arguments(
    arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["loadtest", *arguments]) == code
    assert message in capsys.readouterr().err


def test_loadtest_says_that_nobody_listens(capsys: pytest.CaptureFixture[str]) -> None:
    with listening(lambda *_: [OK]) as (host, port):
        pass
    assert main(["loadtest", f"http://{host}:{port}"]) == 1
    printed = capsys.readouterr().err
    assert printed == f"leafcode: http://{host}:{port} cannot be reached: Connection refused\n"


def test_loadtest_needs_an_image(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["loadtest", "http://host", "--images", str(tmp_path)]) == 1
    assert f"no images in {tmp_path}" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--requests=0", "--seconds=nan", "--rate=-1", "--clients=x"])
def test_numbers_are_above_zero(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["loadtest", "http://host", flag])
    assert "above 0" in capsys.readouterr().err


def test_soak_kills_workers_and_publishes_versions_and_every_request_is_answered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundles.write_model(tmp_path)
    kills = ["--requests", "200", "--kill-every-ms", "200"]
    reloads = ["--reloads", "5", "--bad", "2"]
    assert main(["soak", "--models", str(tmp_path), *kills, *reloads, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    answers = document["kills"]["answers"]
    assert answers["right"] + answers["worker_lost"] == 200
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
    result = FloodResult(AnswerCounts(right=1, other={429: 2}), 1.0, 10, 30, 15, 1.0)
    assert result.faults() == [
        "2 answers had status 429",
        "memory grew by 20 bytes, expected at most 15",
    ]
