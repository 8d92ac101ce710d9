"""`python -m service health`, against a real service and against what is none."""

import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.commands import run_here
from tests.support.processes import Server
from tests.support.scripted_server import OK, listening

KEY = "a-key-of-sixteen-or-more"
NOT_READY = b'{"status":503,"detail":"worker 0 is loading","error":"worker 0 is loading"}'
READY = b'{"status":"ready","workers":[{"ready":true},{"ready":false}]}'


def answer(status: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_the_service_of_the_settings_is_asked(server: Server, host: str) -> None:
    port = str(urlsplit(server.url).port)
    ended = run_here("health", LEAFCODE_HOST=host, LEAFCODE_PORT=port)
    assert (ended.returncode, ended.stderr) == (0, b"")
    count = ended.stdout.split()[1].decode()
    assert ended.stdout.decode() == f"ready: {count} of {count} workers\n"


def test_the_service_of_a_url_is_asked() -> None:
    with listening(lambda *_: [answer(200, READY)]) as (host, port):
        ended = run_here("health", f"http://{host}:{port}/")
    assert (ended.returncode, ended.stdout) == (0, b"ready: 1 of 2 workers\n")


@pytest.mark.parametrize(
    ("sent", "sentence"),
    [
        (answer(503, NOT_READY), b"not ready: worker 0 is loading\n"),
        (OK, b"not Leafcode: /readyz answered 200\n"),
        (answer(404, b"[]"), b"not Leafcode: /readyz answered 404\n"),
    ],
    ids=["not ready", "no JSON", "another JSON"],
)
def test_an_answer_that_is_not_that_of_a_ready_service_ends_with_code_one(
    sent: bytes, sentence: bytes
) -> None:
    with listening(lambda *_: [sent]) as (host, port):
        ended = run_here("health", f"http://{host}:{port}")
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, b"", sentence)


def test_no_answer_ends_with_code_one_and_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    ended = run_here("health", LEAFCODE_PORT=str(port))
    assert ended.returncode == 1
    start = f"no answer from http://127.0.0.1:{port}: "
    assert ended.stderr.decode().startswith(start)
    assert ended.stderr.count(b"\n") == 1


def test_a_connection_that_is_closed_is_no_answer() -> None:
    with listening(lambda *_: []) as (host, port):
        ended = run_here("health", f"http://{host}:{port}")
    assert ended.returncode == 1
    assert ended.stderr.startswith(b"no answer from ")


def test_a_key_is_sent_where_the_probe_needs_one(tmp_path: Path) -> None:
    heads: list[bytes] = []
    keys = tmp_path / "keys"
    keys.write_text(f"# ours\n{KEY}\n")

    def respond(head: bytes, _: bytes) -> list[bytes]:
        heads.append(head)
        return [answer(200, READY)]

    with listening(respond) as (host, port):
        settings = {"LEAFCODE_API_KEYS_FILE": str(keys), "LEAFCODE_OPEN_PATHS": "/healthz"}
        for variables in (settings, {"LEAFCODE_API_KEYS_FILE": str(keys)}):
            assert run_here("health", f"http://{host}:{port}", **variables).returncode == 0
    assert [KEY.encode() in head for head in heads] == [True, False]


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "https://example.org", "http://host:1/v1", "x"])
def test_what_is_no_address_is_refused(url: str) -> None:
    ended = run_here("health", url)
    assert ended.returncode == 2
    assert f"'{url}' is not the address of a service" in ended.stderr.decode()


def test_a_port_that_the_system_chose_is_not_known() -> None:
    ended = run_here("health", LEAFCODE_PORT="0")
    assert ended.returncode == 2
    assert b"only the service's log tells its port" in ended.stderr
