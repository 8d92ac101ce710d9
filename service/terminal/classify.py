"""`python -m service classify`: labels of image files, without a server and on all cores."""

import argparse
import io
import shutil
import sys
import time
from collections.abc import Generator
from contextlib import closing
from typing import TYPE_CHECKING

from service.settings import Settings, load_settings
from service.terminal.images import STDIN, list_images
from service.terminal.model import add_model_options, load_engine

if TYPE_CHECKING:
    from service.terminal.labeller import Labeller, Outcome
    from service.terminal.report import Report

__all__ = ["add_classify"]

# To start a process and end it takes about the CPU time of one image.
_IMAGES_A_PROCESS = 4

_DESCRIPTION = """\
Label image files without a server, on all cores, and go on after files that cannot be read.
Exits with 1 if there was one.
"""


def add_classify(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command `classify`."""
    parser = commands.add_parser("classify", help="label image files", description=_DESCRIPTION)
    parser.add_argument(
        "images",
        nargs="+",
        metavar="IMAGE",
        help="image file, folder of which all images are taken, or - for stdin",
    )
    add_model_options(parser)
    parser.add_argument(
        "--top-k", type=_positive, default=5, metavar="K", help="labels an image (default 5)"
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON an image")
    parser.set_defaults(command=_classify)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def _classify(options: argparse.Namespace) -> int:
    settings = load_settings(models=options.models)
    labeller = _labeller(options, settings)
    images = list_images(options.images)
    failed = _label_all(labeller, images, settings, _report(options, labeller, images))
    return 1 if failed else 0


def _labeller(options: argparse.Namespace, settings: Settings) -> "Labeller":
    engine = load_engine(options, settings)
    from service.terminal.labeller import Labeller, read_within  # noqa: PLC0415

    limits = settings.image_limits
    stdin = read_within(sys.stdin.buffer, limits) if STDIN in options.images else b""
    return Labeller(engine, options.top_k, limits, stdin)


def _report(options: argparse.Namespace, labeller: "Labeller", images: list[str]) -> "Report":
    from service.terminal.report import JsonReport, TableReport  # noqa: PLC0415

    manifest = labeller.engine.manifest
    if options.json:
        return JsonReport(manifest)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # names in a script that it cannot write
    width = shutil.get_terminal_size((0, 0)).columns
    return TableReport(manifest, images, width or None)


def _label_all(
    labeller: "Labeller", images: list[str], settings: Settings, report: "Report"
) -> int:
    """Tell the outcome of every image; how many failed."""
    from service.terminal.progress import Progress  # noqa: PLC0415

    start, failed = time.perf_counter(), 0
    report.begin()
    progress = Progress(len(images), sys.stderr)
    with closing(_outcomes(labeller, images, settings)) as outcomes:
        try:
            for image, outcome in zip(images, outcomes, strict=True):
                progress.erase()
                report.tell(image, outcome)
                progress.advance()
                failed += isinstance(outcome, str)
        finally:
            progress.erase()
    report.end(len(images), failed, time.perf_counter() - start)
    return failed


def _outcomes(
    labeller: "Labeller", images: list[str], settings: Settings
) -> Generator["Outcome", None, None]:
    """The outcome of every image, in order."""
    from service.pool.cores import Placement  # noqa: PLC0415

    placement = Placement.of(settings.workers, 1, settings.pin).workers
    count = min(len(placement), len(images) // _IMAGES_A_PROCESS)
    if count < 2:
        yield from map(labeller, images)
        return
    # Here, because few images need none of it.
    from service.terminal.processes import map_in_processes  # noqa: PLC0415

    yield from map_in_processes(labeller, images, placement[:count], _tell_lost)


def _tell_lost(code: int) -> str:
    ended = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"the process that decoded it ended with {ended}"
