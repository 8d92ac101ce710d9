"""The command `loadtest` against a real service, and against servers whose answers tests write."""

import io
import json
import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from service.cli import main
from tests.support import pictures
from tests.support.processes import Server
from tests.support.scripted_server import OK, REJECTED, listening


def test_loadtest_reports_for_people(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["loadtest", server.url, "--requests", "6", "--clients", "2"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("6 requests in ")
    (row,) = [line for line in printed.splitlines() if line.startswith("status 200")]
    assert row.split()[-1] == "6"
    stages = [line.split()[0] for line in printed.partition("server ms")[2].splitlines()[1:]]
    assert stages[:3] == ["queue", "decode", "sift"]
    assert stages[-1] == "total"


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
    heads: list[bytes] = []

    def respond(head: bytes, _: bytes) -> list[bytes]:
        heads.append(head)
        return [] if len(heads) == 3 else [OK]

    with listening(respond) as (host, port):
        command = ["loadtest", f"http://{host}:{port}", "--clients", "1", "--requests", "4"]
        assert main(command) == 1
    printed = capsys.readouterr()
    assert "1 errors (25.0%): 1 no answer (connection closed)" in printed.out
    assert printed.err == "leafcode: 1 requests got no answer\n"


@pytest.mark.parametrize(
    ("limits", "code", "sentence"),
    [
        ([], 0, ""),
        (["--max-errors", "50%"], 0, ""),
        (["--max-errors", "0.3"], 1, "4 of 8 requests failed, expected at most 0.3 of them"),
        (["--max-errors", "0%"], 1, "4 of 8 requests failed, expected at most 0 of them"),
        (["--max-p99", "60000"], 0, ""),
        (["--max-p99", "0.001"], 1, "expected at most 0.001 ms"),
    ],
)
def test_limits_decide_the_exit_code(
    limits: list[str], code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = iter([OK, *[OK, REJECTED] * 4])
    with listening(lambda *_: [next(answers)]) as (host, port):
        command = ["loadtest", f"http://{host}:{port}", "--clients", "1", "--requests", "8"]
        assert main([*command, *limits]) == code
    printed = capsys.readouterr()
    assert "4 errors (50.0%): 4 status 429" in printed.out
    assert sentence in printed.err


def test_ctrl_c_reports_what_was_measured_so_far(capsys: pytest.CaptureFixture[str]) -> None:
    heads: list[bytes] = []
    over = threading.Event()

    def respond(head: bytes, _: bytes) -> list[bytes]:
        heads.append(head)
        if len(heads) == 6:  # the first was the check of the service
            os.kill(os.getpid(), signal.SIGINT)
            over.wait()
        return [OK]

    with listening(respond) as (host, port):
        command = ["loadtest", f"http://{host}:{port}", "--clients", "1", "--duration", "3600"]
        code = main([*command, "--json"])
        over.set()
    document = json.loads(capsys.readouterr().out)
    assert code == 130
    assert (document["requests"], document["errors"], document["unfinished"]) == (4, 0, 1)


def test_ctrl_c_before_any_answer_still_reports(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[bytes] = []
    over = threading.Event()

    def respond(head: bytes, _: bytes) -> list[bytes]:
        seen.append(head)
        if len(seen) == 2:
            os.kill(os.getpid(), signal.SIGINT)
            over.wait()
        return [OK]

    with listening(respond) as (host, port):
        code = main(["loadtest", f"http://{host}:{port}", "--rate", "1", "--duration", "3600"])
        over.set()
    assert code == 130
    printed = capsys.readouterr().out
    assert printed.startswith("0 requests in 0.0 s")
    assert "interrupted: 1 more were under way" in printed


def test_ctrl_c_ends_a_ramp_with_the_rates_that_are_known(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen: list[bytes] = []
    over = threading.Event()

    def respond(head: bytes, _: bytes) -> list[bytes]:
        seen.append(head)
        # One to check the service, thirty of a client alone, two at the first rate.
        if len(seen) == 34:
            os.kill(os.getpid(), signal.SIGINT)
            over.wait()
        return [OK]

    with listening(respond) as (host, port):
        flags = ["--ramp", "--requests", "2", "--max-p99", "60000"]
        code = main(["loadtest", f"http://{host}:{port}", *flags])
        over.set()
    assert code == 130
    printed = capsys.readouterr()
    assert printed.out.count("<- knee") == 1
    assert printed.err.endswith("leafcode: interrupted before the knee was known\n")


def test_json_goes_to_a_file_beside_the_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "report.json"
    with listening(lambda *_: [OK]) as (host, port):
        url = f"http://{host}:{port}"
        assert main(["loadtest", url, "--requests", "3", "--json", str(file)]) == 0
        assert main(["loadtest", url, "--requests", "3", "--json", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert printed.out.startswith("3 requests in ")
    assert f"{tmp_path} cannot be written: Is a directory" in printed.err
    document = json.loads(file.read_text())
    assert (document["url"], document["plan"]["requests"]) == (url, 3)
    assert document["requests"] == document["answers"]["200"]["count"] == 3
    assert document["bytes_received"] == 3 * len(OK)


def test_a_ramp_of_a_real_service_is_drawn(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture, file = tmp_path / "ramp.png", tmp_path / "ramp.json"
    few = ["--ramp", "--rate", "20", "--requests", "4", "--max-p99", "60000"]
    assert main(["loadtest", server.url, *few, "--plot", str(picture), "--json", str(file)]) == 0
    assert "knee: 20.0 requests a second or more" in capsys.readouterr().out
    assert json.loads(file.read_text())["knee_per_second"] == 20
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_run_is_drawn(tmp_path: Path) -> None:
    answers = iter([OK, *[OK, REJECTED] * 2])
    with listening(lambda *_: [next(answers)]) as (host, port):
        command = ["loadtest", f"http://{host}:{port}", "--requests", "4", "--clients", "1"]
        assert main([*command, "--plot", str(tmp_path / "run.svg")]) == 0
    assert "<svg" in (tmp_path / "run.svg").read_text()


def test_loadtest_asks_for_codes_of_descriptors(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["loadtest", server.url, "--requests", "3", "--json"]
    assert main([*command, "--descriptors", "20"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["answers"]["200"]["count"] == 3
    assert set(document["server"]) == {"queue", "coding", "total"}
    assert main([*command, "--descriptors", "101"]) == 1
    assert "rejects such requests with status 413 (" in capsys.readouterr().err


def test_a_key_is_sent_and_one_that_is_missing_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def respond(head: bytes, _: bytes) -> list[bytes]:
        allowed = b"\r\nAuthorization: Bearer 0123456789abcdef\r\n" in head
        return [OK if allowed else problem(401, "there is no key")]

    (tmp_path / "key").write_text("0123456789abcdef\n")
    (tmp_path / "empty").touch()
    with listening(respond) as (host, port):
        command = ["loadtest", f"http://{host}:{port}", "--requests", "2"]
        assert main([*command, "--api-key-file", str(tmp_path / "key")]) == 0
        capsys.readouterr()
        assert main(command) == 1
        assert "status 401 (there is no key); --api-key-file" in capsys.readouterr().err
    assert main([*command, "--api-key-file", str(tmp_path / "empty")]) == 1
    assert "the first line of" in capsys.readouterr().err


def problem(status: int, detail: str) -> bytes:
    body = json.dumps({"detail": detail}).encode()
    return b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        pytest.param(problem(404, ""), "top_k=5 was answered with status 404", id="404"),
        pytest.param(b"220 mail.example ESMTP\r\n\r\n", "does not speak HTTP", id="mail"),
        pytest.param(b"", "closed the connection without an answer", id="closed"),
        pytest.param(b"HTTP/1.1 200 OK\r\n", "did not answer within 1.1 s", id="silent"),
    ],
)
def test_a_wrong_url_is_told_before_any_load(
    answer: bytes, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with listening(lambda *_: [answer] if answer else []) as (host, port):
        assert main(["loadtest", f"http://{host}:{port}", "--timeout-ms", "100"]) == 1
    printed = capsys.readouterr()
    assert sentence in printed.err
    assert printed.out == ""


@pytest.mark.parametrize("package", ["hdrh", "matplotlib"])
def test_a_missing_package_is_told_before_any_load(
    package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["loadtest", "http://host", "--plot", "x.png"]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("leafcode: needs the package ")
    assert "pip install 'leafcode[" in printed


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["ftp://host"], 2, "'ftp://host' is not a URL of a service"),
        (["http://host", "--poisson"], 2, "Poisson arrivals need a rate"),
        (["http://host", "--ramp", "--clients", "2"], 2, "a ramp has rates, not clients"),
        (["http://host", "--clients", "1001"], 2, "clients is 1001, expected more than 0, at most"),
        (["http://host", "--descriptors", "100001"], 1, "expected at most 100000"),
        (["http://host", "--plot", "x.doc"], 1, "x.doc is no picture that can be drawn"),
        (["http://host", "--api-key-file", "/nowhere"], 1, "/nowhere cannot be read"),
        (["http://a..b"], 1, "http://a..b cannot be reached"),
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
    assert printed == f"leafcode: http://{host}:{port} cannot be reached: connection refused\n"


def test_loadtest_needs_an_image(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["loadtest", "http://host", "--images", str(tmp_path)]) == 1
    assert f"no images in {tmp_path}" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--requests=0", "--duration=nan", "--rate=-1", "--clients=x"])
def test_numbers_are_above_zero(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["loadtest", "http://host", flag])
    assert "above 0" in capsys.readouterr().err


def test_help_can_be_pasted(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["loadtest", "--help"])
    printed = capsys.readouterr().out
    assert printed.rstrip().endswith("--ramp --plot ramp.png --json ramp.json")
    assert "%%" not in printed


@pytest.mark.parametrize("text", ["x", "101%", "-1", "1%%", "nan", "2"])
def test_a_share_of_errors_is_checked(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["loadtest", "http://host", f"--max-errors={text}"])
    assert "is not a share of all requests" in capsys.readouterr().err
