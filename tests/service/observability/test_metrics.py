"""`/metrics` and `Server-Timing`, as Prometheus and a browser read them."""

import asyncio
import os
import re
import signal
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_open_metrics,
)

from service import __version__
from service.app import create_app
from service.engine import Engine
from service.observability.metrics import BUCKETS, Metrics
from service.observability.request_record import RequestRecord
from service.settings import Settings
from tests.support import pictures
from tests.support.clients import base64_of, client_of, web
from tests.support.metrics_page import metrics, read, value
from tests.support.processes import Server, until, workers_of
from tests.support.samples import CLASSIFY_STAGES

PNG = pictures.png()
BLANK = pictures.png(pictures.blank())
DURATION = re.compile(r"([a-z]+);dur=(\d+(?:\.\d+)?(?:e-\d+)?)")


def durations(response: httpx.Response) -> dict[str, float]:
    return {
        stage: float(text) for stage, text in DURATION.findall(response.headers["server-timing"])
    }


def images_in_json(*images: bytes) -> dict[str, object]:
    data = [base64_of(image) for image in images]
    tensor = {"name": "image", "shape": [len(data)], "datatype": "BYTES", "data": data}
    return {"inputs": [tensor]}


def test_an_image_counts_once_in_every_stage(server: Server) -> None:
    before = metrics(server.url)
    assert web.post(f"{server.url}/v1/classify", content=PNG).status_code == 200
    after = metrics(server.url)
    for stage in ("queue", *CLASSIFY_STAGES):
        name = "stage_seconds_count"
        assert value(after, name, stage=stage) == value(before, name, stage=stage) + 1


def test_every_image_of_a_request_is_counted_and_the_request_once(server: Server) -> None:
    before = metrics(server.url)
    web.post(f"{server.url}/v1/classify", files=[("a", PNG), ("b", PNG), ("c", b"damaged")])
    after = metrics(server.url)
    labels = {"route": "/v1/classify", "status": "200"}
    assert value(after, "requests_total", **labels) == value(before, "requests_total", **labels) + 1
    assert (
        value(after, "stage_seconds_count", stage="sift")
        == value(before, "stage_seconds_count", stage="sift") + 2
    )


def test_images_like_none_of_the_classes_are_counted_for_each_model(server: Server) -> None:
    labels, name = {"name": "apples", "version": "2"}, "unknown_images_total"
    web.post(f"{server.url}/v1/classify", content=PNG)
    before = value(metrics(server.url), name, **labels)
    web.post(f"{server.url}/v1/classify", content=BLANK)
    web.post(f"{server.url}/v1/classify", files=[("a", PNG), ("b", BLANK), ("c", BLANK)])
    infer = f"{server.url}/v2/models/apples"
    web.post(f"{infer}/infer", content=BLANK, headers={"Inference-Header-Content-Length": "0"})
    web.post(f"{infer}/versions/1/infer", json=images_in_json(BLANK))
    long = {"parameters": {"note": "x" * 40_000}, **images_in_json(BLANK, PNG, BLANK)}
    web.post(f"{infer}/infer", json=long).raise_for_status()
    samples = metrics(server.url)
    assert value(samples, name, **labels) == before + 6
    assert value(samples, name, name="apples", version="1") == 0


def test_a_refusal_is_counted_by_its_reason(server: Server) -> None:
    before = metrics(server.url)
    web.post(f"{server.url}/v1/classify", content=b"no image")
    web.get(f"{server.url}/v1/models/pears")
    after = metrics(server.url)
    for reason in ("unsupported-image", "unknown-model"):
        name = "rejections_total"
        assert value(after, name, reason=reason) == value(before, name, reason=reason) + 1
    assert value(after, "requests_total", route="/v1/models/{name}", status="404") >= 1


@given(st.lists(st.sampled_from([0.0, 1e-4, 0.001, 0.0011, 30.0, 31.0]) | st.floats(0, 100)))
def test_durations_are_counted_as_the_library_counts_them(durations: list[float]) -> None:
    ours, library = Metrics(()), CollectorRegistry()
    name, text = "leafcode_request_seconds", "Time from the headers of a request to its end."
    histogram = Histogram(name, text, ["route"], registry=library, buckets=BUCKETS)
    records = [RequestRecord("id", route="/v1/classify", seconds=item) for item in durations]
    ours.count(records)
    for item in durations:
        histogram.labels("/v1/classify").observe(item)
    page = read(ours.page("")[0].decode())
    expected = read(generate_latest(library).decode())
    found = {key: value for key, value in page.items() if key[0].startswith(name)}
    assert found == {key: value for key, value in expected.items() if "_created" not in key[0]}


