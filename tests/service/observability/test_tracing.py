"""Traces: a span for each request, with its stages below it."""

import asyncio
import gzip
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Self

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from service.app import create_app
from service.observability.tracing import Tracing
from service.settings import Settings
from tests.support import pictures
from tests.support.clients import client_of, web
from tests.support.processes import Server, environment
from tests.support.samples import CLASSIFY_STAGES

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(scope="module")
def spans(models: Path) -> dict[str, ReadableSpan]:
    """The spans of one request, by name."""
    exporter = InMemorySpanExporter()

    async def ask() -> None:
        app = create_app(Settings(models=models), Tracing.through(exporter))
        async with client_of(app) as client, app.router.lifespan_context(app):
            headers = {"traceparent": PARENT}
            await client.post("/v1/classify", content=pictures.png(), headers=headers)

    asyncio.run(ask())
    return {span.name: span for span in exporter.get_finished_spans()}


def test_a_request_has_a_span_and_one_for_each_stage(spans: dict[str, ReadableSpan]) -> None:
    assert set(spans) == {"POST /v1/classify", "queue", *CLASSIFY_STAGES}


def test_stages_are_below_the_request_and_end_to_end(spans: dict[str, ReadableSpan]) -> None:
    request = spans["POST /v1/classify"]
    stages = [spans[name] for name in ("queue", *CLASSIFY_STAGES)]
    assert all(span.parent == request.context for span in stages)
    ends = [span.end_time for span in stages]
    assert [span.start_time for span in stages[1:]] == ends[:-1]


def test_a_request_continues_the_trace_of_its_caller(spans: dict[str, ReadableSpan]) -> None:
    request = spans["POST /v1/classify"]
    assert f"{request.context.trace_id:032x}" == PARENT.split("-")[1]
    assert request.attributes is not None
    assert request.attributes["http.route"] == "/v1/classify"
    assert request.attributes["http.response.status_code"] == 200
    assert request.attributes["leafcode.model.name"] == "apples"


def test_spans_of_a_real_server_arrive_at_the_endpoint(models: Path) -> None:
    with Collector() as collector:
        env = environment(LEAFCODE_OTLP_ENDPOINT=f"{collector.url}/v1/traces")
        with Server("--models", str(models), "--workers", "1", env=env) as server:
            web.post(f"{server.url}/v1/classify", content=pictures.png())
            server.stop()
    received = b"".join(collector.received)
    names = ("POST /v1/classify", "leafcode", *CLASSIFY_STAGES)
    assert all(name.encode() in received for name in names)
    (line,) = (json.loads(line) for line in server.log if "/v1/classify" in line)
    assert bytes.fromhex(line["trace_id"]) in received


def test_an_endpoint_that_is_away_hinders_nobody(models: Path) -> None:
    env = environment(LEAFCODE_OTLP_ENDPOINT="http://127.0.0.1:1/v1/traces")
    with Server("--models", str(models), "--workers", "1", env=env) as server:
        answer = web.post(f"{server.url}/v1/classify", content=pictures.png())
        assert server.stop() == 0
    assert answer.status_code == 200
    assert all(line.startswith("{") for line in server.log)


class Collector(HTTPServer):
    """Takes whatever is posted to it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Taker)
        self.received: list[bytes] = []
        self.url = f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class Taker(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Collector)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        packed = self.headers.get("Content-Encoding") == "gzip"
        self.server.received.append(gzip.decompress(body) if packed else body)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Quiet."""


def test_without_an_endpoint_nothing_is_traced() -> None:
    assert not Tracing.to("").configuration["tracing"]
