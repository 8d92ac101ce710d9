"""`python -m service loadtest | soak | flood`: arguments in, text or JSON out."""

import argparse
import json
import socket
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, fields
from pathlib import Path
from typing import TypeVar

from service.loadtest.errors import LoadTestError
from service.loadtest.flood import FloodSettings, flood
from service.loadtest.generator import Generator
from service.loadtest.plan import LoadPlan
from service.loadtest.reloads import ReloadResult, ReloadSettings, reload_under_load
from service.loadtest.report import LoadReport
from service.loadtest.request import Target, classify_request, parse_url
from service.loadtest.soak import KillResult, KillSettings, kill_workers_under_load

__all__ = ["add_flood", "add_loadtest", "add_soak"]

_PACKAGE = Path(__file__).parents[1]
_EXAMPLES = _PACKAGE / "examples"
_MODELS = _PACKAGE / "models"
_SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"}

_CLIENTS = 8
_SECONDS = 10.0
# The service answers by the end of the timeout; its answer needs a moment to arrive.
_GRACE_SECONDS = 1.0
_CONNECT_SECONDS = 5.0

_LOADTEST_EXAMPLES = """\
examples:
  python -m service loadtest http://127.0.0.1:8000
  python -m service loadtest http://127.0.0.1:8000 --images photos --clients 16 --requests 5000
  python -m service loadtest http://127.0.0.1:8000 --rate 200 --poisson --seconds 30 --json
"""

Number = TypeVar("Number", int, float)