def test_reasons_are_there_before_anything_was_refused(models: Path) -> None:
    async def ask() -> httpx.Response:
        async with client_of(create_app(Settings(models=models))) as client:
            return await client.get("/metrics")

    samples = read(asyncio.run(ask()).text)
    reasons = ("overloaded", "deadline", "slow-body", "unauthorized")
    assert [samples["leafcode_rejections_total", (("reason", name),)] for name in reasons] == [
        0
    ] * 4


def test_paths_that_nobody_serves_share_one_label(server: Server) -> None:
    for path in ("/a", "/b%0a", "/v1/models/x/y/z"):
        web.get(server.url + path)
    routes = {dict(labels).get("route") for _, labels in metrics(server.url)} - {None}
    served = set(web.get(f"{server.url}/openapi.json").json()["paths"])
    assert "none" in routes
    assert routes <= served | {"none", "/openapi.json", "/docs", "/", "/web/{path:path}"}


def test_the_page_tells_what_runs(server: Server, models: Path) -> None:
    samples = metrics(server.url)
    manifest = Engine.load(models / "apples" / "2").manifest
    assert value(samples, "model_info", name="apples", version="2", digest=manifest.digest) == 1
    builds = [dict(labels) for name, labels in samples if name == "leafcode_build_info"]
    assert [build["version"] for build in builds] == [__version__]
    for worker in range(int(value(samples, "workers"))):
        assert value(samples, "worker_resident_bytes", worker=str(worker)) > 1e6
    assert value(samples, "workers_ready") == value(samples, "workers")
    assert value(samples, "queue_depth") == 0
    assert value(samples, "queue_limit") == Settings().queue_size
    assert 0 < value(samples, "memory_bytes") < value(samples, "memory_limit_bytes")


def test_open_metrics_is_answered_to_who_asks_for_it(server: Server) -> None:
    headers = {"Accept": "application/openmetrics-text; version=1.0.0"}
    page = web.get(f"{server.url}/metrics", headers=headers)
    assert page.headers["content-type"].startswith("application/openmetrics-text")
    families = parse_open_metrics(page.text)  # type: ignore[no-untyped-call]
    assert "leafcode_requests" in {family.name for family in families}


@pytest.mark.parametrize("accept", ["*/*", "application/openmetrics-text; version=1.0.0"])
def test_no_series_tells_when_it_was_first_counted(server: Server, accept: str) -> None:
    page = web.get(f"{server.url}/metrics", headers={"Accept": accept}).text
    assert "leafcode_rejections_total" in page
    assert "_created" not in page


def test_busy_and_replaced_workers_are_counted(small_server: Server) -> None:
    url = small_server.url
    (worker,) = workers_of(small_server)
    before = metrics(url)
    os.kill(worker, signal.SIGSTOP)
    late = web.post(f"{url}/v1/classify", content=PNG, headers={"X-Timeout-Ms": "20"})
    assert late.status_code == 504
    samples = metrics(url)
    assert value(samples, "workers_busy") == 1
    for name in ("rejections_total", "job_rejections_total"):
        increase = value(samples, name, reason="deadline") - value(before, name, reason="deadline")
        assert increase == 1
    os.kill(worker, signal.SIGKILL)
    restarts = value(before, "worker_restarts_total", worker="0") + 1
    until(lambda: value(metrics(url), "worker_restarts_total", worker="0") == restarts)
    until(lambda: value(metrics(url), "workers_ready") == 1)
    log = small_server.log
    until(lambda: any("ended by SIGKILL" in line for line in log))
    until(lambda: any("worker 0" in line and "is ready again" in line for line in log))


def test_server_timing_names_every_stage_of_an_image(client: httpx.Client) -> None:
    found = durations(client.post("/v1/classify", content=PNG))
    assert list(found) == ["queue", *CLASSIFY_STAGES, "total"]
    # The event loop's clock, which times the queue, has a resolution of a millisecond.
    assert sum(found[stage] for stage in CLASSIFY_STAGES) <= found["total"]
    assert found["queue"] <= found["total"] + 1


def test_server_timing_of_codes_has_no_stage_that_did_not_run(client: httpx.Client) -> None:
    body = {"descriptors": [[0.5] * 128]}
    assert list(durations(client.post("/v1/codes", json=body))) == ["queue", "coding", "total"]


@pytest.mark.parametrize("path", ["/healthz", "/nowhere", "/v1/models/pears"])
def test_every_answer_tells_its_total(client: httpx.Client, path: str) -> None:
    assert list(durations(client.get(path))) == ["total"]
