"""`python -m service soak | flood`: arguments in, text or JSON out."""

import argparse
import json
from dataclasses import asdict, fields
from pathlib import Path

from service.loadtest.arguments import natural, positive
from service.loadtest.endurance import EnduranceResult, EnduranceSettings, endure
from service.loadtest.errors import LoadTestError
from service.loadtest.flood import FloodSettings, flood
from service.loadtest.reloads import ReloadResult, ReloadSettings, reload_under_load
from service.loadtest.soak import KillResult, KillSettings, kill_workers_under_load

__all__ = ["add_flood", "add_soak"]

_Part = KillResult | ReloadResult | EnduranceResult

_MODELS = Path(__file__).parents[1] / "models"


def add_soak(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command `soak`."""
    parser = commands.add_parser(
        "soak",
        help="kill workers, publish versions, and go on for long, of a service under load",
        description="Start a service; kill its workers while requests go on. Then start one "
        "whose model gets new versions, some of them damaged, while requests go on. Then do both, "
        "and make other calls, for a long time. Exits with 1 unless every request was answered "
        "with the right labels, or with the 503 of a job whose worker was killed twice, and "
        "unless memory grew by less than 5 %, and file handles and threads by none.",
    )
    parser.add_argument(
        "--models", type=Path, default=_MODELS, help="model repository (default: the embedded one)"
    )
    kills, reloads, long = KillSettings(), ReloadSettings(), EnduranceSettings()
    for name, default, text in (
        ("requests", kills.requests, "requests while workers are killed; 0 skips this part"),
        ("kill-every-ms", kills.kill_every_ms, "milliseconds between two kills"),
        ("reloads", reloads.reloads, "versions to publish; 0 skips this part"),
        ("bad", reloads.bad, "damaged ones among them"),
        ("duration", round(long.duration), "seconds of the last part; 0 skips it"),
        ("clients", kills.clients, "clients that each wait for their answer"),
    ):
        kind = positive(int) if name in ("kill-every-ms", "clients") else natural
        parser.add_argument(
            f"--{name}", type=kind, default=default, metavar="N", help=f"{text} (default {default})"
        )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(command=_soak)


def _soak(options: argparse.Namespace) -> int:
    results: dict[str, _Part] = {}
    if options.requests:
        kills = KillSettings(options.requests, options.kill_every_ms, options.clients)
        results["kills"] = kill_workers_under_load(options.models, kills)
        _print_part(results["kills"], as_json=options.json)
    if options.reloads:
        reloads = ReloadSettings(options.reloads, options.bad, options.clients)
        results["reloads"] = reload_under_load(options.models, reloads)
        _print_part(results["reloads"], as_json=options.json)
    if options.duration:
        long = EnduranceSettings(options.duration, options.clients)
        results["endurance"] = endure(options.models, long)
        _print_part(results["endurance"], as_json=options.json)
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
        kind = natural if name in ("connections", "stalled", "unread") else positive(int)
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


def _print_part(result: _Part, *, as_json: bool) -> None:
    """Print each part as soon as it is there, because the next one takes a while."""
    if not as_json:
        print(result.text(), flush=True)
