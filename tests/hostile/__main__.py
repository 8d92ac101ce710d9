"""`make hostile`: all kinds of hostile inputs, many of each, against a service as it is shipped.

Then slow clients. Prints what came of it, and exits with 1 unless everything was as documented.
"""

import argparse
import logging
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numba

from service.engine import BundleError, Engine
from tests.hostile import bundles, caches
from tests.hostile.corpus import Limits, collect
from tests.hostile.slow_clients import SlowClients, compare
from tests.hostile.victim import REQUESTS, STALLS, Victim
from tests.support.bundles import write_model
from tests.support.processes import Server
from tests.support.small_kernel import SOURCE, start

# What no kind may take. Workers: the 50 million pixels that are allowed, or the 64 MB of texts
# that Pillow allows. Front end: some copies of the largest body.
_MAX_WORKER_BYTES = 150_000_000
_MAX_FRONT_END_BYTES = 200_000_000


def main() -> int:
    """Run all of it; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--inputs", type=int, default=10, help="of each kind (default 10)")
    parser.add_argument("--slow", type=int, default=500, help="slow clients (default 500)")
    parser.add_argument("--rounds", type=int, default=3, help="of slow clients (default 3)")
    options = parser.parse_args()
    logging.getLogger("service.engine.kernel_cache").setLevel(logging.ERROR)  # it says so each time
    with tempfile.TemporaryDirectory() as name:
        models = Path(name, "models")
        for version in (1, 2):
            write_model(models, "apples", version, seed=version)
        faults = [
            *send_requests(models, options.inputs),
            *read_bundles(models / "apples" / "1", Path(name), options.inputs),
            *load_kernels(Path(name), options.inputs),
            *serve_among_slow_clients(models, options.slow, options.rounds),
        ]
    for fault in faults:
        sys.stdout.write(f"fault: {fault}\n")
    return 1 if faults else 0


def say(name: str, text: str) -> None:
    sys.stdout.write(f"{name:<16} {text}\n")
    sys.stdout.flush()


def send_requests(models: Path, inputs: int) -> list[str]:
    """Everything that can be sent, to a service with its default limits but for its patience."""
    patience = ("--header-timeout-seconds=2", "--body-timeout-seconds=2")
    begun = time.monotonic()
    with Server("--models", str(models), *patience) as server:
        victim = Victim(server, Limits())
        for kind in REQUESTS:
            victim.attack(kind, range(inputs))
        report = victim.attack_at_once(STALLS, inputs).report
        errors = sum('"level":"error"' in line for line in server.log)
    statuses = Counter(status for status, _ in report.outcomes.elements())
    shares = ", ".join(f"{count} × {status}" for status, count in sorted(statuses.items()))
    kinds = len(REQUESTS) + len(STALLS)
    say("requests", f"{report.inputs} of {kinds} kinds in {time.monotonic() - begun:.0f} s")
    say("answers", f"{shares}; {len(report.outcomes)} different ones")
    say("slowest", f"{report.slowest[0]:.2f} s of CPU, {report.slowest[1]}")
    say("front end", f"{report.front_end_bytes / 1e6:.0f} MB above the start, at most")
    say("workers", f"{report.worker_bytes / 1e6:.0f} MB above the start, at most")
    faults = list(report.faults)
    if errors:
        faults.append(f"{errors} errors in the log of the service")
    if report.front_end_bytes > _MAX_FRONT_END_BYTES:
        faults.append(f"the front end grew by more than {_MAX_FRONT_END_BYTES} bytes")
    if report.worker_bytes > _MAX_WORKER_BYTES:
        faults.append(f"a worker grew by more than {_MAX_WORKER_BYTES} bytes")
    return faults


def read_bundles(sound: Path, scratch: Path, inputs: int) -> list[str]:
    """Damaged and forged version folders, each read by an engine."""
    faults, kinds, folder = [], collect(bundles), scratch / "bundle"
    for kind in kinds:
        for number in range(inputs):
            shutil.copytree(sound, folder)
            expected = kind.make(kind.rng(number), folder)
            try:
                Engine.load(folder)
                faults.append(f"{kind.name} {number}: was accepted")
            except BundleError as error:
                if expected not in str(error):
                    faults.append(f"{kind.name} {number}: {error}, expected {expected}")
            except Exception as error:  # noqa: BLE001
                faults.append(f"{kind.name} {number}: {error!r}")
            shutil.rmtree(folder)
    say("bundles", f"{len(kinds) * inputs} of {len(kinds)} kinds, {len(faults)} not rejected")
    return faults


def load_kernels(scratch: Path, inputs: int) -> list[str]:
    """Damaged files of a compiled kernel, each loaded by an engine's start."""
    faults, kinds, source = [], collect(caches), scratch / "small_kernel.py"
    source.write_text(SOURCE)
    for kind in kinds:
        for number in range(inputs):
            with _filled_cache(source, scratch / "kernels") as cache:
                kind.make(kind.rng(number), cache)
                kernel = start(source)
                right = kernel(21) == 42 and sum(kernel.stats.cache_misses.values()) == 1
            if not right:
                faults.append(f"{kind.name} {number}: not compiled again")
    say("kernels", f"{len(kinds) * inputs} of {len(kinds)} kinds, {len(faults)} used")
    return faults


@contextmanager
def _filled_cache(source: Path, folder: Path) -> Iterator[Path]:
    setattr(numba.config, "CACHE_DIR", str(folder))  # noqa: B010 -- numba has no types
    start(source)(21)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def serve_among_slow_clients(models: Path, count: int, rounds: int) -> list[str]:
    """A good client alone, and among slow ones of every kind."""
    if not count:
        return []
    with Server("--models", str(models)) as server:
        result = compare(server, SlowClients(count), rounds)
    say("slow clients", result.text())
    return result.faults()


if __name__ == "__main__":
    sys.exit(main())
