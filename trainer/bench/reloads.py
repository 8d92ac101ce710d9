"""New versions under load, good and bad: no request may fail, and none may be answered wrongly.

Versions are copies of the served bundle, so that all of them know the same labels; in a
bad one a byte of the tensors is flipped. The oldest of three good ones is withdrawn each
time, as an operator would.
"""

import json
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from service.engine.bundle import TENSORS_FILE, Bundle, read_bundle, write_bundle
from trainer.bench.load import Generator
from trainer.bench.server_process import Client, Server, leafcode
from trainer.bench.service_bench import default_bundle
from trainer.bench.soak import Questions, Tally, tally
from trainer.errors import TrainingError

__all__ = ["ReloadSettings", "Reloads", "reload_under_load", "reloads_text"]

_KEPT = 3
_SEEN_SECONDS = 30.0
_POLL_SECONDS = 0.01
_REQUESTS_AT_ONCE = 200


@dataclass(frozen=True)
class ReloadSettings:
    """Whole numbers, each an option of the command: versions that come, and bad ones among them."""

    reloads: int = 50
    bad: int = 10
    clients: int = 8


@dataclass(frozen=True)
class Reloads:
    """What became of the versions and of the requests meanwhile."""

    loaded: int
    refused: int
    answers: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    def faults(self) -> list[str]:
        """All that must not be, in words."""
        failed = {name: count for name, count in self.answers.items() if name != "right"}
        return [
            *(f"{count} requests: {name}" for name, count in failed.items() if count),
            *([] if self.answers.get("right") else ["no request was answered"]),
        ]


def reload_under_load(models: Path, settings: ReloadSettings) -> Reloads:
    """Serve copies of the bundle in `models` under load while versions come and go."""
    questions = Questions.of(default_bundle(models))
    bundle = read_bundle(default_bundle(models))
    with tempfile.TemporaryDirectory(prefix="leafcode-reloads-") as folder:
        shelf = _Shelf(Path(folder) / bundle.manifest.name, bundle)
        shelf.publish(1)
        with leafcode(Path(folder)) as server:
            publisher = _Publisher(server, shelf, settings)
            start = time.monotonic()
            publisher.start()
            tallies = []
            requests = questions.requests(_REQUESTS_AT_ONCE)
            while publisher.is_alive():
                load = Generator(server.address).closed_loop(requests, settings.clients)
                tallies.append(tally(load, questions.labels))
            seconds = time.monotonic() - start
            publisher.join()
    if publisher.error:
        raise TrainingError(publisher.error)
    return Reloads(publisher.loaded, publisher.refused, _added_up(tallies), seconds)


class _Shelf:
    """The folder of one model, to which versions are published by a rename."""

    def __init__(self, folder: Path, bundle: Bundle) -> None:
        self._folder = folder
        self._bundle = bundle
        self._present: list[int] = []

    def publish(self, version: int, *, bad: bool = False) -> None:
        """A copy of the bundle under another number, maybe damaged; it does not stay alone."""
        staging = self._folder / f".{version}-staging"
        manifest = replace(self._bundle.manifest, version=version)
        write_bundle(replace(self._bundle, manifest=manifest), staging)
        if bad:
            data = bytearray((staging / TENSORS_FILE).read_bytes())
            data[-1] ^= 1
            (staging / TENSORS_FILE).write_bytes(data)
        else:
            self._present.append(version)
        staging.rename(self._folder / str(version))
        if len(self._present) > _KEPT:
            self._withdraw(self._present.pop(0))

    def _withdraw(self, version: int) -> None:
        gone = self._folder / f".{version}-gone"
        (self._folder / str(version)).rename(gone)
        shutil.rmtree(gone)


class _Publisher(threading.Thread):
    """Publishes one version after the other, each when the last one was loaded or refused."""

    def __init__(self, server: Server, shelf: _Shelf, settings: ReloadSettings) -> None:
        super().__init__(name="publisher")
        self.loaded = self.refused = 0
        self.error = ""
        self._server = server
        self._shelf = shelf
        self._settings = settings

    def run(self) -> None:
        """Until all have come, or one was not noticed."""
        count, bad = self._settings.reloads, self._settings.bad
        try:
            with Client(self._server.address) as client:
                for number in range(count):
                    # Spread evenly over all of them.
                    is_bad = (number + 1) * bad // count > number * bad // count
                    self._shelf.publish(number + 2, bad=is_bad)
                    self._server.process.send_signal(signal.SIGHUP)
                    self._wait_for(client, number + 2, "refused" if is_bad else "models")
                    self.refused, self.loaded = self.refused + is_bad, self.loaded + (not is_bad)
        except (OSError, TrainingError) as error:
            self.error = str(error)

    def _wait_for(self, client: Client, version: int, place: str) -> None:
        end = time.monotonic() + _SEEN_SECONDS
        while time.monotonic() < end:
            _, body = client.get("/v1/models")
            if version in [item["version"] for item in json.loads(body)[place]]:
                return
            time.sleep(_POLL_SECONDS)
        raise TrainingError(
            f"version {version} was not among the {place} after {_SEEN_SECONDS:.0f} s"
        )


def _added_up(tallies: Sequence[Tally]) -> dict[str, int]:
    total: dict[str, int] = {}
    for found in tallies:
        counts = {
            "right": found.right,
            "wrong labels": found.wrong,
            "worker lost": found.died_twice,
            "never answered": found.lost,
            **{f"status {status}": count for status, count in found.others.items()},
        }
        for name, count in counts.items():
            total[name] = total.get(name, 0) + count
    return total


def reloads_text(result: Reloads) -> str:
    """The result for people."""
    lines = [f"{name:<19} {count}" for name, count in result.answers.items()]
    versions = f"{result.loaded} loaded, {result.refused} refused in {result.seconds:.0f} s"
    return "\n".join([*lines, f"{'versions':<19} {versions}"])
