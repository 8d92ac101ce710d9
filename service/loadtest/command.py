"""`python -m service loadtest`: options in, a report as text, JSON or a picture out."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from service.errors import SettingsError
from service.loadtest import plot
from service.loadtest.errors import LoadTestError
from service.loadtest.generator import Generator
from service.loadtest.histogram import Latencies
from service.loadtest.inputs import (
    descriptor_requests,
    find_images,
    image_requests,
    read_image_list,
)
from service.loadtest.live import LiveDisplay
from service.loadtest.load import Load, LoadInterrupted
from service.loadtest.options import CLIENTS, RAMP_SECONDS, SECONDS
from service.loadtest.plan import LoadPlan
from service.loadtest.preflight import check_service
from service.loadtest.ramp import RampLimits, RampReport, RampStep, find_knee
from service.loadtest.report import LoadReport
from service.loadtest.request import Sending, parse_url

__all__ = ["loadtest"]

_ALONE_REQUESTS = 30
# The service answers by the end of the timeout; its answer needs a moment to arrive.
_GRACE_SECONDS = 1.0
_INTERRUPTED = 130


def loadtest(options: argparse.Namespace) -> int:
    """Run a test with the options of `add_loadtest`; its exit code."""
    target = parse_url(options.url)
    sending = Sending(target, options.timeout_ms, _api_key(options.api_key_file))
    requests = _requests(options, sending)
    timeout = options.timeout_ms / 1e3 + _GRACE_SECONDS
    generator = Generator(target.address, timeout, keep_timings=not options.batch)
    if options.batch:
        return _batch(generator, requests)
    plan = _plan(options)
    Latencies()  # a missing package is told before any work is done
    if options.plot is not None:
        plot.check_plot(options.plot)
    check_service(generator, target, requests[0], all_alike=bool(options.descriptors))
    test = _Test(options, plan, generator, requests)
    return test.ramp() if options.ramp else test.run()


def _api_key(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        first, *_ = file.read_text("ascii").splitlines() or [""]
    except (OSError, UnicodeDecodeError) as error:
        raise LoadTestError(f"{file} cannot be read: {error}") from error
    if not first.strip() or not first.isprintable():
        raise LoadTestError(f"the first line of {file} is {first!r}, expected a key")
    return first.strip()


def _requests(options: argparse.Namespace, sending: Sending) -> list[bytes]:
    if options.descriptors:
        return descriptor_requests(options.descriptors, sending)
    listed = options.image_list
    files = read_image_list(listed) if listed else find_images(options.images)
    return image_requests(files, sending, options.top_k)


def _batch(generator: Generator, requests: list[bytes]) -> int:
    for line in sys.stdin:
        plan = LoadPlan.from_json(line)
        report = LoadReport.of(plan.run(generator, requests), plan.rate)
        print(json.dumps(report.to_json()), flush=True)
    return 0


def _plan(options: argparse.Namespace) -> LoadPlan:
    """The plan, of a ramp that of its highest rate."""
    clients, rate, duration = options.clients, options.rate, options.duration
    if options.ramp:
        if clients is not None:
            raise SettingsError("a ramp has rates, not clients: use --ramp without --clients")
        rate, duration = rate or RampLimits().max_rate, duration or RAMP_SECONDS
    elif rate is None:
        clients = clients or CLIENTS
    if options.requests is None:
        duration = duration or SECONDS
    return LoadPlan(clients, rate, options.requests, duration, options.poisson)


@dataclass(frozen=True)
class _Test:
    """One load test that can begin."""

    options: argparse.Namespace
    plan: LoadPlan
    generator: Generator
    requests: Sequence[bytes]

    def run(self) -> int:
        """Run the plan and report about it; the exit code."""
        try:
            load, interrupted = self._load(self.plan), False
        except LoadInterrupted as stopped:
            load, interrupted = stopped.load, True
        report = LoadReport.of(load, self.plan.rate)
        self._write(report.text(), report.to_json())
        if self.options.plot is not None:
            plot.draw_run(load, f"{self._title()}, {self._pace()}", self.options.plot)
        faults = self._faults(report)
        for fault in faults:
            _tell(fault)
        return _INTERRUPTED if interrupted else int(bool(faults))

    def ramp(self) -> int:
        """Find the knee and report about it; the exit code."""
        limits = RampLimits(max_p99_ms=self.options.max_p99, max_rate=self.plan.rate or 0.0)
        if self.options.max_errors is not None:
            limits = replace(limits, max_errors=self.options.max_errors)
        steps: list[RampStep] = []
        interrupted = False

        def on_step(step: RampStep) -> None:
            steps.append(step)
            _tell(step.sentence())

        alone_ms = self._alone()
        try:
            find_knee(alone_ms, self._measure, limits, on_step)
        except LoadInterrupted:
            interrupted = True
        report = RampReport.of(alone_ms, steps)
        self._write(report.text(), {**report.to_json(), "interrupted": interrupted})
        if interrupted:
            _tell("interrupted before the knee was known")
        if self.options.plot is not None:
            plot.draw_ramp(report, self._title(), self.options.plot)
        return _INTERRUPTED if interrupted else int(report.knee is None)

    def _alone(self) -> float:
        """Milliseconds that a client waits which has the service for itself."""
        report = LoadReport.of(self._load(LoadPlan(clients=1, requests=_ALONE_REQUESTS)))
        if 200 not in report.answers:
            raise LoadTestError(
                f"no request of a client alone succeeded: {report.kinds_of_errors()}"
            )
        _tell(f"one client alone, p50 {report.answers[200].p50_ms:.1f} ms")
        return report.answers[200].p50_ms

    def _measure(self, rate: float) -> LoadReport:
        return LoadReport.of(self._load(replace(self.plan, rate=rate)), rate)

    def _load(self, plan: LoadPlan) -> Load:
        with _watching(self.generator, plan) as generator:
            return plan.run(generator, self.requests)

    def _faults(self, report: LoadReport) -> list[str]:
        """Why the service did not pass, one sentence each."""
        faults = []
        success, limit = report.answers.get(200), self.options.max_p99
        if limit is not None and (success is None or success.p99_ms > limit):
            p99 = "unknown" if success is None else f"{success.p99_ms:.1f} ms"
            faults.append(f"p99 is {p99}, expected at most {limit:g} ms")
        allowed = self.options.max_errors
        if allowed is not None and report.errors > allowed * report.requests:
            found = f"{report.errors} of {report.requests} requests failed"
            faults.append(f"{found}, expected at most {allowed:.3g} of them")
        elif allowed is None and report.unanswered:
            faults.append(f"{report.unanswered} requests got no answer")
        return faults

    def _write(self, text: str, document: dict[str, Any]) -> None:
        """Text to standard output, or JSON; JSON to a file as well."""
        document = {"url": self.options.url, "plan": asdict(self.plan), **document}
        if self.options.json == "-":
            print(json.dumps(document))
            return
        print(text)
        if self.options.json is not None:
            try:
                Path(self.options.json).write_text(json.dumps(document, indent=1) + "\n", "utf-8")
            except OSError as error:
                raise LoadTestError(
                    f"{self.options.json} cannot be written: {error.strerror}"
                ) from error

    def _title(self) -> str:
        what = self.options.descriptors
        sent = f"{what} descriptors a request" if what else f"{len(self.requests)} images in turns"
        return f"{self.options.url}, {sent}"

    def _pace(self) -> str:
        if self.plan.rate is None:
            return f"{self.plan.clients} clients"
        arrivals = "Poisson arrivals" if self.plan.poisson else "evenly spaced"
        return f"{self.plan.rate:g} requests a second, {arrivals}"


@contextmanager
def _watching(generator: Generator, plan: LoadPlan) -> Iterator[Generator]:
    """The generator with a display of what it does."""
    duration = plan.duration
    if plan.rate is not None and plan.requests is not None:
        duration = min(duration or float("inf"), plan.requests / plan.rate)
    display = LiveDisplay(sys.stderr, duration)
    try:
        yield replace(generator, watch=display)
    finally:
        display.end()


def _tell(sentence: str) -> None:
    print(f"leafcode: {sentence}", file=sys.stderr)
