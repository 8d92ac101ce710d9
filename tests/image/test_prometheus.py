"""Alerts and dashboard, judged by promtool and by a Prometheus that scrapes a container.

The container has the limits and rights that compose.yaml gives it. The rules are those that are
shipped. Prometheus asks every second instead of every 15, and the service is at an address of
this machine; nothing else of its configuration differs.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.image.compose_options import options_of
from tests.image.containers import Container, free_port
from tests.image.debian import program
from tests.support import pictures, promql
from tests.support.metrics_page import read, value
from tests.support.processes import children_of, until

PACKAGE = "prometheus"
CONFIGURATION = promql.RULES.with_name("prometheus.yml")
# Nothing is rejected here, and nothing has started again.
WITHOUT_SERIES = ("Rejections by reason A", "Starts")


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "config", "prometheus.yml"),
        ("check", "rules", "--lint-fatal", "rules.yml"),
        ("test", "rules", "rules-test.yml"),
    ],
    ids=" ".join,
)
def test_promtool_is_content(arguments: tuple[str, ...]) -> None:
    command = [str(program(PACKAGE, "promtool")), *arguments]
    done = subprocess.run(
        command, cwd=CONFIGURATION.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout


class Prometheus:
    """What a running Prometheus says over HTTP."""

    def __init__(self, port: int) -> None:
        self._api = f"http://127.0.0.1:{port}/api/v1"

    def ask(self, path: str, **parameters: str) -> Any:
        answer = httpx.get(f"{self._api}/{path}", params=parameters, timeout=60).json()
        assert answer["status"] == "success", answer
        return answer["data"]

    def firing(self) -> dict[str, dict[str, Any]]:
        alerts = self.ask("alerts")["alerts"]
        return {
            alert["labels"]["alertname"]: alert for alert in alerts if alert["state"] == "firing"
        }

    def has_judged(self) -> bool:
        """Whether every rule was evaluated, without an error, after a page had been read."""
        try:
            read = self.ask("query", query="timestamp(leafcode_workers_ready)")["result"]
            groups = self.ask("rules")["groups"]
        except (httpx.TransportError, json.JSONDecodeError):  # it is starting
            return False
        if not read or not groups:
            return False
        last = datetime.fromisoformat(groups[0]["lastEvaluation"]).timestamp()
        health = {rule["health"] for rule in groups[0]["rules"]}
        return health == {"ok"} and last > float(read[0]["value"][1])


def address_of(server: Container) -> str:
    return server.url.removeprefix("http://")


def configure(folder: Path, address: str) -> Path:
    """The shipped configuration, in a hurry."""
    configuration = yaml.safe_load(CONFIGURATION.read_text())
    configuration["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    configuration["rule_files"] = [str(promql.RULES)]
    (scrape,) = configuration["scrape_configs"]
    scrape["static_configs"] = [{"targets": [address]}]
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(configuration))
    return file


@pytest.fixture(scope="module")
def server() -> Iterator[Container]:
    with Container(*options_of("leafcode")) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Container) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as connected:
        yield connected


@pytest.fixture(scope="module")
def prometheus(server: Container, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder, port = tmp_path_factory.mktemp("prometheus"), free_port()
    command = (
        program(PACKAGE, "prometheus"),
        f"--config.file={configure(folder, address_of(server))}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    )
    with (folder / "log").open("w") as log:
        running = subprocess.Popen(command, stderr=log)
    try:
        found = Prometheus(port)
        until(found.has_judged)
        yield found
    finally:
        running.terminate()
        running.wait()


def test_a_healthy_service_has_no_alert(prometheus: Prometheus) -> None:
    assert prometheus.firing() == {}


def test_the_memory_is_that_of_the_container(client: httpx.Client) -> None:
    samples = read(client.get("/metrics").text)
    assert value(samples, "memory_limit_bytes") == 1536 * 2**20
    assert 50e6 < value(samples, "memory_bytes") < 500e6


@pytest.mark.parametrize(
    "name", [name for name in promql.panel_expressions() if name not in WITHOUT_SERIES]
)
def test_a_panel_of_the_dashboard_shows_something(
    name: str, prometheus: Prometheus, client: httpx.Client
) -> None:
    def is_shown() -> bool:
        """Rates need two scrapes with requests in between, which come late on a busy machine."""
        client.post("/v1/classify", content=pictures.png()).raise_for_status()
        return bool(prometheus.ask("query", query=promql.panel_expressions()[name])["result"])

    until(is_shown)


@pytest.mark.parametrize("name", WITHOUT_SERIES)
def test_prometheus_understands_a_panel_without_series(name: str, prometheus: Prometheus) -> None:
    assert prometheus.ask("query", query=promql.panel_expressions()[name])["result"] == []


def test_a_worker_that_is_killed_raises_its_alert_and_no_other(
    prometheus: Prometheus, server: Container
) -> None:
    below = {pid: children_of(pid) for pid in children_of(server.state()["Pid"])}
    workers = next(workers for workers in below.values() if workers)
    os.kill(workers[0], signal.SIGKILL)
    until(lambda: bool(prometheus.firing()))
    (alert,) = prometheus.firing().values()
    assert alert["labels"]["alertname"] == "LeafcodeWorkerRestarts"
    assert alert["labels"]["severity"] == "warning"
    assert alert["annotations"]["summary"] == f"{address_of(server)} has replaced a worker"