def add_loadtest(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command `loadtest`."""
    parser = commands.add_parser(
        "loadtest",
        help="send requests to a running service and report what became of them",
        description="Send images to a running service, as service.client does, and report "
        "statuses, rates and latencies. Exits with 1 if a request got no answer.",
        epilog=_LOADTEST_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("url", metavar="URL", help="the service, as http://HOST[:PORT]")
    _add_images(parser)
    _add_plan(parser)
    parser.add_argument(
        "--top-k", type=_positive(int), default=5, metavar="K", help="labels an image (default 5)"
    )
    parser.add_argument(
        "--timeout-ms",
        type=_positive(int),
        default=30_000,
        metavar="MS",
        help="time that the service has for an answer (default 30000)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--batch",
        action="store_true",
        help="for programs: read one JSON object a line from standard input, with clients or rate, "
        "requests or seconds, poisson, seed and images (places in the list), run each, "
        "and print one JSON object a line",
    )
    parser.set_defaults(command=_loadtest)


def _add_images(parser: argparse.ArgumentParser) -> None:
    images = parser.add_mutually_exclusive_group()
    images.add_argument(
        "--images",
        nargs="+",
        type=Path,
        default=[_EXAMPLES],
        metavar="PATH",
        help="image files, and folders of them (default: the drawings that come with the service)",
    )
    images.add_argument(
        "--image-list", type=Path, metavar="FILE", help="text file with one image file a line"
    )


def _add_plan(parser: argparse.ArgumentParser) -> None:
    pace = parser.add_mutually_exclusive_group()
    pace.add_argument(
        "--clients",
        type=_positive(int),
        metavar="N",
        help=f"clients that each wait for their answer (default {_CLIENTS})",
    )
    pace.add_argument(
        "--rate",
        type=_positive(float),
        metavar="R",
        help="requests a second, whatever became of earlier ones",
    )
    parser.add_argument(
        "--poisson", action="store_true", help="with --rate: arrivals at random, not evenly spaced"
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--requests", type=_positive(int), metavar="N", help="requests in all")
    length.add_argument(
        "--seconds",
        type=_positive(float),
        metavar="S",
        help=f"send requests for so long (default {_SECONDS:g})",
    )


def _loadtest(options: argparse.Namespace) -> int:
    target = parse_url(options.url)
    files = _image_list(options.image_list) if options.image_list else _find(options.images)
    requests = [_read_request(file, target, options) for file in files]
    generator = Generator(target.address, options.timeout_ms / 1e3 + _GRACE_SECONDS)
    if options.batch:
        return _batch(generator, requests)
    plan = _plan(options)
    _check_listening(target)
    report = LoadReport.of(plan.run(generator, requests))
    print(json.dumps(report.to_json()) if options.json else report.text())
    return 1 if report.unanswered else 0


def _batch(generator: Generator, requests: list[bytes]) -> int:
    for line in sys.stdin:
        report = LoadReport.of(LoadPlan.from_json(line).run(generator, requests))
        print(json.dumps(report.to_json()), flush=True)
    return 0


def _plan(options: argparse.Namespace) -> LoadPlan:
    clients, seconds = options.clients, options.seconds
    if options.rate is None:
        clients = clients or _CLIENTS
    if options.requests is None:
        seconds = seconds or _SECONDS
    return LoadPlan(clients, options.rate, options.requests, seconds, options.poisson)


def _check_listening(target: Target) -> None:
    try:
        socket.create_connection(target.address, _CONNECT_SECONDS).close()
    except OSError as error:
        raise LoadTestError(f"{target} cannot be reached: {error.strerror or error}") from error


def _image_list(file: Path) -> list[Path]:
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise LoadTestError(f"{file} cannot be read: {error}") from error
    if not lines:
        raise LoadTestError(f"{file} is empty, expected one image file a line")
    return [Path(line) for line in lines]


def _find(paths: Iterable[Path]) -> list[Path]:
    """The files among `paths`, and the images in the folders among them."""
    found = [
        file
        for path in paths
        for file in (sorted(_images_below(path)) if path.is_dir() else [path])
    ]
    if not found:
        raise LoadTestError(f"no images in {', '.join(map(str, paths))}")
    return found


def _images_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.suffix.lower() in _SUFFIXES]


def _read_request(file: Path, target: Target, options: argparse.Namespace) -> bytes:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise LoadTestError(f"{file} cannot be read: {error.strerror}") from error
    return classify_request(data, target, options.top_k, options.timeout_ms)


def add_soak(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command `soak`."""
    parser = commands.add_parser(
        "soak",
        help="kill workers, then publish versions, of a service under load",
        description="Start a service; kill its workers while requests go on. Then start one "
        "whose model gets new versions, some of them damaged, while requests go on. Exits with 1 "
        "unless every request was answered with the right labels, or with the 503 of a job "
        "whose worker was killed twice.",
    )
    parser.add_argument(
        "--models", type=Path, default=_MODELS, help="model repository (default: the embedded one)"
    )
    kills, reloads = KillSettings(), ReloadSettings()
    for name, default, text in (
        ("requests", kills.requests, "requests while workers are killed; 0 skips this part"),
        ("kill-every-ms", kills.kill_every_ms, "milliseconds between two kills"),
        ("reloads", reloads.reloads, "versions to publish; 0 skips this part"),
        ("bad", reloads.bad, "damaged ones among them"),
        ("clients", kills.clients, "clients that each wait for their answer"),
    ):
        kind = _positive(int) if name in ("kill-every-ms", "clients") else _natural
        parser.add_argument(
            f"--{name}", type=kind, default=default, metavar="N", help=f"{text} (default {default})"
        )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(command=_soak)


def _soak(options: argparse.Namespace) -> int:
    results: dict[str, KillResult | ReloadResult] = {}
    if options.requests:
        kills = KillSettings(options.requests, options.kill_every_ms, options.clients)
        results["kills"] = kill_workers_under_load(options.models, kills)
        _print_part(results["kills"], as_json=options.json)
    if options.reloads:
        reloads = ReloadSettings(options.reloads, options.bad, options.clients)
        results["reloads"] = reload_under_load(options.models, reloads)
        _print_part(results["reloads"], as_json=options.json)
    if options.json:
        print(json.dumps({name: asdict(result) for name, result in results.items()}))
    faults = [f"{name}: {fault}" for name, item in results.items() for fault in item.faults()]
    if faults:
        raise LoadTestError("; ".join(faults))
    return 0


def add_flood(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command `flood`."""
    parser = commands.add_parser(
        "flood",
        help="open connections that do nothing, stall or do not read, to a service under load",
        description="Start a service; open connections and leave them, send halves of bodies, "
        "and ask for answers without reading them, while good requests go on. Exits with 1 "
        "unless every good request was answered with the right labels and the service's memory "
        "stayed within its bound.",
    )
    parser.add_argument(
        "--models", type=Path, default=_MODELS, help="model repository (default: the embedded one)"
    )
    defaults = FloodSettings()
    for name, text in (
        ("connections", "connections that are opened and left"),
        ("stalled", "bodies of which only the first half comes"),
        ("unread", "clients that ask for a large answer and never read"),
        ("requests", "good requests while the others come, and again when all are there"),
        ("clients", "good clients, which each wait for their answer"),
        ("body-bytes", "size of a body that stalls"),
        ("max-connections", "LEAFCODE_MAX_CONNECTIONS of the service"),
        ("transfer-bytes", "LEAFCODE_TRANSFER_BYTES of the service"),
    ):
        default = getattr(defaults, name.replace("-", "_"))
        kind = _natural if name in ("connections", "stalled", "unread") else _positive(int)
        parser.add_argument(
            f"--{name}", type=kind, default=default, metavar="N", help=f"{text} (default {default})"
        )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(command=_flood)


def _flood(options: argparse.Namespace) -> int:
    names = [field.name for field in fields(FloodSettings)]
    settings = FloodSettings(**{name: getattr(options, name) for name in names})
    result = flood(options.models, settings)
    print(json.dumps(asdict(result)) if options.json else result.text())
    if result.faults():
        raise LoadTestError("; ".join(result.faults()))
    return 0


def _print_part(result: KillResult | ReloadResult, *, as_json: bool) -> None:
    """Print each part as soon as it is there, because the next one takes a while."""
    if not as_json:
        print(result.text(), flush=True)


def _positive(kind: type[Number]) -> Callable[[str], Number]:
    def parse(text: str) -> Number:
        try:
            value = kind(text)
        except ValueError:
            value = kind(0)
        if not 0 < value < float("inf"):
            wanted = "whole number" if kind is int else "number"
            raise argparse.ArgumentTypeError(f"{text!r} is not a {wanted} above 0")
        return value

    return parse


def _natural(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0")
    return int(text)
