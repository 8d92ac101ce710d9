"""The commands of `python -m service`: `serve`, `classify`, `health`, `loadtest` and others.

Results go to standard output, everything else to standard error. Exit codes: 0 done,
1 something could not be done, 2 wrong arguments or settings.
"""

import argparse
import gc
import json
import logging
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service import __version__
from service.engine import LeafcodeError, Prediction
from service.engine.cpu_level import require_cpu_level
from service.errors import SettingsError
from service.health import add_health
from service.loadtest.chaos.cli import add_chaos
from service.loadtest.cli import add_flood, add_soak
from service.loadtest.options import add_loadtest
from service.observability.logs import log_config, start_logging
from service.pool.fork_server_process import ForkServerProcess
from service.repository import ModelKey, Repository, is_empty
from service.settings import EMBEDDED_MODELS, ENVIRONMENT_ONLY, Settings, allowed, load_settings
from service.settings_table import add_settings

if TYPE_CHECKING:
    from service.engine import Engine

__all__ = ["main"]

logger = logging.getLogger(__name__)

_EXAMPLES = """\
examples:
  python -m service serve
  python -m service serve --models ./models --port 9000
  python -m service classify photo.jpg drawing.png --top-k 3
  curl --data-binary @photo.jpg http://127.0.0.1:8000/v1/classify
"""

