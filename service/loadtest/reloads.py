"""New versions under load, good and damaged: no request may fail or get wrong labels.

Versions are copies of the served bundle, so that all of them know the same labels; damaged ones
have a bit flipped, a file cut short, or a file missing, in turns. The oldest of more than three
good versions is withdrawn each time, as an operator would do it.
"""

import http.client
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from service.engine.bundle import MANIFEST_FILE, TENSORS_FILE, Bundle, read_bundle, write_bundle
from service.loadtest.answers import (
    AnswerCounts,
    LabelledImages,
    add_counts,
    count_answers,
    default_bundle,
)
from service.loadtest.errors import LoadTestError
from service.loadtest.generator import Generator
from service.loadtest.processes import ServiceProcess

__all__ = [
    "KEPT_VERSIONS",
    "ModelFolder",
    "Publisher",
    "ReloadResult",
    "ReloadSettings",
    "reload_under_load",
]

KEPT_VERSIONS = 3
"""Good versions that are there at a time, once as many were published."""

_NOTICED_SECONDS = 30.0
_POLL_SECONDS = 0.01
_REQUESTS_AT_ONCE = 200

# Members of the answer of /v1/models.
_LOADED, _REJECTED = "models", "rejected"


@dataclass(frozen=True)
class ReloadSettings:
    """How many versions are published, and how many of them are damaged."""

    reloads: int = 50
    bad: int = 10
    clients: int = 8


@dataclass(frozen=True)
class ReloadResult:
    """What became of the versions, and of the requests meanwhile."""

    loaded: int
    rejected: int
    answers: AnswerCounts
    seconds: float

    def faults(self) -> list[str]:
        """Why the service did not pass, one sentence each; no worker dies here, so none is lost."""
        return self.answers.faults()

    def text(self) -> str:
        """The result for people."""
        versions = f"{self.loaded} loaded, {self.rejected} rejected in {self.seconds:.0f} s"
        return "\n".join([*self.answers.lines(), f"{'versions':<19} {versions}"])


def reload_under_load(models: Path, settings: ReloadSettings) -> ReloadResult:
    """Serve copies of the default bundle in `models` while versions come and go."""
    folder_of_bundle = default_bundle(models)
    images, bundle = LabelledImages.of(folder_of_bundle), read_bundle(folder_of_bundle)
    with tempfile.TemporaryDirectory(prefix="leafcode-reloads-") as repository:
        folder = ModelFolder(Path(repository) / bundle.manifest.name, bundle)
        folder.publish(1)
        with ServiceProcess(Path(repository)) as service:
            publisher = Publisher(service, folder)
            thread = threading.Thread(target=publisher.publish_all, args=(settings,))
            generator = Generator(service.target.address, keep_bodies=True)
            requests = images.requests(_REQUESTS_AT_ONCE, service.target)
            counts, started = [], time.monotonic()
            thread.start()
            while thread.is_alive():
                load = generator.closed_loop(requests, settings.clients)
                counts.append(count_answers(load, images.labels))
            seconds = time.monotonic() - started
            thread.join()
    if publisher.error:
        raise LoadTestError(publisher.error)
    return ReloadResult(publisher.loaded, publisher.rejected, add_counts(counts), seconds)


def _flip_bit(bundle: Path) -> None:
    data = bytearray((bundle / TENSORS_FILE).read_bytes())
    data[-1] ^= 1
    (bundle / TENSORS_FILE).write_bytes(data)


def _cut_short(name: str, bundle: Path) -> None:
    os.truncate(bundle / name, (bundle / name).stat().st_size // 2)


_DAMAGES: tuple[Callable[[Path], None], ...] = (
    _flip_bit,
    partial(_cut_short, TENSORS_FILE),
    partial(_cut_short, MANIFEST_FILE),
    lambda bundle: (bundle / TENSORS_FILE).unlink(),
)


class ModelFolder:
    """The folder of one model, to which versions are published by a rename."""

    def __init__(self, folder: Path, bundle: Bundle) -> None:
        self._folder = folder
        self._bundle = bundle
        self._good: list[int] = []
        self._damaged = 0

    def publish(self, version: int, *, bad: bool = False) -> None:
        """Write a copy of the bundle under another number, damaged if `bad`."""
        staging = self._folder / f".{version}-staging"
        manifest = replace(self._bundle.manifest, version=version)
        write_bundle(replace(self._bundle, manifest=manifest), staging)
        if bad:
            _DAMAGES[self._damaged % len(_DAMAGES)](staging)
            self._damaged += 1
        else:
            self._good.append(version)
        staging.rename(self._folder / str(version))
        if len(self._good) > KEPT_VERSIONS:
            self._withdraw(self._good.pop(0))

    def _withdraw(self, version: int) -> None:
        gone = self._folder / f".{version}-gone"
        (self._folder / str(version)).rename(gone)
        shutil.rmtree(gone)


class Publisher:
    """Publishes versions, one after the other, to a running service."""

    def __init__(self, service: ServiceProcess, folder: ModelFolder) -> None:
        self.loaded = self.rejected = 0
        self.error = ""
        """Why `publish_all` ended early, if it did."""
        self._service = service
        self._folder = folder

    def publish(self, version: int, *, bad: bool) -> None:
        """Publish a version, and return when the service has loaded or rejected it."""
        self._folder.publish(version, bad=bad)
        self._service.process.send_signal(signal.SIGHUP)
        self._wait_for(version, bad=bad)
        self.rejected, self.loaded = self.rejected + bad, self.loaded + (not bad)

    def publish_all(self, settings: ReloadSettings) -> None:
        """Publish as many versions as the settings say, from the second one."""
        count, bad = settings.reloads, settings.bad
        try:
            for number in range(count):
                # Spread evenly over all of them.
                is_bad = (number + 1) * bad // count > number * bad // count
                self.publish(number + 2, bad=is_bad)
        except (OSError, http.client.HTTPException, LoadTestError) as error:
            self.error = f"publishing stopped: {error}"

    def _wait_for(self, version: int, *, bad: bool) -> None:
        member = _REJECTED if bad else _LOADED
        end = time.monotonic() + _NOTICED_SECONDS
        while time.monotonic() < end:
            if version in [item["version"] for item in self._service.call("/v1/models")[1][member]]:
                return
            time.sleep(_POLL_SECONDS)
        raise LoadTestError(
            f"version {version} was not among the {member} after {_NOTICED_SECONDS:.0f} s"
        )
