"""The generator's requests beside those of the real client, and URLs of services."""

import json
from contextlib import suppress
from email.parser import BytesHeaderParser

import numpy as np
import pytest

from service.client import Client, ClientError
from service.errors import SettingsError
from service.loadtest.generator import Generator
from service.loadtest.request import Sending, Target, classify_request, parse_url
from tests.support.scripted_server import listening

IMAGE = b"not really an image"


def answer() -> bytes:
    model = {"name": "tiny", "version": 1, "digest": "0"}
    body = json.dumps({"model": model, "predictions": []}).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


def line_and_headers(head: bytes) -> tuple[str, dict[str, str]]:
    line, _, rest = head.partition(b"\r\n")
    headers = {name.lower(): value for name, value in BytesHeaderParser().parsebytes(rest).items()}
    return line.decode(), headers


@pytest.mark.parametrize("key", [None, "0123456789abcdef"])
@pytest.mark.parametrize("call", ["classify", "codes"])
def test_the_generator_sends_what_the_client_sends(call: str, key: str | None) -> None:
    seen: list[tuple[bytes, bytes]] = []
    descriptors = np.ones((3, 128), np.float32)

    def respond(head: bytes, body: bytes) -> list[bytes]:
        seen.append((head, body))
        return [answer()]

    with listening(respond) as (host, port):
        url = f"http://{host}:{port}"
        sending = Sending(parse_url(url), api_key=key)
        with Client(url, key) as client, suppress(ClientError):
            # Our answer has no codes.
            client.classify(IMAGE) if call == "classify" else client.codes(descriptors)
        request = sending.classify(IMAGE) if call == "classify" else sending.codes(descriptors)
        Generator(sending.target.address).closed_loop([request], 1)
    (client_head, client_body), (our_head, our_body) = seen
    client_line, client_headers = line_and_headers(client_head)
    our_line, our_headers = line_and_headers(our_head)
    assert our_line == client_line
    assert our_body == client_body
    assert list(our_headers) == list(client_headers)
    # The client names itself, and the encodings that happen to be installed.
    for name in ("user-agent", "accept-encoding"):
        del client_headers[name], our_headers[name]
    assert our_headers == client_headers


def test_a_url_may_have_a_path_before_that_of_the_call() -> None:
    target = parse_url("http://localhost/leafcode/")
    assert target == Target("localhost", 80, "localhost", "/leafcode")
    assert classify_request(b"", target, top_k=2).startswith(
        b"POST /leafcode/v1/classify?top_k=2 HTTP/1.1\r\nHost: localhost\r\n"
    )


def test_an_address_of_version_6_is_connected_to_without_its_brackets() -> None:
    target = parse_url("http://[::1]:8000")
    assert (target.address, target.host_header) == (("::1", 8000), "[::1]:8000")


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:8000",
        "https://host",
        "http://",
        "http://host:0x1",
        "http://host?x=1",
        "http://[x",
    ],
)
def test_anything_else_is_not_a_url_of_a_service(url: str) -> None:
    with pytest.raises(SettingsError, match="is not a URL of a service"):
        parse_url(url)
