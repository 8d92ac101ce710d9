"""The log: one line per event, whatever a client writes into it."""

import json
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.observability.line_writer import MAX_WAITING_BYTES, LineWriter
from service.observability.logs import JsonLines, TextLines
from tests.support import pictures
from tests.support.clients import web
from tests.support.metrics_page import read, value
from tests.support.processes import DEADLINE_SECONDS, READY, ROOT, Server, environment, until
from tests.support.samples import CLASSIFY_STAGES

PNG = pictures.png()
ANY_TEXT = st.text(st.characters(categories=None, codec=None), max_size=50)


def record(message: str, **more: object) -> logging.LogRecord:
    found = logging.LogRecord("service.x", logging.INFO, "", 0, "%s", (message,), None)
    found.__dict__.update(more)
    return found


@given(ANY_TEXT)
def test_json_is_one_line_that_gives_the_message_back(message: str) -> None:
    line = JsonLines().format(record(message))
    assert len(line.splitlines()) == 1
    assert line.isascii()
    assert json.loads(line)["message"] == message


@given(ANY_TEXT)
def test_text_is_one_line_without_control_characters(message: str) -> None:
    line = TextLines().format(record(message))
    assert len(line.splitlines()) == 1
    assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in line)


def test_a_traceback_cannot_be_taken_for_another_line() -> None:
    error = ValueError("forged\n12:00:00 INFO all is well")
    failed = record("failed", exc_info=(ValueError, error, None))
    _, *below = TextLines().format(failed).splitlines()
    assert all(line.startswith("    | ") for line in below)
    line = JsonLines().format(failed)
    assert len(line.splitlines()) == 1
    assert "ValueError" in json.loads(line)["exception"]


def test_a_request_is_one_line_of_json(models: Path) -> None:
    with Server("--models", str(models), "--workers", "1") as server:
        url = f"{server.url}/v1/classify?model=apples"
        answer = web.post(url, content=PNG, headers={"X-Request-Id": "good"})
        web.post(url, content=b"nonsense", headers={"X-Request-Id": "bad"})
        server.stop()
    lines = [json.loads(line) for line in server.log]
    (good,) = (line for line in lines if line.get("request_id") == "good")
    (bad,) = (line for line in lines if line.get("request_id") == "bad")
    assert list(good.pop("ms")) == ["queue", *CLASSIFY_STAGES, "total"]
    assert good | {"time": "", "message": ""} == {
        "time": "",
        "level": "info",
        "logger": "service.observability.ended_requests",
        "message": "",
        "request_id": "good",
        "method": "POST",
        "path": "/v1/classify",
        "route": "/v1/classify",
        "status": 200,
        "bytes_in": len(PNG),
        "bytes_out": len(answer.content),
        "model": "apples",
        "model_version": 2,
    }
    assert (bad["status"], bad["reason"]) == (415, "unsupported-image")
    told = [line["message"].split(" at ")[0] for line in lines if "request_id" not in line]
    assert told[-3:] == ["ready", "stopping on SIGTERM", "stopped"]


def test_lines_of_uvicorn_have_the_same_shape(server: Server) -> None:
    address = httpx.URL(server.url)
    with socket.create_connection((address.host, address.port or 80)) as connection:
        connection.sendall(b"no HTTP\r\n\r\n")
        assert b"400" in connection.recv(100)
    until(lambda: any("Invalid HTTP request" in line for line in server.log))
    (line, *_) = (line for line in server.log if "Invalid HTTP request" in line)
    assert json.loads(line)["logger"] == "uvicorn.error"


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_gets_text_and_a_file_gets_json(tmp_path: Path, *, terminal: bool) -> None:
    ours, theirs = os.openpty() if terminal else os.pipe()
    subprocess.run(
        [sys.executable, "-m", "service", "serve", "--port", "0", "--models", str(tmp_path)],
        stderr=theirs,
        check=False,
        timeout=DEADLINE_SECONDS,
        env=environment(),
        cwd=ROOT,
    )
    written = os.read(ours, 65_536).decode()
    os.close(theirs)
    os.close(ours)
    assert "no bundle found" in written
    assert written.startswith("{") is not terminal


@contextmanager
def unread_server(models: Path) -> Iterator[tuple[str, IO[str], "subprocess.Popen[str]"]]:
    """A server whose log is read until it is ready, and not any more; its URL and its log."""
    with subprocess.Popen(
        [sys.executable, "-m", "service", "serve", "--port", "0", "--models", str(models)],
        stderr=subprocess.PIPE,
        text=True,
        env=environment(LEAFCODE_WORKERS="1"),
        cwd=ROOT,
    ) as process:
        assert process.stderr is not None
        try:
            ready = next(match for line in process.stderr if (match := READY.search(line)))
            yield ready[1], process.stderr, process
        finally:
            process.kill()


def test_a_log_that_nobody_reads_keeps_no_request_waiting(models: Path) -> None:
    with unread_server(models) as (url, log, process):
        # Some of these lines fill the pipe, the next ones wait, and the rest is dropped.
        path = "x" * 30_000
        count = 2 * MAX_WAITING_BYTES // len(path)
        with httpx.Client(base_url=url, verify=False, timeout=DEADLINE_SECONDS) as client:
            statuses = {client.get(f"/{path}").status_code for _ in range(count)}
            page = read(client.get("/metrics").text)
        assert statuses == {404}
        dropped = value(page, "log_lines_dropped_total")
        assert 0 < dropped < count
        process.terminate()
        lines = [json.loads(line) for line in log]
    assert sum(line["message"].startswith("GET /xxx") for line in lines) == count - dropped
    told = [line for line in lines if "lines of the log were lost" in line["message"]]
    assert sum(int(line["message"].split()[0]) for line in told) >= dropped
    assert {line["level"] for line in told} == {"warning"}
    assert lines[-1]["message"] == "stopped"


def test_all_that_waits_is_written_at_the_end() -> None:
    theirs, ours = os.pipe()
    writer = LineWriter(ours, str)
    lines = [f"{number:0100}" for number in range(9_000)]
    writer.write(lines)
    received = bytearray()

    def read_slowly() -> None:
        while data := os.read(theirs, 65_536):
            received.extend(data)

    reader = threading.Thread(target=read_slowly)
    reader.start()
    writer.drain()
    os.close(ours)
    reader.join()
    os.close(theirs)
    assert received.decode().splitlines() == lines
    assert writer.dropped == 0


def test_a_reader_that_is_gone_loses_lines_and_stops_nobody() -> None:
    theirs, ours = os.pipe()
    os.close(theirs)
    writer = LineWriter(ours, str)
    writer.write(["nobody reads this"])
    writer.drain()
    os.close(ours)
    assert writer.dropped == 1


def test_lines_that_found_no_room_are_counted_and_told_when_there_is_some(tmp_path: Path) -> None:
    log = os.open("/dev/full", os.O_WRONLY)
    writer = LineWriter(log, "{} lost".format)
    writer.write(["first", "second"])
    writer.drain()
    with (tmp_path / "log").open("wb") as with_room:
        os.dup2(with_room.fileno(), log)
    writer.write(["third"])
    until(lambda: "lost" in (tmp_path / "log").read_text())
    os.close(log)
    assert (tmp_path / "log").read_text() == "third\n2 lost\n"
    assert writer.dropped == 2
