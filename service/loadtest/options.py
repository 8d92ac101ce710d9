"""The options of `python -m service loadtest`.

Apart from what runs them, because every command of the service reads them and none but this
one needs the rest.
"""

import argparse
from pathlib import Path

from service.loadtest.arguments import positive, share

__all__ = ["CLIENTS", "RAMP_SECONDS", "SECONDS", "add_loadtest"]

CLIENTS = 8
"""How many there are unless somebody says so."""
SECONDS = 10.0
"""How long a test takes without a number of requests."""
RAMP_SECONDS = 5.0
"""How long a ramp offers each rate."""

_EXAMPLE_IMAGES = Path(__file__).parents[1] / "examples"
_DESCRIPTION = """\
Send requests to a running service, as service.client does, and report statuses, rates and
latencies beside the service's own timings. Latencies count from the moment at which a request
was due. Exits with 1 if a request got no answer, or a limit was passed; with 130 after Ctrl-C,
which ends the test and reports about it.
"""
_EXAMPLES = """\
examples:
  python -m service loadtest http://127.0.0.1:8000
  python -m service loadtest http://127.0.0.1:8000 --images photos --clients 16 --requests 5000
  python -m service loadtest http://127.0.0.1:8000 --rate 200 --poisson --max-p99 50 --max-errors 1%
  python -m service loadtest http://127.0.0.1:8000 --ramp --plot ramp.png --json ramp.json
"""


def add_loadtest(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command `loadtest`."""
    parser = commands.add_parser(
        "loadtest",
        help="send requests to a running service and report what became of them",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("url", metavar="URL", help="the service, as http://HOST[:PORT]")
    _add_inputs(parser)
    _add_plan(parser)
    _add_limits(parser)
    _add_outputs(parser)
    parser.set_defaults(command=_loadtest)


def _add_inputs(parser: argparse.ArgumentParser) -> None:
    inputs = parser.add_mutually_exclusive_group()
    inputs.add_argument(
        "--images",
        nargs="+",
        type=Path,
        default=[_EXAMPLE_IMAGES],
        metavar="PATH",
        help="image files, and folders of them (default: the drawings that come with the service)",
    )
    inputs.add_argument(
        "--image-list", type=Path, metavar="FILE", help="text file with one image file a line"
    )
    inputs.add_argument(
        "--descriptors",
        type=positive(int),
        metavar="N",
        help="ask for the codes of N random descriptors a request, instead of labels",
    )
    parser.add_argument(
        "--top-k", type=positive(int), default=5, metavar="K", help="labels an image (default 5)"
    )
    parser.add_argument(
        "--timeout-ms",
        type=positive(int),
        default=30_000,
        metavar="MS",
        help="time that the service has for an answer (default 30000)",
    )
    parser.add_argument(
        "--api-key-file",
        type=Path,
        metavar="FILE",
        help="file whose first line is a key, for a service that asks for one",
    )


def _add_plan(parser: argparse.ArgumentParser) -> None:
    pace = parser.add_mutually_exclusive_group()
    pace.add_argument(
        "--clients",
        type=positive(int),
        metavar="N",
        help=f"clients that each wait for their answer (default {CLIENTS})",
    )
    pace.add_argument(
        "--rate",
        type=positive(float),
        metavar="R",
        help="requests a second, whatever became of earlier ones; with --ramp, the highest rate",
    )
    parser.add_argument(
        "--ramp",
        action="store_true",
        help="raise the rate until it is too high and find the knee: the highest rate that keeps "
        "--max-p99, or else a p90 below 5 times what one client alone waits, and --max-errors, "
        "or else 1%% of errors",
    )
    parser.add_argument(
        "--poisson",
        action="store_true",
        help="with --rate or --ramp: arrivals at random, not evenly spaced",
    )
    parser.add_argument(
        "--requests", type=positive(int), metavar="N", help="send at most so many requests"
    )
    parser.add_argument(
        "--duration",
        type=positive(float),
        metavar="S",
        help=f"send requests for so many seconds (default {SECONDS:g} without --requests); "
        f"with --ramp, at each rate (default {RAMP_SECONDS:g})",
    )


def _add_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--max-p99",
        type=positive(float),
        metavar="MS",
        help="exit with 1 if the p99 of answers with status 200 is higher",
    )
    parser.add_argument(
        "--max-errors",
        type=share,
        metavar="SHARE",
        help="exit with 1 if more requests, as 1%% or 0.01, are not answered with status 200",
    )


def _add_outputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json",
        nargs="?",
        const="-",
        metavar="FILE",
        help="write one JSON object to a file, or print it instead of text",
    )
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="draw latency over time, or with --ramp over offered load (.png, .svg, .pdf)",
    )
    parser.add_argument(
        "--batch",
        action="store_true",
        help="for programs: read one JSON object a line from standard input, with clients or rate, "
        "requests or duration, poisson, seed and images (places in the list), run each, "
        "and print one JSON object a line",
    )


def _loadtest(options: argparse.Namespace) -> int:
    from service.loadtest.command import loadtest  # noqa: PLC0415

    return loadtest(options)
