"""Faults of bundles: good and damaged versions come and go, all files are deleted."""

import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from service.engine.bundle import read_bundle
from service.loadtest.answers import default_bundle
from service.loadtest.chaos.fault import Fault, Surroundings
from service.loadtest.errors import LoadTestError
from service.loadtest.processes import ServiceProcess, send_signal
from service.loadtest.reloads import ModelFolder, Publisher, ReloadSettings
from service.loadtest.soak import WORKER_LOST

__all__ = ["BundlesDeleted", "BundlesSwapped"]

_VERSIONS = ReloadSettings(reloads=16, bad=8)
_CALM_SECONDS = 1.0


class _OwnRepository(Fault):
    """A fault of a model repository that has one version of one model."""

    folder: ModelFolder
    repository: Path

    @contextmanager
    def prepared(self, models: Path) -> Iterator[Surroundings]:
        """A copy of the default bundle."""
        bundle = read_bundle(default_bundle(models))
        with tempfile.TemporaryDirectory(prefix="leafcode-chaos-") as folder:
            self.repository = Path(folder)
            self.folder = ModelFolder(self.repository / bundle.manifest.name, bundle)
            self.folder.publish(1)
            yield Surroundings(self.repository)


class BundlesSwapped(_OwnRepository):
    """Versions are published and withdrawn, half of them damaged in one of four ways."""

    name = "bundles-swapped"

    def happen(self, service: ServiceProcess) -> None:
        """Publish one after the other."""
        publisher = Publisher(service, self.folder)
        publisher.publish_all(_VERSIONS)
        if publisher.error:
            raise LoadTestError(publisher.error)


class BundlesDeleted(_OwnRepository):
    """The whole model repository is deleted, and workers are killed."""

    name = "bundles-deleted"
    allowed = frozenset({WORKER_LOST})

    def happen(self, service: ServiceProcess) -> None:
        """Delete all files, have the service look, and kill every worker, one by one."""
        for entry in self.repository.iterdir():
            shutil.rmtree(entry)
        service.process.send_signal(signal.SIGHUP)
        for pid in service.workers:
            time.sleep(_CALM_SECONDS)
            send_signal([pid], signal.SIGKILL)
            service.wait_for_workers()
