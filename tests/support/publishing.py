"""Versions that are published and withdrawn under a running server, and how it shows."""

import itertools
import re
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import httpx

from service.engine import Bundle, Probe, write_bundle
from tests.support import bundles, pictures
from tests.support.clients import web
from tests.support.processes import DEADLINE_SECONDS, Server, workers_of

PNG = pictures.png()
TENSORS, MANIFEST = "tensors.safetensors", "manifest.json"
MAPPED = re.compile(rf"/\.?(\d+)[^/]*/{re.escape(TENSORS)}")
N_VERSIONS = 8
NUMBERS = itertools.count()


def fill_shelf(folder: Path) -> None:
    """Finished versions to publish from, and one whose probes are wrong."""
    for version in range(1, N_VERSIONS + 1):
        bundles.write_model(folder, version=version, seed=version)
    bundle = bundles.random_bundle(version=2)
    probes = tuple(Probe(probe.image, (9.0,) * 4) for probe in bundle.manifest.probes)
    wrong = Bundle(replace(bundle.manifest, probes=probes), bundle.tensors)
    write_bundle(wrong, folder / "wrong probes")


Damage = Callable[[Path], object]


def publish(source: Path, repository: Path, damage: Damage | None = None, as_: str = "") -> Path:
    """Copy under a hidden name, perhaps damage the copy, and rename."""
    target = repository / "tiny" / (as_ or source.name)
    staging = target.with_name(f".{target.name}-staging")
    target.parent.mkdir(exist_ok=True)
    shutil.copytree(source, staging)
    if damage is not None:
        damage(staging)
    return staging.rename(target)


def withdraw(repository: Path, version: int) -> None:
    """Take a version away by one rename; a mapping of it shows the new name."""
    folder = repository / "tiny" / str(version)
    folder.rename(folder.with_name(f".{version}-withdrawn-{next(NUMBERS)}"))


def hang_up(server: Server) -> None:
    server.process.send_signal(signal.SIGHUP)


def models_of(server: Server) -> dict[str, Any]:
    found: dict[str, Any] = web.get(f"{server.url}/v1/models", timeout=DEADLINE_SECONDS).json()
    return found


def versions_of(server: Server) -> list[int]:
    return [card["version"] for card in models_of(server)["models"]]


def rejected_by(server: Server) -> list[int]:
    return [rejection["version"] for rejection in models_of(server)["rejected"]]


def classify(server: Server, query: str = "", **headers: str) -> httpx.Response:
    url = f"{server.url}/v1/classify{query}"
    return web.post(url, content=PNG, headers=headers, timeout=DEADLINE_SECONDS)


def answering_version(server: Server) -> int:
    response = classify(server)
    assert response.status_code == 200, response.text
    version: int = response.json()["model"]["version"]
    return version


def mapped_versions(server: Server) -> list[set[int]]:
    """Versions whose tensors each worker maps; one that is being replaced maps none."""
    return [set(map(int, MAPPED.findall(_mappings(pid)))) for pid in workers_of(server)]


def _mappings(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/maps").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def cut_short(folder: Path) -> None:
    data = (folder / TENSORS).read_bytes()
    (folder / TENSORS).write_bytes(data[:-100])


class Hammer:
    """Clients that ask as fast as they get answers; `failures` is what was not a 200."""

    def __init__(self, server: Server, n_clients: int = 4) -> None:
        self.failures: list[str] = []
        self.versions: set[int] = set()
        self.count = 0
        self._server = server
        self._over = threading.Event()
        jobs = [self._classify] * n_clients + [self._probe]
        self._threads = [threading.Thread(target=job) for job in jobs]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _classify(self) -> None:
        for response in self._ask("POST", "/v1/classify"):
            if response.status_code == 200:
                self.versions.add(response.json()["model"]["version"])

    def _probe(self) -> None:
        for _ in self._ask("GET", "/readyz?strict=true"):
            pass

    def _ask(self, method: str, path: str) -> Iterator[httpx.Response]:
        content = PNG if method == "POST" else None
        with httpx.Client(
            base_url=self._server.url, verify=False, timeout=DEADLINE_SECONDS
        ) as client:
            while not self._over.is_set():
                response = client.request(method, path, content=content)
                self.count += 1
                if response.status_code != 200:
                    self.failures.append(f"{path} {response.status_code} {response.text}")
                yield response
