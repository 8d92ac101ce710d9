"""`python -m service capacity`: arguments in, a table or JSON out."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from service.capacity.measuring import CapacitySettings, Measured, measure
from service.loadtest.arguments import positive

__all__ = ["add_capacity"]

_MODELS = Path(__file__).parents[1] / "models"
_HEAD = f"{'workers':>7} {'front ends':>10} {'a second':>9} {'lowest':>8} {'highest':>8}"
_CPU_HEAD = f" {'front end ms':>13} {'worker ms':>10} {'client ms':>10} {'by CPU':>7}"


def add_capacity(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command `capacity`."""
    parser = commands.add_parser(
        "capacity",
        help="measure how many requests a second front ends hand out on this machine",
        description="Start services whose workers wait as long as an image would take, and "
        "measure in turns how many requests a second they answer, and the CPU time of a request "
        "in the front ends, the workers and the client, which share the cores.",
    )
    usual = CapacitySettings(_MODELS)
    parser.add_argument(
        "--models", type=Path, default=_MODELS, help="model repository (default: the embedded one)"
    )
    for name, values, text in (
        ("workers", usual.workers, "numbers of workers"),
        ("front-ends", usual.front_ends, "numbers of front ends"),
    ):
        told = f"{text} (default {' '.join(map(str, values))})"
        parser.add_argument(
            f"--{name}", nargs="+", type=positive(int), default=values, metavar="N", help=told
        )
    for name, default, text in (
        ("wait-ms", usual.wait_ms, "how long a worker waits, in milliseconds"),
        ("body-bytes", usual.body_bytes, "bytes of a request"),
        ("seconds", usual.seconds, "how long a turn takes"),
        ("rounds", usual.rounds, "turns of each service"),
    ):
        kind, told = positive(type(default)), f"{text} (default {default:g})"
        parser.add_argument(f"--{name}", type=kind, default=default, metavar="N", help=told)
    parser.add_argument(
        "--core-each",
        action="store_true",
        help="one core for each front end with its part of workers and client; all of them on all "
        "cores otherwise",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(command=_capacity)


def _capacity(options: argparse.Namespace) -> int:
    found = measure(
        CapacitySettings(
            options.models,
            options.workers,
            options.front_ends,
            options.wait_ms,
            options.body_bytes,
            options.seconds,
            options.rounds,
            options.core_each,
        )
    )
    if options.json:
        rows = [
            {**asdict(item), "rate": item.rate, "rate_by_cpu": item.rate_by_cpu} for item in found
        ]
        print(json.dumps({"capacity": rows}))
    else:
        print("\n".join([_HEAD + _CPU_HEAD, *map(_row, found), *_ratios(found)]))
    return 0


def _row(item: Measured) -> str:
    rates = f"{item.rate:>9.0f} {min(item.rates):>8.0f} {max(item.rates):>8.0f}"
    times = f"{item.front_end_ms:>13.3f} {item.worker_ms:>10.3f} {item.client_ms:>10.3f}"
    return f"{item.workers:>7} {item.front_ends:>10} {rates} {times} {item.rate_by_cpu:>7.0f}"


def _ratios(found: Sequence[Measured]) -> list[str]:
    """How many times the rate of the fewest front ends the others reach."""
    lines = []
    for item in found:
        first = next(other for other in found if other.workers == item.workers)
        if item is not first:
            lines.append(
                f"{item.workers} workers: {item.front_ends} front ends answer "
                f"{item.rate / first.rate:.2f} times as many as {first.front_ends}, by their CPU "
                f"time {item.rate_by_cpu / first.rate_by_cpu:.2f} times"
            )
    return lines