_SERVE_FLAGS = tuple(name for name in Settings.model_fields if name not in ENVIRONMENT_ONLY)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    options = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except SettingsError as error:
        print(f"leafcode: {error}", file=sys.stderr)
        return 2
    except LeafcodeError as error:
        print(f"leafcode: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


class _Parser(argparse.ArgumentParser):
    """Takes options by their whole names only, here and in all commands below."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)


def _parser() -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = _Parser(
        prog="python -m service",
        description="Image labels and sparse codes, fast, on plain CPUs.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"leafcode {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_serve(commands)
    _add_classify(commands)
    add_health(commands)
    add_settings(commands)
    add_loadtest(commands)
    add_soak(commands)
    add_flood(commands)
    add_chaos(commands)
    warm_parser = commands.add_parser("warm", help="compile the kernels, once for this machine")
    warm_parser.set_defaults(command=_warm)
    return parser


def _add_serve(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "serve",
        help="answer over HTTP",
        description="Answer over HTTP until interrupted. Flags come before the environment.",
        epilog="\n".join(map(_environment_only, sorted(ENVIRONMENT_ONLY))),
    )
    for name in _SERVE_FLAGS:
        _add_setting(parser, name)
    parser.set_defaults(command=_serve)


def _add_setting(parser: argparse.ArgumentParser, name: str) -> None:
    """A flag for a setting. Its value stays text, so that `Settings` alone judges it."""
    field = Settings.model_fields[name]
    default = field.get_default(call_default_factory=True, validated_data={})
    told = field.title or field.annotation not in (str, Path)
    values = f"; {allowed(field)}" if told else ""
    shown = "none" if default in (None, "") else default
    parser.add_argument(
        f"--{name.replace('_', '-')}",
        metavar=name.rpartition("_")[2].upper(),
        help=f"{field.description}{values} (LEAFCODE_{name.upper()}, default {shown})",
    )


def _environment_only(name: str) -> str:
    field = Settings.model_fields[name]
    return (
        f"In the environment only: LEAFCODE_{name.upper()}, {field.description}; "
        f"{allowed(field)} (default none)."
    )


def _add_classify(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "classify", help="label image files", description="Label image files without a server."
    )
    parser.add_argument("images", nargs="+", metavar="IMAGE", help="image file, or - for stdin")
    _add_setting(parser, "models")
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="model (default: LEAFCODE_DEFAULT_MODEL, or else the first by name)",
    )
    parser.add_argument("--version", type=int, metavar="V", help="version (default: the highest)")
    parser.add_argument(
        "--top-k", type=_positive, default=5, metavar="K", help="labels an image (default 5)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(command=_classify)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def _serve(options: argparse.Namespace) -> int:
    settings = load_settings(**{name: getattr(options, name) for name in _SERVE_FLAGS})
    start_logging(settings.log_level, settings.log_format, queued=True)
    gc.disable()  # as in `__main__`, until the service is ready
    # Not before there is something to reload; processes started meanwhile inherit it.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    logger.info("leafcode %s starts", __version__)
    try:
        require_cpu_level()
        _serve_with_kernels(_with_models(settings))
    except LeafcodeError as error:
        # A line of the log like any other: whoever collects it must see why nothing runs.
        logger.error("cannot serve: %s", error)  # noqa: TRY400
        return 2 if isinstance(error, SettingsError) else 1
    return 0


def _serve_with_kernels(settings: Settings) -> None:
    logs = log_config(settings.log_level, settings.log_format)
    with ForkServerProcess(settings.threads, logs) as fork_server:
        # Here, because the web framework takes half a second, which no other command needs, and
        # the fork server as long for the kernels.
        from service.server import serve  # noqa: PLC0415

        serve(settings, fork_server)


def _with_models(settings: Settings) -> Settings:
    """The settings, with the embedded models if they say so for an empty folder, and it is."""
    if settings.empty_models == "reject" or not is_empty(settings.models):
        return settings
    logger.info(
        "%s is empty: the embedded models are served; publish models there and start again",
        settings.models,
    )
    return settings.model_copy(update={"models": EMBEDDED_MODELS})


def _warm(_: argparse.Namespace) -> int:
    start_logging("info")
    from service.pool.warmup import warm  # noqa: PLC0415

    print(f"kernels ready after {warm():.1f} s")
    return 0


def _classify(options: argparse.Namespace) -> int:
    start_logging("warning")
    logging.getLogger("service.pool.warmup").setLevel(logging.INFO)
    settings = _with_models(load_settings(models=options.models))
    # Here, because they take half a second, which other commands do not need.
    from PIL import Image  # noqa: PLC0415

    from service.engine import Engine  # noqa: PLC0415
    from service.pool.warmup import warm  # noqa: PLC0415

    # Our own limit rejects such an image right after Pillow has warned about it.
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)
    warm()
    repository = Repository.load(settings.models, settings.default_model)
    engine = Engine.load(repository.find(options.model, options.version).path)
    outcomes = [_outcome(engine, settings, image, options.top_k) for image in options.images]
    if options.json:
        _print_json(engine, options.images, outcomes)
    else:
        _print_table(engine, options.images, outcomes)
    return 1 if any(isinstance(outcome, str) for outcome in outcomes) else 0


Outcome = tuple[Prediction, ...] | str


def _outcome(engine: "Engine", settings: Settings, image: str, top_k: int) -> Outcome:
    """The ranked labels of an image, or the sentence that says why there are none."""
    try:
        data = sys.stdin.buffer.read() if image == "-" else Path(image).read_bytes()
        return engine.classify(data, top_k, settings.image_limits)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    except LeafcodeError as error:
        return str(error)


def _print_json(engine: "Engine", images: list[str], outcomes: list[Outcome]) -> None:
    results = [
        {"image": image, "error": outcome}
        if isinstance(outcome, str)
        else {"image": image, "predictions": [asdict(item) for item in outcome]}
        for image, outcome in zip(images, outcomes, strict=True)
    ]
    manifest = engine.manifest
    model = {"name": manifest.name, "version": manifest.version, "digest": manifest.digest}
    print(json.dumps({"model": model, "results": results}, indent=1))


def _print_table(engine: "Engine", images: list[str], outcomes: list[Outcome]) -> None:
    print(f"labels by {ModelKey.of(engine.manifest)}")
    for image, outcome in zip(images, outcomes, strict=True):
        if isinstance(outcome, str):
            print(f"{image}: {outcome}", file=sys.stderr)
            continue
        print(image)
        for item in outcome:
            print(f"  {item.probability:6.1%}  {item.label}")
