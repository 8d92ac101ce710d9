"""`python -m service chaos`: arguments in, a table or JSON out."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from service.loadtest.chaos.catalogue import FAULTS
from service.loadtest.chaos.experiment import ExperimentSettings, FaultResult, inject
from service.loadtest.errors import LoadTestError

__all__ = ["add_chaos"]

_MODELS = Path(__file__).parents[2] / "models"
_ROW = "{:<20} {:>8} {:>7} {:>7} {:>8} {:>8}  {}"
_HEADER = _ROW.format("fault", "requests", "right", "errors", "before/s", "after/s", "verdict")


def add_chaos(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command `chaos`."""
    listed = "\n".join(f"  {name:<20} {fault.sentence()}" for name, fault in FAULTS.items())
    parser = commands.add_parser(
        "chaos",
        help="inject faults into a service under load",
        description="Start a service for each fault, load it, inject the fault, and compare. Exits "
        "with 1 unless every request was answered with the right labels or with an error that is "
        "documented for the fault, and the service was as fast as before afterwards.",
        epilog=f"faults:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "faults", nargs="*", metavar="FAULT", help="faults to inject (default: all of them)"
    )
    parser.add_argument(
        "--models", type=Path, default=_MODELS, help="model repository (default: the embedded one)"
    )
    parser.add_argument(
        "--clients", type=int, default=8, metavar="N", help="clients at once (default 8)"
    )
    parser.add_argument(
        "--measure-seconds",
        type=float,
        default=2.0,
        metavar="S",
        help="how long the speed is measured, before and afterwards (default 2)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object a fault")
    parser.set_defaults(command=_chaos)


def _chaos(options: argparse.Namespace) -> int:
    names = options.faults or list(FAULTS)
    for name in names:
        if name not in FAULTS:
            raise LoadTestError(f"no fault is called {name!r}, expected one of {', '.join(FAULTS)}")
    settings = ExperimentSettings(options.clients, options.measure_seconds)
    if not options.json:
        print(_HEADER)
    results = []
    for name in names:
        results.append(inject(FAULTS[name](), options.models, settings))
        print(json.dumps(asdict(results[-1])) if options.json else _row(results[-1]), flush=True)
    if not options.json:
        print(_summary(results))
    if any(result.faults for result in results):
        raise LoadTestError(
            "; ".join(f"{result.name}: {fault}" for result in results for fault in result.faults)
        )
    return 0


def _row(result: FaultResult) -> str:
    if result.impossible:
        return _ROW.format(result.name, *"-----", f"not injected: {result.impossible}")
    answers = result.answers
    problems = ", ".join(f"{count} × {name}" for name, count in answers.problems.items())
    verdict = "; ".join(result.faults) or f"passed{f' ({problems})' if problems else ''}"
    after = "-" if result.after is None else f"{result.after:.0f}"
    errors = sum(answers.problems.values())
    return _ROW.format(
        result.name, answers.requests, answers.right, errors, f"{result.before:.0f}", after, verdict
    )


def _summary(results: Sequence[FaultResult]) -> str:
    ran = [result for result in results if not result.impossible]
    passed = sum(not result.faults for result in ran)
    requests = sum(result.answers.requests for result in ran)
    seconds = sum(result.seconds for result in ran)
    return (
        f"{passed} of {len(ran)} faults passed, {len(results) - len(ran)} could not be injected "
        f"here; {requests} requests while they lasted, {seconds:.0f} s in all"
    )
